"""Which groups the rater gets: unsure ones, repeated ones, those no other rater has."""

import pytest
from msgspec.structs import replace

from console.models.advice import advice_context
from console.models.alerts import alerts_by_urgency, stall_words
from console.models.ballot import Ballot, Vote, reshuffled, seed, shown_order
from console.models.rate_queue import VOTES_BETWEEN, RateQueue, due_repeat, is_picked, is_unsure
from console.session.app_state import Session
from console.views.agreement import disagreements, row_text, summary_lines
from console.views.rating import (
    banner_line,
    clock_line,
    queue_notes,
    second_words,
    share_words,
)
from core.events import (
    AlertRaised,
    EngineChanged,
    Event,
    GroupClosed,
    GroupRated,
    GroupSealed,
    MockRetried,
    MockStarted,
    RatingAwaited,
    RatingUndone,
    ScoringAbstained,
    SentReward,
)
from core.events.mock import WAITS_FOR_VOTES
from core.reducer import reduce
from core.state import Lease, RaterStats, State
from tests.support.alerts import two_hold_up
from tests.support.console import NOW, group_events, state_of
from tests.support.groups import group, text_of


def sent(number: int, best: int = 0, *, blind: bool = True, rater: str = "anna") -> list[Event]:
    """A group that was rated at its number's second and sent."""
    whole = group_events(number, at=NOW - 300 + number)
    rewards = tuple(float(index == best) for index in range(4))
    shown = shown_order(f"g{number:04}", range(4), blind=True)
    rated = GroupRated(
        server="embedded",
        group_id=f"g{number:04}",
        rating="best",
        order=(best,),
        rewards=rewards,
        rater=rater,
        blind=blind,
        shown=shown,
        tags=("style",),
        at=NOW - 290 + number,
    )
    sealed = GroupSealed(
        server="embedded",
        group_id=f"g{number:04}",
        rewards=tuple(
            SentReward(index=index, episode_uuid="e", reward=reward, advantage=0.0)
            for index, reward in enumerate(rewards)
        ),
        best=best,
        source="human",
    )
    at = next(place for place, event in enumerate(whole) if isinstance(event, GroupSealed))
    return [*whole[:at], rated, sealed, *whole[at + 1 :]]


def rated_state(count: int, **more: object) -> State:
    return state_of(*(event for number in range(1, count + 1) for event in sent(number, **more)))  # type: ignore[arg-type]  # passed through


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
    queue = RateQueue()
    queue.only_unsure = True
    assert [one.group_id for one in queue.waiting(state, NOW)] == ["g0003", "g0002"]
    assert queue_notes(queue, state, NOW, 2) == ["unsure only, 1 left out"]


def test_a_group_leased_by_another_console_is_skipped() -> None:
    state = state_of(*group_events(1, until="AWAITING_RATING"))
    queue = RateQueue()
    queue.holder = "me"
    state.groups["g0001"].leases = [Lease(holder="other", rater="bob", until=NOW + 5)]
    assert queue.waiting(state, NOW) == []
    assert queue_notes(queue, state, NOW, 0) == ["1 with bob"]
    assert len(queue.waiting(state, NOW + 6)) == 1
    state.groups["g0001"].leases = [Lease(holder="me", until=NOW + 5)]
    assert len(queue.waiting(state, NOW)) == 1


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


def test_a_second_vote_is_reshuffled_and_sends_no_reward() -> None:
    for number in range(1, 200):
        name, order = reshuffled(f"g{number:04}", range(4))
        assert sorted(order) == [0, 1, 2, 3]
        assert order != shown_order(f"g{number:04}", range(4), blind=True)
        assert name != f"g{number:04}"
    assert reshuffled("g", [0])[1] == (0,)
    ballot = Ballot(rated_state(1).groups["g0001"], second=True)
    ballot.digit(1)
    assert "Enter records it" in ballot.meaning()
    attention = ballot.attention(NOW)
    assert attention["blind"]
    assert attention["seed"] != seed("g0001")


