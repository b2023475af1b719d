"""The inbox: which groups enter it, and how late votes count."""

import msgspec
import pytest
from msgspec.structs import replace

import core.state.inbox
from core.events import (
    EngineChanged,
    Event,
    GroupClosed,
    Part,
    RatingAwaited,
    RatingUndone,
    VoteWithdrawn,
)
from core.events.causes import AbortedByHand
from core.scoring.agreement import opposition
from core.state import State, reduce
from core.state.inbox import InboxItem
from tests.support.ratings import late, missed, sent
from tests.support.sample import NOW, group_events, stamp, state_of

PLACE = {"server": "embedded", "group_id": "g0001"}
ROLLING = EngineChanged(server="embedded", state="ROLLING", step=1)


def changed(events: list[Event], kind: type[Event], **fields: object) -> list[Event]:
    return [replace(event, **fields) if isinstance(event, kind) else event for event in events]


@pytest.mark.parametrize(
    ("events", "enters"),
    [
        (missed(1), True),
        (missed(1, sent=False), True),
        (group_events(1), False),  # mode off: nothing waited for a vote
        (group_events(1, until="AWAITING_RATING"), False),
        (sent(1), False),
        (changed(missed(1, sent=False), RatingAwaited, why="abstained"), True),
        (changed(missed(1, sent=False), RatingAwaited, why="window"), False),
        (changed(missed(1, sent=False), GroupClosed, cause_kind=AbortedByHand.kind), False),
        (changed(sent(1), GroupClosed, phase="ABORTED"), False),
    ],
)
def test_groups_that_ended_before_their_vote_enter(events: list[Event], enters: bool) -> None:
    assert list(state_of(*events).inbox) == ["g0001"][: int(enters)]


def test_an_item_says_what_a_list_needs() -> None:
    item = state_of(*missed(1, query="Why?" * 100)).inbox["g0001"]
    assert item.query == ("Why?" * 100)[:120]
    assert (item.sent, item.n, item.answered, item.overlap) == (True, 4, (0, 1, 2, 3), 1)
    assert item.rewards == (0.2, 0.9, 0.4, 0.1)
    assert item.parts == {"length": 1}
    assert not state_of(*missed(1, sent=False)).inbox["g0001"].sent


def test_an_item_has_at_most_a_kilobyte() -> None:
    events = missed(1, query="é" * 500, rewards=[number / 7 for number in range(8)])
    item = state_of(*events).inbox["g0001"]
    scores = tuple(number / 9 for number in range(8))
    (vote,) = late(1, 0, overlap=2)
    full = replace(vote, rating="scores", order=(), scores=scores, rewards=scores, note="n" * 900)
    state = state_of(*events, full)
    assert len(msgspec.json.encode(state.inbox["g0001"])) <= 1_024
    assert len(msgspec.json.encode(item)) <= 700


def test_late_votes_count_for_their_rater_and_the_curve_and_leave_the_rewards() -> None:
    state = state_of(ROLLING, *missed(1), *late(1, 1))
    group, stats = state.groups["g0001"], state.raters["ada"]
    assert (stats.votes, stats.judged, stats.agreed, stats.cast) == (1, 1, 1, 1)
    assert stats.parts["length"].agreed == 1
    assert [candidate.reward for candidate in group.candidates] == [0.2, 0.9, 0.4, 0.1]
    assert (group.source, group.phase, group.is_rated) == ("auto", "DONE", True)
    assert state.servers["embedded"].steps[0].hand_mean == 1.0
    assert state.inbox["g0001"].complete


def test_another_vote_or_none_takes_back_what_was_counted() -> None:
    state = state_of(ROLLING, *missed(1), *late(1, 1), *late(1, 0))
    stats = state.raters["ada"]
    assert (stats.votes, stats.judged, stats.agreed, stats.cast) == (1, 1, 0, 1)
    assert (stats.placed, stats.first) == (1, 1)
    steps = state.servers["embedded"].steps
    assert (steps[0].hand, steps[0].hand_mean) == (1, 0.0)
    for event in (RatingUndone(**PLACE, rater="ada"), VoteWithdrawn(**PLACE, rater="ada")):
        reduce(state, stamp(event, state.seq + 1))
    stats = state.raters["ada"]
    assert (stats.votes, stats.judged, stats.placed, stats.first_chance, stats.cast) == (0,) * 5
    assert (steps[0].hand, state.totals.rated) == (0, 0)
    assert state.groups["g0001"].rating is None
    assert not state.inbox["g0001"].votes


def test_two_raters_count_when_both_have_voted() -> None:
    events = missed(1, overlap=2)
    state = state_of(*events, *late(1, 1, overlap=2))
    assert state.raters["ada"].votes == 0
    reduce(state, stamp(late(1, 0, "bob", overlap=2)[0], state.seq + 1))
    assert [(stats.votes, stats.compared, stats.same) for stats in state.raters.values()] == [
        (1, 1, 0),
        (1, 1, 0),
    ]


def test_votes_on_a_group_that_has_left_the_state_count_too() -> None:
    state = state_of(*missed(1))
    state.groups.clear()
    for event in late(1, 1):
        assert "group:g0001" in reduce(state, stamp(event, state.seq + 1))
    assert (state.raters["ada"].agreed, state.raters["ada"].cast) == (1, 1)


def test_the_oldest_with_its_vote_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core.state.inbox, "INBOX_CAP", 3)
    events: list[Event] = []
    for number in range(1, 6):
        events += missed(number, at=NOW + number)
        events += late(2, 0) if number == 2 else []
    assert list(state_of(*events).inbox) == ["g0003", "g0004", "g0005"]
    assert list(state_of(*events[: -2 * len(missed(5))]).inbox) == ["g0001", "g0002", "g0003"]
    assert list(state_of(*events[: -len(missed(5))]).inbox) == ["g0001", "g0003", "g0004"]


def test_the_inbox_survives_its_json() -> None:
    state = state_of(*missed(1), *late(1, 1))
    again = msgspec.json.decode(msgspec.json.encode(state), type=State)
    assert again.inbox == state.inbox
    assert isinstance(again.inbox["g0001"], InboxItem)


@pytest.mark.parametrize(
    ("judges", "share"),
    [
        ([], 0.0),
        ([{0: 1.0, 1: 0.0}], 0.0),
        ([{0: 1.0, 1: 0.0}, {0: 0.9, 1: 0.1}], 0.0),
        ([{0: 1.0, 1: 0.0}, {0: 0.1, 1: 0.9}], 1.0),
        ([{0: 1.0, 1: 0.0}, {0: 0.5, 1: 0.5}], 0.0),
        ([{0: 3.0, 1: 2.0, 2: 1.0}, {0: 3.0, 1: 1.0, 2: 2.0}], 1 / 3),
        ([{0: 1.0, 1: 0.0}, {0: 0.1, 1: 0.9}, {0: 1.0, 1: 0.0}], 2 / 3),
    ],
)
def test_opposition(judges: list[dict[int, float]], share: float) -> None:
    assert opposition(judges) == pytest.approx(share)


def test_parts_that_oppose_each_other_are_a_disagreement() -> None:
    events = missed(1)
    turned = [
        replace(
            event,
            scores=tuple(
                replace(
                    score,
                    parts=(*score.parts, Part(name="judge", value=1.0 - score.reward)),
                )
                for score in event.scores
            ),
        )
        if event.kind == "group_scored"
        else event
        for event in events
    ]
    assert state_of(*events).inbox["g0001"].opposition == 0.0
    assert state_of(*turned).inbox["g0001"].opposition == pytest.approx(1 / 3)
