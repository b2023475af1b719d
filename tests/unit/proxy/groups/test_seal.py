"""When a group is sealed, and what is said of its rewards then."""

from itertools import product
from typing import Any

import pytest

from core.state import Rating
from proxy.groups.seal import (
    Decision,
    Drop,
    Seal,
    Situation,
    Wait,
    decide,
    sealed_by_vote,
    seals_at_once,
)
from tests.support.console import group_events, state_of


@pytest.mark.parametrize(
    ("scores", "damping", "cause"),
    [
        ((0.52, 0.5, 0.5, 0.5), 0.2, "almost equal rewards"),
        ((0.52, 0.5, 0.5, 0.5), 0.0, ""),
        ((0.9, 0.5, 0.5, 0.5), 0.2, ""),
        ((0.5, 0.5, 0.5, 0.5), 0.2, "equal rewards"),
    ],
)
def test_a_group_says_why_it_teaches_little_by_the_damping_of_its_engine(
    scores: tuple[float, ...], damping: float, cause: str
) -> None:
    events = group_events(1, damping=damping, until="AWAITING_RATING")
    group = state_of(*events).groups["g0001"]
    group.rating = Rating(rating="scores", scores=scores, rewards=scores)
    event = sealed_by_vote(group, {candidate.episode_uuid for candidate in group.candidates})
    assert event.dead == cause


CLOCK = 300.0


def at(now: float = 100.5, **changed: Any) -> Decision:
    """Scored at 100, window 3 s, a console attached, ROLLING, mode off; then the changes."""
    facts: dict[str, Any] = {
        "now": now,
        "mode": "off",
        "consoles": 1,
        "attended_until": 0.0,
        "rolling": True,
        "contended": False,
        "gone": False,
        "closing": False,
        "scored": True,
        "scored_at": 100.0,
        "clock": CLOCK,
        "window": 3.0,
        "fallback": "accept",
        "rated_at": None,
        "skip": False,
        "accepted": False,
    }
    return decide(Situation(**(facts | changed)))


def test_mode_off_keeps_a_window_open_only_while_a_console_is_attached() -> None:
    assert at() == Wait(103.0, 103.0, "accept", "window")
    assert at(103.0) == Seal("auto")
    assert at(consoles=0) == Seal("auto")
    assert at(rolling=False) == Seal("auto")
    assert at(closing=True) == Seal("auto")
    assert at(contended=True) == Seal("auto")
    assert at(window=0.0) == Seal("auto")


@pytest.mark.parametrize("name", ["rolling", "contended", "closing", "accepted", "over_half"])
def test_an_unattended_group_is_sealed_whatever_else_is_the_case(name: str) -> None:
    modes, consoles, flags = ("off", "answer_first", "hold"), (0, 1), (False, True)
    sealed = 0
    cases = product(modes, consoles, flags, flags, flags, flags)
    for mode, count, scored, rated, gone, other in cases:
        facts: dict[str, Any] = {
            "mode": mode, "consoles": count, "scored": scored, "gone": gone,
        }  # fmt: skip
        if seals_at_once(**facts, voted=rated):
            sealed += 1
            votes = {"rated_at": 100.2, "voted_at": 100.2} if rated else {}
            for now in (100.5, CLOCK + 1.0):
                assert at(now, **facts, **votes, **{name: other}) == Seal("auto")
    assert sealed == 2


def test_a_request_that_waits_for_episodes_does_not_end_a_rating() -> None:
    assert at(101.0, rated_at=100.6, contended=True) == Wait(103.0, 103.0, "accept", "window")
    assert at(mode="hold", contended=True) == Wait(CLOCK, CLOCK, "accept", "hold")
    assert at(scored=False, contended=True) == Wait(CLOCK, CLOCK, "abort", "abstained")


@pytest.mark.parametrize("mode", ["answer_first", "hold"])
def test_rating_modes_wait_until_the_clock_runs_out(mode: str) -> None:
    assert at(mode=mode) == Wait(CLOCK, CLOCK, "accept", mode)
    assert at(mode=mode, consoles=0, rolling=False) == Wait(CLOCK, CLOCK, "accept", mode)
    assert at(CLOCK, mode=mode) == Seal("auto", unrated=True)
    assert at(CLOCK, mode=mode, fallback="abort") == Drop("not rated in time")
    assert at(mode=mode, closing=True) == Seal("auto", unrated=True)


