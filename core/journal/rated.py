"""Which groups count as rated, which are pruned last: those that a person rated, edited, marked or
noted. A skip is no rating, and neither is a vote that was withdrawn.

The column `groups.rated` is 1 for such a group and 0 for another one. It is null where only the
events of the group show it: after a skip or a withdrawn vote, which may follow something that
counts.
"""

from collections.abc import Iterable

from core.events import (
    AnyEvent,
    DisagreementSettled,
    GroupEdited,
    GroupEvent,
    GroupMarked,
    GroupNoted,
    GroupRated,
    RatingUndone,
    VoteCast,
    VoteWithdrawn,
)
from core.events.rating import VoteEvent
from core.reducer import apply
from core.state import State

_REMARKS = (GroupEdited, GroupMarked, GroupNoted)
_WITHDRAWN = (RatingUndone, VoteWithdrawn)
CHANGES_RATED = (GroupRated, VoteCast, DisagreementSettled, *_REMARKS, *_WITHDRAWN)
"""Events after which `groups.rated` has another value, see `rated_after`."""


def rated_after(event: GroupEvent) -> int | None:
    """Return `groups.rated` after one of `CHANGES_RATED`."""
    skips = isinstance(event, VoteEvent) and event.is_skip
    return None if skips or isinstance(event, _WITHDRAWN) else 1


def is_rated(events: Iterable[AnyEvent]) -> bool:
    """Return whether a group counts as rated.

    Args:
        events: All events of the group, in order.
    """
    state = State()
    remarked = False
    for event in events:
        apply(state, event)
        remarked = remarked or isinstance(event, _REMARKS)
    votes = [
        vote
        for group in state.groups.values()
        for vote in (group.rating, group.settled, *group.votes)
    ]
    return remarked or any(vote is not None and not vote.is_skip for vote in votes)
