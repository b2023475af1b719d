"""Running correlations of the reward with traits that do not make an answer good.

They cover the newest groups whose rewards differ. Reward and trait are centred on their group's
mean, because only differences within a group train the policy, and divided by their group's
deviation, so that a group of long answers has no more weight than any other.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from operator import mul

import msgspec

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


class _Row(msgspec.Struct, frozen=True, gc=False):
    """The contribution of one group."""

    group_id: str
    counts: tuple[int, ...]
    """For each trait the number of answers if it varies in the group, else 0."""
    products: tuple[float, ...]
    """For each trait the correlation of reward and trait in the group, times the count."""


class HackingMonitor:
    """Running correlations over sealed groups, in constant time and memory."""

    def __init__(self, window: int = WINDOW) -> None:
        self._window = window
        self._rows: deque[_Row] = deque()
        self._counts = [0] * len(TRAITS)
        self._groups = [0] * len(TRAITS)
        self._products = [0.0] * len(TRAITS)
        self._since = 0
        self._alerts: dict[str, tuple[str, ...]] = {}

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
        n = len(rewards)
        if is_dead(rewards):
            return
        middled, size = centred(rewards)
        others = {trait: centred(one) for trait, one in (adjusted or {}).items()}
        counts: list[int] = []
        products: list[float] = []
        for trait, column in zip(TRAITS, zip(*traits, strict=True), strict=True):
            other, other_size = others.get(trait, (middled, size))
            if min(column) == max(column) or not other_size:
                counts.append(0)
                products.append(0.0)
                continue
            middle = sum(column) / n
            deviations = [one - middle for one in column]
            square = sum(map(mul, deviations, deviations))
            r = sum(map(mul, deviations, middled)) / math.sqrt(square * size)
            if other is not middled:
                r = shared(r, sum(map(mul, deviations, other)) / math.sqrt(square * other_size))
            counts.append(n)
            products.append(n * r)
        self._add(_Row(group_id, tuple(counts), tuple(products)))

    def _add(self, row: _Row) -> None:
        self._rows.append(row)
        self._count(row, 1)
        if len(self._rows) > self._window:
            self._count(self._rows.popleft(), -1)
        self._since += 1
        if self._since >= self._window:  # sum again, so that rounding errors do not accumulate
            self._since = 0
            self._products = [
                math.fsum(one) for one in zip(*(r.products for r in self._rows), strict=True)
            ]

    def _count(self, row: _Row, sign: int) -> None:
        for at, count in enumerate(row.counts):
            if count:
                self._counts[at] += sign * count
                self._groups[at] += sign
                self._products[at] += sign * row.products[at]

    def figures(self) -> tuple[WatchFigure, ...]:
        """Return the correlation of each trait; raise and end alerts."""
        return tuple(self._figure(at, trait) for at, trait in enumerate(TRAITS))

    def _figure(self, at: int, trait: str) -> WatchFigure:
        n = self._counts[at]
        if not n:
            self._alerts.pop(trait, None)
            return WatchFigure(trait=trait)
        r = max(-1.0, min(1.0, self._products[at] / n))
        low, high = interval(r, n, self._groups[at])
        if trait not in self._alerts:
            if n >= MIN_ANSWERS and self._is_high(at, trait, r):
                self._alerts[trait] = self._strongest_groups(at, r)
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

    def _is_high(self, at: int, trait: str, r: float) -> bool:
        """Return whether r is certainly high, in a direction that a policy can exploit."""
        if abs(r) < HIGH or (r < 0 and trait not in BOTH_WAYS):
            return False
        return interval(abs(r), self._counts[at], self._groups[at], Z)[0] >= MIN_BOUND

    def _strongest_groups(self, at: int, r: float) -> tuple[str, ...]:
        """Return the groups with the strongest correlation; of equal ones the newest."""
        sign = 1.0 if r > 0 else -1.0
        rows = sorted(reversed(self._rows), key=lambda row: sign * row.products[at], reverse=True)
        return tuple(row.group_id for row in rows[:MAX_GROUPS] if sign * row.products[at] > 0)


def shared(one: float, two: float) -> float:
    """Return the weaker of two correlations; 0 if their signs differ."""
    if one * two <= 0.0:
        return 0.0
    return one if abs(one) < abs(two) else two


def centred(rewards: Sequence[float]) -> tuple[list[float], float]:
    """Return rewards minus their mean, and the sum of their squares; 0 if all are equal."""
    mean = sum(rewards) / len(rewards)
    middled = [one - mean for one in rewards]
    return middled, 0.0 if is_dead(rewards) else sum(map(mul, middled, middled))


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
