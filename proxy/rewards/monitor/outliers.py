"""Outliers among the rewards, and a scale that differs from what an engine expects."""

import math
from collections import deque
from collections.abc import Sequence

from core.events.alerts import RewardScale
from core.scoring.advantage import is_dead

WINDOW = 200
"""Number of groups whose rewards a new one is compared with."""
MIN_REWARDS = 30
"""Rewards, in groups whose rewards differ, that are needed for a comparison with the run."""
FAR = 4.0
"""Deviations from the run's mean that make a reward an outlier."""
LONE = 6.0
"""Deviations from the few rewards of its own group that make a reward an outlier."""
MIN_RANGE = 0.02
"""A smaller range of rewards hardly distinguishes answers."""
MAX_OUTLIERS = 20


Outlier = tuple[str, int, float, float]
"""Group, candidate, reward, and its distance in deviations."""


class RewardDistribution:
    """Distribution of the rewards of the newest groups, in constant time and memory."""

    def __init__(self, window: int = WINDOW) -> None:
        self._rows: deque[tuple[int, float, float, float, float]] = deque(maxlen=window)
        """Count, sum, sum of squares, minimum and maximum of each group."""
        self._has_outlier: deque[bool] = deque(maxlen=window)
        """Whether each of these groups has an outlier."""
        self._n = 0
        self._sum = 0.0
        self._squares = 0.0
        self._signal = [0.0, 0.0, 0.0]
        """Count, sum and sum of squares over the groups whose rewards differ."""
        self._since = 0
        self.outliers: deque[Outlier] = deque(maxlen=MAX_OUTLIERS)

    @property
    def outlying(self) -> tuple[str, ...]:
        """The group of the newest outlier, or nothing."""
        return (self.outliers[-1][0],) if self.outliers else ()

    @property
    def count(self) -> int:
        """Number of rewards in the window."""
        return self._n

    @property
    def mean(self) -> float:
        """Their mean; 0 without rewards."""
        return self._sum / self._n if self._n else 0.0

    @property
    def std(self) -> float:
        """Their population standard deviation."""
        return _spread(self._n, self._sum, self._squares)[1] if self._n else 0.0

    @property
    def span(self) -> tuple[float, float]:
        """Their minimum and maximum."""
        if not self._rows:
            return 0.0, 0.0
        return min(row[3] for row in self._rows), max(row[4] for row in self._rows)

    def take(
        self, group_id: str, rewards: Sequence[tuple[int, float]], fixed_rule: bool = False
    ) -> bool:
        """Compare a group's rewards with those of earlier groups, then count them.

        Args:
            group_id: Id of the group.
            rewards: Candidate and reward of each answer.
            fixed_rule: Whether a fixed rule gives rewards from 0 to 1. A reward in that range is
                then no outlier: the first wrong answer after many right ones is just wrong.

        Returns:
            Whether one of the rewards is an outlier.
        """
        values = [value for _, value in rewards]
        low, high = min(values), max(values)
        ordinary = self._signal[0] < MIN_REWARDS or (fixed_rule and low >= 0.0 and high <= 1.0)
        far = [] if ordinary else self._far(group_id, rewards, low, high)
        self.outliers.extend(far)
        if len(self._rows) == self._rows.maxlen:
            old = self._rows[0]
            self._count(old, -1)
        squares = sum([value * value for value in values])
        row = (len(values), sum(values), squares, low, high)
        self._rows.append(row)
        self._has_outlier.append(bool(far))
        self._count(row, 1)
        self._since += 1
        if self._since >= (self._rows.maxlen or 1):  # sum again: rounding errors must not add up
            self._since = self._n = 0
            self._sum = self._squares = 0.0
            self._signal = [0.0, 0.0, 0.0]
            for one in self._rows:
                self._count(one, 1)
        return bool(far)

    def _count(self, row: tuple[int, float, float, float, float], sign: int) -> None:
        self._n += sign * row[0]
        self._sum += sign * row[1]
        self._squares += sign * row[2]
        if not is_dead(row[3:]):
            self._signal = [old + sign * new for old, new in zip(self._signal, row, strict=False)]

    def _far(
        self, group_id: str, rewards: Sequence[tuple[int, float]], low: float, high: float
    ) -> list[Outlier]:
        """Return rewards far from the run's mean, or the one far from all others of its group.

        Mean and deviation are those of the groups whose rewards differ: among groups of equal
        rewards, whose deviation is 0, the first differing rewards would all be outliers.
        """
        mean, std = _spread(*self._signal)
        limit = FAR * std
        outliers: list[Outlier] = []
        if high - mean >= limit or mean - low >= limit:
            outliers = [
                (group_id, index, value, (value - mean) / std)
                for index, value in rewards
                if abs(value - mean) >= limit
            ]
        elif len(rewards) >= 4 and high - low >= LONE * std / 2:
            outliers = [
                (group_id, index, value, z)
                for index, value, z in lone(rewards, std)
                if abs(z) >= LONE
            ]
        return self._beyond_ordinary(outliers) if outliers else outliers

    def _beyond_ordinary(self, outliers: list[Outlier]) -> list[Outlier]:
        """Return the outliers beyond the rewards of ordinary groups.

        A reward that ordinary groups have had too is just a bad or good answer: where rewards range
        from 0 to 1 with a mean near 1, a 0 is far from the mean but not unusual.
        """
        rows = [
            row
            for row, has_outlier in zip(self._rows, self._has_outlier, strict=True)
            if not has_outlier
        ]
        if not rows:
            return outliers
        low, high = min([row[3] for row in rows]), max([row[4] for row in rows])
        return [one for one in outliers if not low <= one[2] <= high]

    def trouble(self) -> RewardScale | None:
        """Return the alert about an odd scale; None if the scale is as expected."""
        low, high = self.span
        if self._n < MIN_REWARDS:
            return None
        shown_low, shown_high = float(f"{low:.4g}"), float(f"{high:.4g}")
        if low < -1e-6 or high > 1 + 1e-6:
            return RewardScale(low=shown_low, high=shown_high)
        if high - low < MIN_RANGE:
            return RewardScale(low=shown_low, high=shown_high, narrow=True)
        return None


def _spread(n: float, total: float, squares: float) -> tuple[float, float]:
    """Return mean and population standard deviation of `n` values, at least one."""
    mean = total / n
    return mean, math.sqrt(max(squares / n - mean * mean, 0.0))


def lone(rewards: Sequence[tuple[int, float]], run_std: float) -> list[tuple[int, float, float]]:
    """Return each reward with its distance, in deviations, from the others of its group.

    The deviation of the others counts as at least half the run's: three rewards that are alike by
    chance would make any fourth an outlier.
    """
    n = len(rewards)
    total = sum(value for _, value in rewards)
    squares = sum(value * value for _, value in rewards)
    distances = []
    for index, value in rewards:
        mean = (total - value) / (n - 1)
        spread = max((squares - value * value) / (n - 1) - mean * mean, 0.0)
        std = max(math.sqrt(spread), run_std / 2, 1e-9)
        distances.append((index, value, (value - mean) / std))
    return distances
