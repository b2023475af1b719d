"""How ratings by hand change a group and what is known of who gave them."""

from collections.abc import Callable, Mapping
from typing import Any

from core.agreement import only_top
from core.events import (
    GroupEdited,
    GroupEvent,
    GroupLeased,
    GroupRated,
    GroupSealed,
    RatingRepeated,
    RatingUndone,
)
from core.rater import Lease, RaterStats
from core.state import TEXT_CAP, Group, Rating, State

RATER_CAP = 100


def _rated(state: State, group: Group, event: GroupRated) -> None:
    if group.rating is None:
        state.totals.rated += 1
    group.lease = None
    group.rating = Rating(
        rating=event.rating,
        order=event.order,
        scores=event.scores,
        rewards=event.rewards,
        rater=event.rater,
        note=event.note,
        at=event.at,
        tags=event.tags,
        blind=event.blind,
        shown=event.shown,
        looked=event.looked,
    )


def _undone(state: State, group: Group, event: RatingUndone) -> None:
    if group.rating is not None:
        state.totals.rated -= 1
    group.rating = None


def _edited(state: State, group: Group, event: GroupEdited) -> None:
    group.edited = event.edited[:TEXT_CAP]
    group.edited_index = event.index if event.edited else None


def _leased(state: State, group: Group, event: GroupLeased) -> None:
    if event.until:
        group.lease = Lease(holder=event.holder, rater=event.rater, until=event.until)
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
    """A rating was sealed: it counts for its rater, beside what the automatic rewards say."""
    rating = group.rating
    if event.source != "human" or rating is None:
        return
    stats = _stats(state, rating.rater)
    stats.votes += 1
    chosen = only_top({sent.index: sent.reward for sent in event.rewards})
    if not rating.blind or chosen is None:
        return
    many = max(len(rating.shown), 1)
    stats.placed += 1
    stats.first += rating.shown[:1] == (chosen,)
    stats.first_chance += 1 / many
    judge = judged_best(group)
    if judge is not None:
        stats.judged += 1
        stats.agreed += judge == chosen
        stats.agreed_chance += 1 / many


def judged_best(group: Group) -> int | None:
    """The candidate the automatic rewards put first; None when none stands out."""
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
