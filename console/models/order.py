"""The orders in which the list of groups can be sorted."""

from collections.abc import Callable
from dataclasses import dataclass

from console.session.group_facts import known_rewards, spread_of
from core.state import Group


@dataclass(frozen=True, slots=True)
class SortOrder:
    """One order; groups without a value come last in both directions."""

    key: str
    title: str
    column: str
    """Column whose title carries the sign."""
    read: Callable[[Group, float], float | None]
    """Returns the value of a group now."""


def _reward(group: Group, now: float) -> float | None:
    return max((value for value in known_rewards(group) if value is not None), default=None)


def _waited(group: Group, now: float) -> float | None:
    if group.waited is not None:
        return group.waited
    return max(0.0, now - group.opened_at) if group.open else None


def took(group: Group, now: float) -> float | None:
    """Return the seconds from the request to the last reward; to now while it is open."""
    if group.closed_at is not None:
        return max(0.0, group.closed_at - group.opened_at)
    return max(0.0, now - group.opened_at) if group.open else None


ORDERS = (
    SortOrder("time", "time", "time", lambda group, now: group.opened_at),
    SortOrder("reward", "best reward", "best", _reward),
    SortOrder("spread", "spread", "spread", lambda group, now: spread_of(group)),
    SortOrder("waited", "waiting time", "waited", _waited),
    SortOrder("latency", "latency", "took", took),
)
BY_TIME = ORDERS[0]
