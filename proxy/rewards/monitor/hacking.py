"""Running correlations of the reward with traits that have nothing to do with being good.

Over the newest groups whose rewards differ; reward and trait are both taken less their group's
mean, for only differences within a group teach, and by their group's deviation, so that one group
of long answers weighs no more than any other.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from operator import mul

import msgspec

from core.events import WatchFigure
from core.scoring.advantage import is_dead
from core.scoring.agreement import Z95
from proxy.rewards.monitor.traits import TRAITS

WINDOW = 200
"""Groups that are looked at."""
LEAST = 30
"""Answers of groups with unlike rewards before anything is said."""
HIGH = 0.5
"""From this r on, when the interval stays above `SURE`, the trait is taken for hacked."""
SURE = 0.3
LOW = 0.35
"""Below it, the alert is over."""
SHOWN = 3


class _Row(msgspec.Struct, frozen=True, gc=False):
    """What one group adds."""

    group_id: str
    counts: tuple[int, ...]
    """Answers for each trait that varies in the group, else 0."""
    both: tuple[float, ...]
    """Correlation of reward and trait in the group, times the count."""


class HackingMonitor:
    """Takes groups as they are sealed; constant work and memory."""

    def __init__(self, window: int = WINDOW) -> None:
        self._window = window
        self._rows: deque[_Row] = deque()
        self._counts = [0] * len(TRAITS)
        self._groups = [0] * len(TRAITS)
        self._both = [0.0] * len(TRAITS)
        self._since = 0
        self._alerts: dict[str, tuple[str, ...]] = {}

    @property
    def groups(self) -> int:
        """Groups that are counted now."""
        return len(self._rows)

    def take(
        self,
        group_id: str,
        rewards: Sequence[float],
        traits: Sequence[Sequence[float]],
        instead: Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        """Count a group, unless its rewards are all equal.

        Args:
            group_id: Which.
            rewards: One an answer.
            traits: For each answer one number for each of `TRAITS`.
            instead: What else makes the rewards, by the name of a trait that some parts reward by
                their nature: the rewards follow it only as far as these do as well.
        """
        n = len(rewards)
        if is_dead(rewards):
            return
        off, size = _centred(rewards)
        others = {trait: _centred(one) for trait, one in (instead or {}).items()}
        counts: list[int] = []
        both: list[float] = []
        for trait, column in zip(TRAITS, zip(*traits, strict=True), strict=True):
            other, other_size = others.get(trait, (off, size))
            if min(column) == max(column) or not other_size:
                counts.append(0)
                both.append(0.0)
                continue
            middle = sum(column) / n
            away = [one - middle for one in column]
            square = sum(map(mul, away, away))
            r = sum(map(mul, away, off)) / math.sqrt(square * size)
            if other is not off:
                r = _shared(r, sum(map(mul, away, other)) / math.sqrt(square * other_size))
            counts.append(n)
            both.append(n * r)
        self._add(_Row(group_id, tuple(counts), tuple(both)))

    def _add(self, row: _Row) -> None:
        self._rows.append(row)
        self._count(row, 1)
        if len(self._rows) > self._window:
            self._count(self._rows.popleft(), -1)
        self._since += 1
        if self._since >= self._window:  # the sums are made anew: rounding must not add up
            self._since = 0
            self._both = [math.fsum(one) for one in zip(*(r.both for r in self._rows), strict=True)]

    def _count(self, row: _Row, way: int) -> None:
        for at, count in enumerate(row.counts):
            if count:
                self._counts[at] += way * count
                self._groups[at] += way
                self._both[at] += way * row.both[at]

    def figures(self) -> tuple[WatchFigure, ...]:
        """How far the rewards follow each trait now; raises and ends alerts as it goes."""
        return tuple(self._figure(at, trait) for at, trait in enumerate(TRAITS))

    def _figure(self, at: int, trait: str) -> WatchFigure:
        n = self._counts[at]
        if not n:
            self._alerts.pop(trait, None)
            return WatchFigure(trait=trait)
        r = max(-1.0, min(1.0, self._both[at] / n))
        low, high = interval(r, n, self._groups[at])
        sure = min(abs(low), abs(high)) if low * high > 0 else 0.0
        if trait not in self._alerts:
            if n >= LEAST and abs(r) >= HIGH and sure >= SURE:
                self._alerts[trait] = self._show(at, r)
        elif abs(r) < LOW or n < LEAST:
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

    def _show(self, at: int, r: float) -> tuple[str, ...]:
        """The groups that say it most; of equals the newest."""
        way = 1.0 if r > 0 else -1.0
        rows = sorted(reversed(self._rows), key=lambda row: way * row.both[at], reverse=True)
        return tuple(row.group_id for row in rows[:SHOWN] if way * row.both[at] > 0)


def _shared(one: float, two: float) -> float:
    """What two correlations have in common: the weaker, 0 where their signs differ."""
    if one * two <= 0.0:
        return 0.0
    return one if abs(one) < abs(two) else two


def _centred(rewards: Sequence[float]) -> tuple[list[float], float]:
    """Rewards less their mean, and the sum of their squares; 0 for rewards that are all equal."""
    mean = sum(rewards) / len(rewards)
    off = [one - mean for one in rewards]
    return off, 0.0 if is_dead(rewards) else sum(map(mul, off, off))


def interval(r: float, n: int, groups: int) -> tuple[float, float]:
    """The 95 % interval of a correlation of centred pairs, by Fisher's z.

    Each group's mean that was taken away costs a degree of freedom.
    """
    free = n - groups - 2
    if free < 1:
        return -1.0, 1.0
    middle = math.atanh(max(-0.999999, min(0.999999, r)))
    half = Z95 / math.sqrt(free)
    return math.tanh(middle - half), math.tanh(middle + half)
