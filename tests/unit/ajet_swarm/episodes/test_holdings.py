"""Holdings of claims, and the clocks that decide about them."""

import pytest

from ajet_swarm.episodes.holdings import REMEMBERED, Holding, Holdings, may_be_taken
from ajet_swarm.runtime import Clock


@pytest.mark.parametrize(
    ("monotonic", "wall", "doubtful"),
    [
        pytest.param(0.0, 0.0, False, id="at once"),
        pytest.param(239.0, 239.0, False, id="in time"),
        pytest.param(240.0, 240.0, True, id="late"),
        pytest.param(1.0, 3600.0, True, id="after a suspend"),
        pytest.param(240.0, -3600.0, True, id="late, set back"),
        pytest.param(1.0, -3600.0, False, id="set back"),
    ],
)
def test_an_episode_may_be_taken_back_by_either_clock(
    monotonic: float, wall: float, doubtful: bool
) -> None:
    clocks = {"monotonic": 10.0, "wall": 1e9}
    clock = Clock(wall=lambda: clocks["wall"], monotonic=lambda: clocks["monotonic"])
    holdings = Holdings(clock, lambda: None)
    holding = holdings.add(Holding("uuid", 240.0, 480.0, True, 10.0, 1e9))
    clocks["monotonic"] += monotonic
    clocks["wall"] += wall
    assert may_be_taken(holding, holdings.age(holding)) is doubtful


def test_a_call_postpones_the_time_at_which_an_episode_may_be_taken_back() -> None:
    holding = Holding("uuid", 240.0, active_after=100.0)
    assert not may_be_taken(holding, 339.0)
    assert may_be_taken(holding, 340.0)


def test_a_later_claim_supersedes_a_holding_and_is_not_forgotten_with_it() -> None:
    now = [0.0]
    holdings = Holdings(Clock(wall=lambda: now[0], monotonic=lambda: now[0]), lambda: None)
    first, second = Holding("uuid", 1.0, 2.0), Holding("uuid", 1.0, 2.0)
    holdings.add(first)
    holdings.add(second)
    assert (first.superseded, second.superseded) == (True, False)
    holdings.forget(first)
    assert holdings.by_uuid == {"uuid": second}
    second.left_by = "end"
    now[0] = 3.0 + REMEMBERED
    holdings.forget_expired()
    assert holdings.known() == {"uuid"}, "its end is in flight"
    second.left_by = "abort"
    assert not holdings.known()
