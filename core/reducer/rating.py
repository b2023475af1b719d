"""Handlers of ratings by hand, which change a group and the figures of its rater."""

from collections.abc import Callable, Mapping
from typing import Any

from core.events import (
    GroupEdited,
    GroupEvent,
    GroupLeased,
    GroupRated,
    GroupSealed,
    RatingRepeated,
    RatingUndone,
)
from core.reducer.common import record_of
from core.scoring.agreement import only_top
from core.state import TEXT_CAP, Group, Lease, PartAgreement, RaterStats, Rating, State

RATER_CAP = 100
PART_CAP = 64


def _rated(state: State, group: Group, event: GroupRated) -> None:
    if group.rating is None:
        state.totals.rated += 1
    group.lease = None
    group.rating = record_of(Rating, event)


def _undone(state: State, group: Group, event: RatingUndone) -> None:
    if group.rating is not None:
        state.totals.rated -= 1
    group.rating = None


def _edited(state: State, group: Group, event: GroupEdited) -> None:
    group.edited = event.edited[:TEXT_CAP]
    group.edited_index = event.index if event.edited else None


def _leased(state: State, group: Group, event: GroupLeased) -> None:
    if event.until:
        old = group.lease
        renewed = old is not None and old.holder == event.holder and event.at < old.until
        since = old.since if old is not None and renewed else event.at
        group.lease = Lease(holder=event.holder, rater=event.rater, until=event.until, since=since)
    elif group.lease is not None and group.lease.holder == event.holder:
        group.lease = None


def _repeated(state: State, group: Group, event: RatingRepeated) -> None:
    group.repeated = True
    stats = _stats(state, event.rater)
    stats.repeats += 1
    stats.repeated += event.agrees


def _stats(state: State, rater: str) -> RaterStats:
    stats = state.raters.get(rater)
    if stats is None:
        stats = state.raters[rater] = RaterStats()
        while len(state.raters) > RATER_CAP:
            del state.raters[next(iter(state.raters))]
    return stats


def count_vote(state: State, group: Group, event: GroupSealed) -> None:
    """Count a sealed rating for its rater, and compare it with the automatic rewards."""
    rating = group.rating
    if event.source != "human" or rating is None:
        return
    stats = _stats(state, rating.rater)
    stats.votes += 1
    chosen = only_top({sent.index: sent.reward for sent in event.rewards})
    if chosen is None:
        return
    if rating.blind:
        stats.placed += 1
        stats.first += rating.shown[:1] == (chosen,)
        stats.first_chance += 1 / max(len(rating.shown), 1)
    elif rating.shown:
        return  # the rewards were shown beside the answers
    many = max(len(rating.shown or event.rewards), 1)
    judge = judged_best(group)
    if judge is not None:
        stats.judged += 1
        stats.agreed += judge == chosen
        stats.agreed_chance += 1 / many
    for name, best in _best_by_part(state, group).items():
        if name in stats.parts or len(stats.parts) < PART_CAP:
            part = stats.parts.setdefault(name, PartAgreement())
            part.judged += 1
            part.agreed += best == chosen
            part.chance += 1 / many


def _best_by_part(state: State, group: Group) -> dict[str, int]:
    """Return the candidate that each reward part puts first; parts without a single best are left
    out."""
    model = {one.name for one in state.rewards.parts}
    values: dict[str, dict[int, float]] = {}
    for one in group.candidates:
        for part in one.parts:
            if part.gate or part.weight or part.name in model:  # the others are only informative
                values.setdefault(part.name, {})[one.index] = part.value
    winners = {name: only_top(rewards) for name, rewards in values.items()}
    return {name: best for name, best in winners.items() if best is not None}


def judged_best(group: Group) -> int | None:
    """Return the candidate that the automatic rewards put first; None if several share it."""
    return only_top(
        {one.index: one.auto_reward for one in group.candidates if one.auto_reward is not None}
    )


RATING_HANDLERS: Mapping[type[GroupEvent], Callable[[State, Group, Any], None]] = {
    GroupRated: _rated,
    RatingUndone: _undone,
    GroupEdited: _edited,
    GroupLeased: _leased,
    RatingRepeated: _repeated,
}
