"""Which groups the rater gets: the queue, unsure ones, second votes; the pace of a session."""

import pytest

from console.screens.rate.ballot import Ballot, Vote
from console.screens.rate.model import (
    SETTLE_SECONDS,
    VOTES_BETWEEN,
    RateQueue,
    RatingFigures,
    RatingProgress,
    due_repeat,
    is_picked,
    is_unsure,
)
from console.screens.rate.text import queue_notes
from core.state import Lease, Rating, State
from tests.support.console import NOW, group_events, state_of
from tests.support.groups import group
from tests.support.ratings import queue_of, rated_state, waiting_state


def test_the_queue_is_ordered_by_clock_and_keeps_the_group_on_screen() -> None:
    state = waiting_state(1, 2, 3)
    queue = queue_of(state)
    queue.advance()
    assert queue.current == "g0001"
    state.groups["g0003"].until = NOW + 1
    assert not queue.advance()
    assert queue.current == "g0001"


def test_a_vote_moves_on_and_a_refusal_brings_the_group_back() -> None:
    state = waiting_state(1, 2)
    queue = queue_of(state)
    queue.advance()
    queue.record_sent(Ballot(state.groups["g0001"]), Vote("tie"))
    assert queue.advance()
    assert queue.current == "g0002"
    assert not queue.just_replaced
    queue.confirm("g0001", done=False)
    assert [one.group_id for one in queue.waiting()] == ["g0001", "g0002"]
    assert queue.last is None


def test_a_key_for_an_expired_group_does_not_rate_the_next_one() -> None:
    state, clock = waiting_state(1, 2), [NOW]
    queue = queue_of(state, lambda: clock[0])
    queue.advance()
    state.groups["g0001"].phase = "SUBMITTING"
    queue.advance()
    assert queue.current == "g0002"
    assert queue.just_replaced
    clock[0] += SETTLE_SECONDS + 0.01
    assert not queue.just_replaced


def test_an_undone_vote_brings_its_group_back_on_screen() -> None:
    state = waiting_state(1, 2)
    queue = queue_of(state)
    queue.advance()
    queue.record_sent(Ballot(state.groups["g0001"]), Vote("bad"))
    state.groups["g0001"].rating = Rating(rating="bad")
    queue.advance()
    queue.confirm("g0001", done=True)
    queue.undo(state.groups["g0001"])
    queue.advance()
    assert queue.current == "g0002"
    state.groups["g0001"].rating = None
    assert queue.advance()
    assert queue.current == "g0001"
    assert queue.ballot is not None


def test_unsure_is_a_small_margin_or_no_reward() -> None:
    assert is_unsure(group(rewards=(0.2, 0.9, 0.85, 0.1)))
    assert is_unsure(group(rewards=(0.5, 0.5, 0.5, 0.5)))
    assert not is_unsure(group(rewards=(0.2, 0.9, 0.4, 0.1)))
    nothing = group()
    nothing.abstained = "judge: away"
    assert is_unsure(nothing)


def test_unsure_groups_without_a_reward_come_first() -> None:
    state = state_of(
        *group_events(1, until="AWAITING_RATING"),
        *group_events(2, rewards=(0.5, 0.5, 0.5, 0.4), at=NOW + 1, until="AWAITING_RATING"),
        *group_events(3, at=NOW + 2, until="AWAITING_RATING"),
    )
    state.groups["g0003"].abstained = "judge: away"
    queue = queue_of(state)
    queue.only_unsure = True
    assert [one.group_id for one in queue.waiting()] == ["g0003", "g0002"]
    assert queue_notes(queue) == ["unsure only, 1 left out"]


def test_a_group_leased_by_another_console_is_skipped() -> None:
    state = state_of(*group_events(1, until="AWAITING_RATING"))
    clock = [NOW]
    queue = queue_of(state, lambda: clock[0])
    state.groups["g0001"].leases = [Lease(holder="other", rater="bob", until=NOW + 5)]
    assert queue.waiting() == []
    assert queue_notes(queue) == ["1 with bob"]
    clock[0] += 6
    assert len(queue.waiting()) == 1
    clock[0] = NOW
    state.groups["g0001"].leases = [Lease(holder=queue.session.holder, until=NOW + 5)]
    assert len(queue.waiting()) == 1


def test_the_requested_share_of_groups_gets_a_second_vote() -> None:
    share = sum(is_picked(f"g{number}", 0.05) for number in range(20_000)) / 20_000
    assert share == pytest.approx(0.05, abs=0.006)
    assert not is_picked("g", 0.0)
    assert is_picked("g", 1.0)