def test_a_second_vote_is_requested_only_if_no_clock_is_short() -> None:
    def begun(clock: float) -> tuple[State, RateQueue]:
        state = rated_state(VOTES_BETWEEN + 1)
        waits = state_of(
            *group_events(91, until="AWAITING_RATING"), *group_events(92, until="AWAITING_RATING")
        )
        state.groups.update(waits.groups)
        for name in ("g0091", "g0092"):
            state.groups[name].until = NOW + clock
        queue = RateQueue()
        queue.rater, queue.share = "anna", 1.0
        queue.update(queue.waiting(state, NOW), state, NOW)
        assert queue.current == "g0091"
        assert not queue.second
        queue.record_sent(Ballot(state.groups["g0091"]), Vote("tie"), NOW)
        queue.update(queue.waiting(state, NOW), state, NOW)
        return state, queue

    state, queue = begun(30.0)
    assert (queue.current, queue.second) == ("g0092", False)

    state, queue = begun(300.0)
    assert (queue.current, queue.second) == ("g0001", True)
    assert queue.last is not None
    assert queue.last.group_id == "g0091"
    assert not queue.just_replaced(NOW)
    assert not queue.update(queue.waiting(state, NOW), state, NOW)
    queue.record_sent(Ballot(state.groups["g0001"], second=True), Vote("best", (0,)), NOW)
    assert queue.last.group_id == "g0091"  # undo is about the vote that is sent
    queue.update(queue.waiting(state, NOW), state, NOW)
    assert (queue.current, queue.second) == ("g0092", False)

    state, queue = begun(300.0)
    state.groups["g0092"].until = NOW + 10  # it hurries: the second vote makes way
    assert queue.update(queue.waiting(state, NOW), state, NOW)
    assert (queue.current, queue.second) == ("g0092", False)
    assert queue.just_replaced(NOW)


def test_agreement_is_shown_with_number_and_interval() -> None:
    assert share_words(31, 42) == "31 of 42, 74 % (59-85 %)"
    stats = RaterStats(
        votes=50, placed=44, first=14, first_chance=11.0, judged=42, agreed=31, agreed_chance=10.5
    )
    result = text_of(summary_lines(stats))
    assert "31 of 42, 74 % (59-85 %)" in result
    assert "by chance 25 %" in result
    assert "no second vote yet" in result
    assert "have not sent a vote" in text_of(summary_lines(None))
    stats.repeats, stats.repeated = 5, 4
    assert "4 of 5, 80 %" in second_words("the same as before", stats)


def test_disagreements_are_the_raters_own_newest_first() -> None:
    state = state_of(
        *sent(1, best=0), *sent(2, best=1), *sent(3, best=3), *sent(4, best=0, rater="bob")
    )
    result = disagreements(state, "anna")
    assert [one.group_id for one in result] == ["g0003", "g0001"]
    row = row_text(result[0], 100)
    assert "you #4  rewards #2 (0.90)" in row
    assert row.endswith("[style]")


def test_the_banner_names_the_stall_and_the_keys_that_end_it() -> None:
    held = AlertRaised(key="hold:embedded", cause="2 open ratings hold up the weight update")
    state = state_of(held, EngineChanged(server="embedded", state="ROLLING_POST", step=1))
    result = text_of([banner_line(state, NOW, 80)])
    assert "2 open ratings hold up the weight update" in result
    assert "A accepts all  5 h, larger batch" in result
    wide = text_of([banner_line(state, NOW, 120)])
    assert "A accepts all automatic rewards  X aborts them  5 h, larger batch" in wide
    whole = text_of([banner_line(state, NOW, 160)])
    assert "A accepts all automatic rewards  X aborts them  5 h or a larger" in whole
    narrow = text_of([banner_line(state, NOW, 60)])
    assert "A accepts all  5 h, larger batch" in narrow
    actual = text_of([banner_line(state, NOW, 80, context=advice_context(read_only=True))])
    assert "hold up the weight update" in actual
    assert "aborts" not in actual
    assert banner_line(state_of(), NOW, 80) == ()


