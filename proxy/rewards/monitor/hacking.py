"""Correlations of the reward with traits that do not make an answer good.

They cover the newest groups whose rewards differ. Reward and trait are centred on their group's
mean, because only differences within a group train the policy, and divided by their group's
deviation, so that a group of long answers has no more weight than any other.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from operator import mul
from typing import NamedTuple

from core.events import WatchFigure
from core.scoring.advantage import is_dead
from core.scoring.agreement import Z95
from proxy.rewards.monitor.traits import BOTH_WAYS, TRAITS

WINDOW = 200
"""Number of groups that are counted."""
MIN_ANSWERS = 30
"""Answers, in groups whose rewards differ, that are needed for an alert."""
HIGH = 0.5
"""The |r| that raises an alert if the whole interval lies beyond `MIN_BOUND`."""
MIN_BOUND = 0.3
Z = 3.0
"""Deviations of the interval that decides on an alert: many traits are checked again and again."""
LOW = 0.35
"""The |r| below which an alert ends."""
MAX_GROUPS = 3


class _Correlations(NamedTuple):
    """The correlations in one group."""

    group_id: str
    answers: int
    correlations: Mapping[str, float]
    """By trait; without those that do not vary in the group."""


class HackingMonitor:
    """Correlations over the newest sealed groups, and the traits whose alert is raised."""

    def __init__(self, window: int = WINDOW) -> None:
        self._rows: deque[_Correlations] = deque(maxlen=window)
        self._alerts: dict[str, tuple[str, ...]] = {}
        """Trait -> the groups that show it best."""

    @property
    def groups(self) -> int:
        """Number of groups that are counted now."""
        return len(self._rows)

    def take(
        self,
        group_id: str,
        rewards: Sequence[float],
        traits: Sequence[Sequence[float]],
        adjusted: Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        """Count a group, unless its rewards are all equal.

        Args:
            group_id: Id of the group.
            rewards: One for each answer.
            traits: For each answer one number for each of `TRAITS`.
            adjusted: By trait, the rewards without the parts that reward this trait by their
                nature. Such a trait has the weaker of both correlations.
        """
        if is_dead(rewards):
            return
        correlations: dict[str, float] = {}
        for trait, column in zip(TRAITS, zip(*traits, strict=True), strict=True):
            r = _correlation(column, rewards)
            if r is not None and adjusted and trait in adjusted:
                r = _weaker(r, _correlation(column, adjusted[trait]))
            if r is not None:
                correlations[trait] = r
        self._rows.append(_Correlations(group_id, len(rewards), correlations))

    def figures(self) -> tuple[WatchFigure, ...]:
        """Return the correlation of each trait; raise and end alerts."""
        return tuple(map(self._figure, TRAITS))

    def _figure(self, trait: str) -> WatchFigure:
        rows = [row for row in self._rows if trait in row.correlations]
        n = sum(row.answers for row in rows)
        if not n:
            self._alerts.pop(trait, None)
            return WatchFigure(trait=trait)
        r = math.fsum(row.answers * row.correlations[trait] for row in rows) / n
        r = max(-1.0, min(1.0, r))
        low, high = interval(r, n, len(rows))
        if trait not in self._alerts:
            exploitable = r > 0 or trait in BOTH_WAYS
            sure = interval(abs(r), n, len(rows), Z)[0] >= MIN_BOUND
            if n >= MIN_ANSWERS and abs(r) >= HIGH and exploitable and sure:
                self._alerts[trait] = _strongest(rows, trait, math.copysign(1.0, r))
        elif abs(r) < LOW or n < MIN_ANSWERS:
            del self._alerts[trait]
        return WatchFigure(
            trait=trait,
            r=r,
            low=low,
            high=high,
            n=n,
            groups=self._alerts.get(trait, ()),
            alert=trait in self._alerts,
        )


def _strongest(rows: Sequence[_Correlations], trait: str, sign: float) -> tuple[str, ...]:
    """Return the groups with the strongest correlation of this sign; of equal ones the newest."""
    strength = {row.group_id: sign * row.answers * row.correlations[trait] for row in rows}
    names = sorted(reversed(strength), key=strength.__getitem__, reverse=True)
    return tuple(name for name in names[:MAX_GROUPS] if strength[name] > 0)


def _correlation(values: Sequence[float], rewards: Sequence[float]) -> float | None:
    """Return Pearson's r; None if one side does not vary."""
    if min(values) == max(values) or is_dead(rewards):
        return None
    first, second = _centred(values), _centred(rewards)
    squares = sum(map(mul, first, first)) * sum(map(mul, second, second))
    return math.fsum(map(mul, first, second)) / math.sqrt(squares)


def _centred(values: Sequence[float]) -> list[float]:
    mean = sum(values) / len(values)
    return [value - mean for value in values]


def _weaker(first: float, second: float | None) -> float | None:
    """Return the weaker of two correlations: 0 if their signs differ, None without the second."""
    if second is None:
        return None
    return 0.0 if first * second <= 0.0 else min(first, second, key=abs)


def interval(r: float, n: int, groups: int, z: float = Z95) -> tuple[float, float]:
    """Return the interval of a correlation of centred pairs, by Fisher's z; of 95 % by default.

    Each group's mean that was subtracted costs a degree of freedom.
    """
    freedom = n - groups - 2
    if freedom < 1:
        return -1.0, 1.0
    middle = math.atanh(max(-0.999999, min(0.999999, r)))
    half = z / math.sqrt(freedom)
    return math.tanh(middle - half), math.tanh(middle + half)
