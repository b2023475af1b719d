"""A session: commands, log, alerts by the present votes, texts of older groups."""

import copy
import time
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from ajet_swarm.common.errors import AjetError
from console.models.alerts import current_alerts
from console.session.app_state import Session
from console.session.filters import parse
from console.session.history import TEXT_PAGE, Unread, read_texts
from console.session.logs import LogStore, LogTail
from console.session.logs import parse as parse_line
from core.events import (
    AlertRaised,
    GroupClosed,
    GroupLost,
    GroupMarked,
    GroupRated,
    RatingUndone,
    RequestReplayed,
)
from core.events.base import Event
from core.state import State, reduce
from core.state.brief import brief_groups
from tests.support.alerts import TWO_HOLD_UP, cause_of, ratings_hold_up, two_hold_up
from tests.support.console import Clock, FakeLink
from tests.support.sample import NOW, group_events, stamp, state_of


@pytest.mark.parametrize(
    ("name", "args", "words"),
    [
        ("group.rate", {"group_id": "g1", "rating": "nice"}, "nice"),
        ("no.such", {}, "no.such"),
        ("mock.start", {}, "this console started no process"),
        ("proxy.drain", {"x": 1}, "`x`"),
    ],
)
async def test_an_impossible_command_returns_a_message_and_raises_nothing(
    name: str, args: dict[str, Any], words: str
) -> None:
    outcome = await Session(link=FakeLink()).command(name, **args)
    assert not outcome.ok
    assert words in outcome.message


async def test_refusals_and_errors_become_outcomes() -> None:
    link = FakeLink()
    session = Session(link=link)
    link.refuse = AjetError("the engine is not OFFLINE", todo="Stop it first")
    outcome = await session.command("engine.start")
    assert (outcome.ok, outcome.message) == (False, "the engine is not OFFLINE. Stop it first")

    class Broken(FakeLink):
        async def command(self, name: str, args: Mapping[str, Any]) -> Any:
            raise RuntimeError("boom")

    outcome = await Session(link=Broken()).command("engine.start")
    assert not outcome.ok
    assert "boom" in outcome.message
    assert "no connection" in (await Session().command("engine.start")).message


def test_changed_keys_are_returned_once() -> None:
    session = Session()
    session.touch(["groups"])
    session.touch(["groups", "mock"])
    assert session.take_dirty() == {"groups", "mock"}
    assert session.take_dirty() == frozenset()


def test_the_log_is_bounded() -> None:
    store = LogStore(cap=3)
    for number in range(10):
        store.add("proxy", str(number), NOW)
    assert ([line.text for line in store.lines("proxy")], store.total) == (["7", "8", "9"], 10)


def test_time_and_level_are_parsed_off_a_log_line() -> None:
    at, level, text = parse_line("2026-11-21 03:29:28,612 WARNING engine: slow", 5.0)
    assert (level, text) == ("warning", "engine: slow")
    assert time.strftime("%H:%M:%S", time.localtime(at)) == "03:29:28"
    assert at % 1 == pytest.approx(0.612)
    assert parse_line("  File x", 5.0) == (5.0, "", "  File x")
    assert parse_line("2026-99-99 99:99:99 INFO x", 5.0) == (5.0, "", "2026-99-99 99:99:99 INFO x")


def test_a_log_tail_reads_new_lines_and_handles_rotation(tmp_path: Any) -> None:
    path = tmp_path / "proxy.log"
    tail = LogTail(path)
    assert tail.read() == []
    path.write_bytes(b"one\ntwo\nhal")
    assert tail.read() == ["one", "two"]
    with path.open("ab") as file:
        file.write(b"f\n\xff\n")
    assert tail.read() == ["half", "\ufffd"]
    path.rename(tmp_path / "proxy.log.1")
    path.write_bytes(b"new\n")
    assert tail.read() == ["new"]


def test_votes_and_ends_are_taken_off_the_alert_and_undone_votes_are_not() -> None:
    skip = GroupRated(group_id="g0002", rating="skip", rater="anna")
    for votes, words in enumerate(TWO_HOLD_UP):
        alerts = current_alerts(state_of(*two_hold_up(votes)))
        assert [cause_of(alert) for alert in alerts.values()] == ([words] if words else [])
    for more, groups in (
        ([skip], ("g0001",)),
        ([skip, RatingUndone(group_id="g0002")], ("g0001", "g0002")),
        ([GroupClosed(group_id="g0001", phase="ABORTED", cause="x")], ("g0002",)),
    ):
        assert current_alerts(state_of(*two_hold_up(), *more))["hold:embedded"].groups == groups


def test_other_alerts_and_those_of_earlier_versions_stay() -> None:
    older = AlertRaised(key="hold:gpu", cause="2 open ratings hold up the weight update")
    other = AlertRaised(key="hook", cause="it failed", groups=("g0001",))
    state = state_of(*two_hold_up(2), older, other)
    assert list(current_alerts(state)) == ["hold:gpu", "hook"]
    assert "hold:embedded" in state.alerts
    unknown = state_of(ratings_hold_up("gone"))
    assert current_alerts(unknown) == {}


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
    return [group.group_id for group in state.groups.values() if group.brief]


def test_a_brief_group_lacks_texts_and_parts_and_nothing_that_lists_or_counts_use() -> None:
    state = many()
    client = decoded(state, 10)
    brief = [group for group in client.groups.values() if group.brief]
    assert len(brief) == OLD - 10
    assert not client.groups["g0900"].brief  # it is open
    first, full = brief[0], state.groups[brief[0].group_id]
    assert not any(candidate.text or candidate.parts for candidate in first.candidates)
    assert all(candidate.cut for candidate in first.candidates)
    for text in ("reward>0.5", "state:finished", "question", "dead:no", "id:g0"):
        assert parse(text).matches(first) == parse(text).matches(full), text
    assert client.waiting()[0].candidates == state.waiting()[0].candidates
    assert len(msgspec.json.encode(client)) < 0.6 * len(msgspec.json.encode(state))
    assert not any(group.brief for group in state.groups.values())


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
    assert (session.unread_texts.waiting, session.state) == (0, proxy.state)


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
    assert (brief.take(page), brief.waiting) == (set(page.keys), OLD - 10 - TEXT_PAGE)


async def test_groups_of_a_failed_request_keep_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.session.history.RETRY_SECONDS", 0.0)
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


def test_a_traceback_has_the_level_of_an_error() -> None:
    store = LogStore()
    for text in ("INFO fine", "Traceback (most recent call last):", '  File "x"', "ValueError: no"):
        store.add("proxy", text, NOW)
    assert [line.level for line in store.lines()] == ["info", "error", "error", "error"]
    store.add("proxy", "INFO again", NOW)
    assert list(store.lines())[-1].level == "info"