def test_the_rater_sees_that_a_user_waits_and_which_groups_were_sent_unrated() -> None:
    sent = [
        event if not isinstance(event, GroupSealed) else replace(event, unrated=True)
        for event in group_events(1, at=NOW - 9, until="SUBMITTING")
    ]
    awaited = RatingAwaited(
        group_id="g0002", until=NOW + 90, fallback="accept", why="answer_first", spared=NOW + 7
    )
    state = state_of(*sent, *group_events(2, at=NOW, until="SCORING"), awaited)
    line = text_of([clock_line(state.groups["g0002"], NOW, 80)])
    assert "a user waited: this group may be sent unrated in 0:07" in line
    assert "automatic reward" in text_of([clock_line(state.groups["g0002"], NOW + 7, 80)])
    text = "no user waits for you: 1 group was sent unrated in 1 min  5 e larger batch"
    assert text in text_of([banner_line(state, NOW, 80)])
    assert banner_line(state, NOW + 60, 80) == ()
    queue = RateQueue()
    queue.show(state.groups["g0001"], NOW)
    queue.update(queue.waiting(state, NOW), state, NOW)
    assert queue.message == "The group that was here was sent unrated"
    assert queue_notes(queue, state, NOW, 1) == []
    reduce(state, MockStarted(mock_id="m", dataset="d", target="t", total=2))
    reduce(state, MockRetried(mock_id="m", retries=0, waiting=WAITS_FOR_VOTES))
    assert queue_notes(queue, state, NOW, 1) == ["the mock user waits"]


def test_the_banner_offers_rescoring_if_no_group_has_an_automatic_reward() -> None:
    held = AlertRaised(key="hold:embedded", cause="1 open rating holds up the weight update")
    rolling = EngineChanged(server="embedded", state="ROLLING_POST", step=1)
    unscored = [
        *group_events(1, at=NOW, until="SCORING")[:-1],
        ScoringAbstained(group_id="g0001", part="hook", cause="returned None", at=NOW),
        RatingAwaited(group_id="g0001", until=NOW + 60, fallback="abort", why="abstained", at=NOW),
    ]
    result = text_of([banner_line(state_of(*unscored, held, rolling), NOW, 80)])
    assert "S re-scores a group  5 h, larger batch" in result
    assert "accepts all" not in result


def test_a_vote_ends_a_stall_before_the_proxy_looks_again() -> None:
    events = two_hold_up()

    def shown() -> tuple[str, list[str]]:
        session = Session(clock=lambda: NOW)
        session.state = state_of(*events)
        return stall_words(session.state, NOW), [one.cause for one in alerts_by_urgency(session)]

    two = "2 open ratings hold up the weight update"
    assert shown() == (two, [two])
    events.append(GroupRated(group_id="g0001", rating="tie", rewards=(0.5,) * 4, rater="anna"))
    one = "1 open rating holds up the weight update"
    assert shown() == (one, [one])
    events.append(GroupRated(group_id="g0002", rating="skip", rater="anna"))
    assert shown() == ("", [])
    events.append(RatingUndone(group_id="g0002"))
    assert shown() == (one, [one])
    events.append(GroupClosed(group_id="g0002", phase="ABORTED", cause="x"))
    assert shown() == ("", [])


def test_a_user_counts_as_stalled_only_after_a_while() -> None:
    waits = group_events(1, at=NOW, until="CLAIMING")
    held = AlertRaised(key="hold:embedded", cause="1 open rating holds up 1 waiting user")
    state = state_of(*waits, held)
    assert banner_line(state, NOW + 1, 80) == ()
    assert "1 waiting user" in text_of([banner_line(state, NOW + 5, 80)])


def test_a_stall_is_reported_for_waiting_answers_and_for_missing_episodes() -> None:
    def waits(number: int, why: str, until: str = "SCORING") -> list[Event]:
        awaited = RatingAwaited(
            group_id=f"g{number:04}", until=NOW + 60, fallback="accept", why=why, at=NOW
        )
        before = group_events(number, at=NOW - 9, until=until)
        stored = before if until != "SCORING" else before[:-1]  # no user was answered yet
        return [*stored, awaited]

    window = state_of(*waits(1, "window"), *waits(2, "answer_first", "AWAITING_RATING"))
    assert stall_words(window, NOW + 30) == ""
    hold = state_of(*waits(1, "hold"), *waits(2, "hold"), *waits(3, "window"))
    assert stall_words(hold, NOW + 30) == "2 requests wait for your rating"
    assert stall_words(hold, NOW - 2) == ""
    cause = "1 open rating holds up 1 waiting user"
    held = AlertRaised(key="hold:embedded", cause=cause)
    claiming = group_events(4, at=NOW, until="CLAIMING")
    assert stall_words(state_of(*waits(1, "hold"), *claiming, held), NOW + 30) == cause