@pytest.mark.parametrize("mode", ["answer_first", "hold"])
def test_a_group_that_gives_way_is_sent_with_its_votes_else_with_the_fallback(mode: str) -> None:
    way: dict[str, Any] = {"mode": mode, "gives_way": True}
    assert at(**way) == Seal("auto", unrated=True)
    assert at(**way, fallback="abort") == Drop("not rated: a user waited")
    assert at(**way, rated_at=100.4) == Seal("human")
    assert at(**way, rated_at=100.4, disputed=True) == Seal("human")
    assert at(**way, voted_at=100.4) == Seal("human")
    assert at(**way, voted_at=100.4, skip=True) == Drop("skipped by the operator")
    unscored = at(**way, scored=False)
    assert unscored == Drop("unscored: a user waited for its episodes", unscored=True)


def test_a_rating_can_be_undone_for_a_while() -> None:
    assert at(101.0, rated_at=100.6) == Wait(103.0, 103.0, "accept", "window")
    assert at(103.0, rated_at=102.0) == Wait(104.0, 104.0, "accept", "window")
    assert at(104.0, rated_at=102.0) == Seal("human")
    assert at(102.1, rated_at=102.0, rolling=False) == Seal("human")
    assert at(201.0, mode="hold", rated_at=200.0) == Wait(203.0, 203.0, "accept", "hold")
    assert at(203.0, mode="hold", rated_at=200.0) == Seal("human")
    assert at(201.0, mode="hold", rated_at=200.0, accepted=True) == Seal("human")
    assert at(201.0, mode="hold", rated_at=200.0, closing=True) == Seal("human")
    assert at(CLOCK, mode="hold", rated_at=CLOCK - 0.1) == Seal("human")


def test_votes_that_replace_each_other_delay_sealing_for_a_bounded_time() -> None:
    first = {"first_rated_at": 200.0}
    for mode, most in (("hold", 209.0), ("answer_first", 209.0), ("off", 206.0)):
        for rated_at in (200.0, 205.5, 250.0, 400.0):
            decision = at(rated_at, mode=mode, rated_at=rated_at, **first)
            if rated_at >= most:
                assert decision == Seal("human")
            else:
                assert isinstance(decision, Wait)
                assert decision.until <= most
    assert at(200.5, mode="off", window=30.0, rated_at=200.5, scored_at=190.0, **first) == Wait(
        220.0, 220.0, "accept", "window"
    )


def test_a_skip_aborts_the_group() -> None:
    assert at(104.0, rated_at=100.0, skip=True) == Drop("skipped by the operator")
    assert isinstance(at(101.0, rated_at=100.0, skip=True), Wait)


def test_accepting_seals_the_group_at_once() -> None:
    assert at(accepted=True) == Seal("auto")
    assert at(accepted=True, mode="hold") == Seal("auto")


def test_an_unscored_group_waits_only_for_an_operator() -> None:
    assert at(scored=False) == Wait(CLOCK, CLOCK, "abort", "abstained")
    assert at(scored=False, rolling=False) == Wait(CLOCK, CLOCK, "abort", "abstained")
    assert at(scored=False, consoles=0) == Drop("unscored: no console is attached", unscored=True)
    waits = Wait(CLOCK, 105.0, "abort", "abstained")
    assert at(scored=False, consoles=0, attended_until=105.0) == waits
    assert at(CLOCK, scored=False) == Drop("unscored: nobody rated it in time", unscored=True)
    assert at(scored=False, closing=True) == Drop("unscored: the proxy stops", unscored=True)
    assert at(110.0, scored=False, rated_at=101.0) == Seal("human")
    assert at(scored=False, accepted=True) == Wait(CLOCK, CLOCK, "abort", "abstained")


def test_unscored_groups_leave_half_of_the_pool_to_others() -> None:
    full = Drop("unscored: open unscored groups hold half of the pool", unscored=True)
    for mode in ("off", "answer_first", "hold"):
        assert at(scored=False, mode=mode, over_half=True) == full
    assert at(103.5, scored=False, over_half=True, rated_at=100.0) == Seal("human")


def test_an_unscored_group_does_not_delay_the_weight_update() -> None:
    blocked: dict[str, Any] = {"rolling": False, "blocks_update": True}
    update = Drop("unscored: the weight update waits for its episodes", unscored=True)
    assert at(scored=False, **blocked) == update
    assert at(scored=False, mode="hold", **blocked) == Wait(CLOCK, CLOCK, "abort", "abstained")


def test_nothing_can_be_sent_once_the_engine_has_moved_on() -> None:
    for changed in ({}, {"accepted": True}, {"rated_at": 100.0}, {"scored": False}):
        assert at(gone=True, **changed) == Drop("lost: the engine left rolling")
