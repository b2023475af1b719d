"""What is said of a group's rewards when they are fixed."""

import pytest

from core.state import Rating
from proxy.groups.seal import sealed_by_vote
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
    assert event is not None
    assert event.dead == cause
