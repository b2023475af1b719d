"""Figures by global step: automatic rewards of all groups, and human ratings beside them."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from core.events import (
    CandidateScore,
    EngineChanged,
    Event,
    GroupRated,
    GroupScored,
    GroupSealed,
    ScoringAbstained,
)
from core.scoring.rating import RatingInput, rating_rewards
from core.state import StepStats
from tests.support.sample import group_events, state_of

AUTO = (0.2, 0.9, 0.4, 0.1)
MEAN = sum(AUTO) / 4


def rated(number: int, rating: RatingInput, step: int = 1) -> list[Event]:
    """A group with automatic rewards for which a human rating is sent."""
    rewards = [value or 0.0 for value in rating_rewards(rating, 4)]
    events: list[Event] = []
    for event in group_events(number, step=step, rewards=AUTO):
        if isinstance(event, GroupSealed):
            events.append(
                GroupRated(
                    group_id=event.group_id,
                    server=event.server,
                    rating=rating.kind,
                    order=rating.order,
                    scores=rating.scores,
                    rewards=tuple(rewards),
                )
            )
            events.append(human(event, rewards))
        else:
            events.append(event)
    return events


def human(event: GroupSealed, rewards: Sequence[float]) -> GroupSealed:
    sent = zip(event.rewards, rewards, strict=True)
    return replace(
        event, source="human", rewards=tuple(replace(one, reward=value) for one, value in sent)
    )


def stats_of(*events: Event) -> StepStats:
    state = state_of(EngineChanged(server="embedded", state="ROLLING", step=1), *events)
    return state.servers["embedded"].steps[-1]


@pytest.mark.parametrize(
    ("rating", "winner"),
    [
        (RatingInput("best", order=(1,)), 1.0),
        (RatingInput("best", order=(0,)), 0.0),
        (RatingInput("ranking", order=(0, 1, 2, 3)), 2 / 3),
        (RatingInput("scores", scores=(0.1, 0.8, 0.2, 0.0)), 0.8),
        (RatingInput("tie"), 0.5),
        (RatingInput("bad"), 0.0),
    ],
)
def test_a_ballot_leaves_the_automatic_series_as_it_is(rating: RatingInput, winner: float) -> None:
    stats = stats_of(*group_events(1, rewards=AUTO), *rated(2, rating))
    assert stats.auto == 8
    assert stats.auto_mean == pytest.approx(MEAN)
    assert (stats.by_hand, stats.hand) == (1, 1)
    assert stats.hand_mean == pytest.approx(winner)


def test_accepted_groups_are_automatic() -> None:
    stats = stats_of(*group_events(1, rewards=AUTO), *group_events(2, rewards=AUTO))
    assert (stats.auto, stats.by_hand, stats.hand) == (8, 0, 0)
    assert stats.auto_mean == stats.mean


def test_a_rescored_group_counts_with_its_newest_automatic_rewards() -> None:
    events = rated(1, RatingInput("best", order=(0,)))
    at = next(place for place, event in enumerate(events) if isinstance(event, GroupRated))
    scores = tuple(CandidateScore(index=index, reward=index / 4) for index in range(4))
    again = GroupScored(
        group_id="g0001", server="embedded", scores=scores, best=3, version="v2", seconds=0.1
    )
    stats = stats_of(*events[:at], again, *events[at:])
    assert stats.auto_mean == pytest.approx(0.375)
    assert stats.hand_mean == 0.0  # the winner is candidate 4 now


def test_equal_automatic_winners_count_as_their_mean() -> None:
    equal = [
        replace(
            event,
            scores=tuple(CandidateScore(index=at, reward=0.5) for at in range(4)),
        )
        if isinstance(event, GroupScored)
        else event
        for event in rated(1, RatingInput("best", order=(2,)))
    ]
    assert stats_of(*equal).hand_mean == 0.25


def test_without_automatic_rewards_a_rating_enters_no_series() -> None:
    events = [
        ScoringAbstained(group_id="g0001", server="embedded", part="hook", cause="None")
        if isinstance(event, GroupScored)
        else event
        for event in rated(1, RatingInput("best", order=(0,)))
    ]
    stats = stats_of(*events)
    assert (stats.auto, stats.by_hand, stats.hand) == (0, 1, 0)


def test_a_group_whose_scores_are_not_in_the_journal_counts_as_sent() -> None:
    events = [
        event for event in group_events(1, rewards=AUTO) if not isinstance(event, GroupScored)
    ]
    assert stats_of(*events).auto_mean == pytest.approx(MEAN)
