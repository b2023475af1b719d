"""Texts of older groups: read by page, and correct whatever the feed brings meanwhile."""

import copy

import msgspec
import pytest

from ajet_swarm.common.errors import AjetError
from console.session.filters import parse
from console.session.unread import TEXT_PAGE, Unread, read_texts
from core.events import GroupLost, GroupMarked, RequestReplayed
from core.events.base import Event
from core.state import State, reduce
from core.state.brief import brief_groups
from tests.support.console import Clock, FakeLink, group_events
from tests.support.sample import stamp, state_of

OLD = 130


def many(count: int = OLD) -> State:
    """Closed groups, and an open one that is older than the others."""
    events = group_events(900, until="AWAITING_RATING")
    for number in range(count):
        events += group_events(number, query=f"question {number} " + "x" * 300)
    return state_of(*events)


def decoded(state: State, whole: int) -> State:
    """The state of a client that asked for so many whole groups."""
    lean = msgspec.structs.replace(state, groups=brief_groups(state.groups, whole))
    return msgspec.json.decode(msgspec.json.encode(lean), type=State)


def briefs(state: State) -> list[str]:
    """The ids of the brief groups."""
    return [one.group_id for one in state.groups.values() if one.brief]


def test_a_brief_group_lacks_texts_and_parts_and_nothing_that_lists_or_counts_use() -> None:
    state = many()
    client = decoded(state, 10)
    brief = [one for one in client.groups.values() if one.brief]
    assert len(brief) == OLD - 10
    assert not client.groups["g0900"].brief  # it is open
    first, full = brief[0], state.groups[brief[0].group_id]
    assert not any(one.text or one.parts for one in first.candidates)
    assert all(one.cut for one in first.candidates)
    for text in ("reward>0.5", "state:finished", "question", "dead:no", "id:g0"):
        assert parse(text).matches(first) == parse(text).matches(full), text
    assert client.waiting()[0].candidates == state.waiting()[0].candidates
    assert len(msgspec.json.encode(client)) < 0.6 * len(msgspec.json.encode(state))
    assert not any(one.brief for one in state.groups.values())


async def test_pages_and_events_between_them_give_the_state_of_the_proxy() -> None:
    proxy = FakeLink(many())

    class Slow(FakeLink):
        """A proxy in which things happen while an answer is on its way."""

        async def groups(self, ids: object) -> list[object]:
            found = copy.deepcopy(await proxy.groups(list(ids)))  # type: ignore[call-overload]
            if len(proxy.text_pages) == 2:  # these events reach the client before the answer
                changed = found[0].group_id
                publish(RequestReplayed(group_id=changed))
                publish(GroupLost(group_id=changed, cause="cut"))
                publish(*group_events(500))
                proxy.state.groups[changed].candidates[0].text = "later"
            return found

    from console.session.app_state import Session

    session = Session(link=Slow(), clock=Clock())
    session.state = decoded(proxy.state, 10)
    session.unread_texts.begin(briefs(session.state))

    def publish(*events: Event) -> None:
        for event in events:
            stamped = stamp(event, proxy.state.seq + 1)
            reduce(proxy.state, stamped)
            session.unread_texts.note(getattr(stamped, "group_id", ""))
            reduce(session.state, stamped)

    publish(GroupMarked(group_id="g0003", marked=True))  # of a group that is still brief
    await read_texts(session)
    assert proxy.text_pages[:2] == [TEXT_PAGE, TEXT_PAGE]
    assert sum(proxy.text_pages) == OLD - 10 + 1  # one group was asked for again
    assert session.unread_texts.waiting == 0
    assert session.state == proxy.state


async def test_a_new_snapshot_drops_the_answer_on_its_way() -> None:
    state = many()
    client, brief = decoded(state, 10), Unread[str](TEXT_PAGE)
    brief.begin(briefs(client))
    page = brief.next_page()
    assert not brief.due
    fresh = decoded(state, 10)
    brief.begin(briefs(fresh))
    assert not brief.take(page)
    brief.give_up(page)
    page = brief.next_page()
    assert brief.take(page) == set(page.keys)
    assert brief.waiting == OLD - 10 - TEXT_PAGE


async def test_groups_of_a_failed_request_keep_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    from console.session.app_state import Session

    monkeypatch.setattr("console.session.unread.RETRY_SECONDS", 0.0)
    link = FakeLink(many())
    session = Session(link=link, clock=Clock())
    session.state = decoded(link.state, 0)
    session.unread_texts.begin(briefs(session.state))
    link.broken = AjetError("down")
    await read_texts(session)
    assert session.unread_texts.due
    assert session.unread_texts.waiting == OLD
    link.mend()
    await read_texts(session)
    assert session.state == link.state