def test_a_second_vote_is_due_only_after_some_other_votes() -> None:
    assert due_repeat(rated_state(VOTES_BETWEEN), "anna", 1.0) is None
    state = rated_state(VOTES_BETWEEN + 2)
    result = due_repeat(state, "anna", 1.0)
    assert result is not None
    assert result.group_id == "g0001"
    assert due_repeat(state, "bob", 1.0) is None
    assert due_repeat(state, "anna", 0.0) is None
    following = due_repeat(state, "anna", 1.0, {"g0001"})
    assert following is not None
    assert following.group_id == "g0002"
    result.repeated = True
    assert due_repeat(state, "anna", 1.0) is following
    assert due_repeat(rated_state(VOTES_BETWEEN + 2, blind=False), "anna", 1.0) is None


def test_a_second_vote_is_requested_only_if_no_clock_is_short() -> None:
    def begun(clock: float) -> tuple[State, RateQueue]:
        state = rated_state(VOTES_BETWEEN + 1)
        waits = state_of(
            *group_events(91, until="AWAITING_RATING"), *group_events(92, until="AWAITING_RATING")
        )
        state.groups.update(waits.groups)
        for name in ("g0091", "g0092"):
            state.groups[name].until = NOW + clock
        queue = queue_of(state, rater="anna", repeats=1.0)
        queue.advance()
        assert queue.current == "g0091"
        assert not queue.second
        queue.record_sent(Ballot(state.groups["g0091"]), Vote("tie"))
        queue.advance()
        return state, queue

    state, queue = begun(30.0)
    assert (queue.current, queue.second) == ("g0092", False)

    state, queue = begun(300.0)
    assert (queue.current, queue.second) == ("g0001", True)
    assert queue.last is not None
    assert queue.last.ballot.group_id == "g0091"
    assert not queue.just_replaced
    assert not queue.advance()
    queue.record_sent(Ballot(state.groups["g0001"], second=True), Vote("best", (0,)))
    assert queue.last.ballot.group_id == "g0091"  # undo is about the vote that is sent
    queue.advance()
    assert (queue.current, queue.second) == ("g0092", False)

    state, queue = begun(300.0)
    state.groups["g0092"].until = NOW + 10  # it hurries: the second vote makes way
    assert queue.advance()
    assert (queue.current, queue.second) == ("g0092", False)
    assert queue.just_replaced


def test_votes_are_counted_with_their_pace() -> None:
    progress = RatingProgress()
    assert progress.figures() == RatingFigures(0)
    for number in range(4):
        progress.record(f"g{number}", 100.0 + 15 * number)
    assert progress.figures() == RatingFigures(4, pytest.approx(4.0))


def test_a_long_break_changes_the_pace_by_a_bounded_amount() -> None:
    progress = RatingProgress()
    for at in (0.0, 10.0, 20.0, 3600.0):
        progress.record(f"g{at}", at)
    assert progress.figures().per_minute == pytest.approx(60 * 3 / (10 + 10 + 60))


def test_the_pace_is_computed_from_the_newest_votes() -> None:
    progress = RatingProgress()
    for number in range(30):
        progress.record(f"slow{number}", 30.0 * number)
    for number in range(20):
        progress.record(f"fast{number}", 1000.0 + 6.0 * number)
    assert progress.figures() == RatingFigures(50, pytest.approx(10.0))


def test_an_undone_vote_does_not_count_and_a_replaced_one_counts_once() -> None:
    progress = RatingProgress()
    progress.record("a", 1.0)
    progress.record("b", 2.0)
    progress.record("a", 3.0)
    progress.undone("b")
    progress.undone("never")
    assert progress.figures() == RatingFigures(1)


def test_a_skip_is_counted_apart_and_has_no_part_in_the_pace() -> None:
    progress = RatingProgress()
    progress.record("a", 0.0)
    progress.record("b", 0.0, skipped=True)
    progress.record("c", 10.0)
    assert progress.figures() == RatingFigures(2, pytest.approx(6.0), skipped=1)
    assert sum(progress.by_minute(10.0, 5)) == 2
    progress.record("c", 0.0, skipped=True)
    assert progress.figures() == RatingFigures(1, skipped=2)
    progress.record("b", 20.0)
    progress.undone("c")
    assert progress.figures() == RatingFigures(2, pytest.approx(3.0))


def test_a_group_that_is_put_back_comes_last_and_stays_in_the_queue() -> None:
    queue = queue_of(waiting_state(1, 2, 3))
    shown = []
    for _ in range(4):
        queue.advance()
        shown.append(queue.current)
        assert queue.group is not None
        queue.put_back(queue.group)
    assert shown == ["g0001", "g0002", "g0003", "g0001"]
    assert [group.group_id for group in queue.waiting()] == ["g0002", "g0003", "g0001"]
    assert queue.progress.figures().skipped == 3
