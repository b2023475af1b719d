"""Records of claims, and the clocks that decide about them."""

import pytest

from ajet_swarm.episodes.deadlines import EpisodeDeadlines
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
    deadlines = EpisodeDeadlines(
        Clock(wall=lambda: clocks["wall"], monotonic=lambda: clocks["monotonic"])
    )
    times = deadlines.add("uuid", 240.0, 480.0)
    clocks["monotonic"] += monotonic
    clocks["wall"] += wall
    assert deadlines.may_be_taken(times) is doubtful
    assert deadlines.may_be_taken(None)


def test_a_later_claim_replaces_a_record_and_is_not_dropped_with_it() -> None:
    deadlines = EpisodeDeadlines(Clock(monotonic=lambda: 0.0))
    first = deadlines.add("uuid", 1.0, 2.0)
    second = deadlines.add("uuid", 1.0, 2.0)
    deadlines.drop("uuid", first)
    assert deadlines.get("uuid") is second
    second.ending = True
    assert deadlines.ending() == deadlines.uuids() == {"uuid"}
    deadlines.drop("uuid", second)
    assert len(deadlines) == 0
