"""Outliers among rewards, a scale that an engine does not expect, and rewards without a signal."""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from core.events.alerts import AlertParams, params_of
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
MAX_NAMED = 200
"""Maximum number of groups without a signal that an alert names."""
STEPS = 3
"""Number of newest global steps that are counted."""
MIN_GROUPS = 10
"""Number of groups needed for an alert."""
HIGH = 0.9
"""Share of groups without a signal that raises an alert."""
LOW = 0.8
"""Share below which the alert ends."""

Outlier = tuple[str, int, float, float]
"""Group, candidate, reward, and its distance in deviations."""


class _GroupRewards(NamedTuple):
    """The rewards of one group."""

    n: int
    total: float
    squares: float
    low: float
    high: float
    differ: bool
    has_outlier: bool


class RewardDistribution:
    """Distribution of the rewards of the newest groups, in constant memory."""

    def __init__(self, window: int = WINDOW) -> None:
        self._rows: deque[_GroupRewards] = deque(maxlen=window)
        self.outliers: deque[Outlier] = deque(maxlen=MAX_OUTLIERS)

    @property
    def count(self) -> int:
        """Number of rewards in the window."""
        return sum(row.n for row in self._rows)

    @property
    def mean(self) -> float:
        """Their mean; 0 without rewards."""
        return _mean_and_deviation(self._rows)[0]

    @property
    def std(self) -> float:
        """Their population standard deviation."""
        return _mean_and_deviation(self._rows)[1]

    @property
    def span(self) -> tuple[float, float]:
        """Their minimum and maximum; 0 and 0 without rewards."""
        return _span(self._rows) if self._rows else (0.0, 0.0)

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
        outliers: list[Outlier] = []
        if not (fixed_rule and low >= 0.0 and high <= 1.0):
            outliers = self._outliers(group_id, rewards, low, high)
            self.outliers.extend(outliers)
        squares = sum([value * value for value in values])
        differ = not is_dead(values)
        self._rows.append(
            _GroupRewards(len(values), sum(values), squares, low, high, differ, bool(outliers))
        )
        return bool(outliers)

    def _outliers(
        self, group_id: str, rewards: Sequence[tuple[int, float]], low: float, high: float
    ) -> list[Outlier]:
        """Return rewards far from the run's mean, or the one far from all others of its group.

        Mean and deviation are those of the groups whose rewards differ: among groups of equal
        rewards, whose deviation is 0, the first differing rewards would all be outliers. A reward
        that ordinary groups have had too is just a bad or good answer: where rewards range from 0
        to 1 with a mean near 1, a 0 is far from the mean but not unusual.
        """
        signal = [row for row in self._rows if row.differ]
        if sum(row.n for row in signal) < MIN_REWARDS:
            return []
        mean, std = _mean_and_deviation(signal)
        limit = FAR
        distances = [(index, value, (value - mean) / std) for index, value in rewards]
        if max(high - mean, mean - low) < FAR * std:
            if len(rewards) < 4 or high - low < LONE * std / 2:
                return []
            limit, distances = LONE, _distances_from_others(rewards, std)
        ordinary = [row for row in self._rows if not row.has_outlier]
        least, most = _span(ordinary) if ordinary else (math.inf, -math.inf)
        return [
            (group_id, index, value, distance)
            for index, value, distance in distances
            if abs(distance) >= limit and not least <= value <= most
        ]

    def trouble(self) -> AlertParams | None:
        """Return the alert about an odd scale; None if the scale is as expected."""
        if self.count < MIN_REWARDS:
            return None
        low, high = self.span
        narrow = high - low < MIN_RANGE
        if low >= -1e-6 and high <= 1 + 1e-6 and not narrow:
            return None
        beyond = low < -1e-6 or high > 1 + 1e-6
        return params_of(
            "reward_scale",
            low=float(f"{low:.4g}"),
            high=float(f"{high:.4g}"),
            narrow=narrow and not beyond,
        )


def _mean_and_deviation(rows: Iterable[_GroupRewards]) -> tuple[float, float]:
    """Return mean and population standard deviation; 0 and 0 without rewards."""
    n, total, squares = 0, 0.0, 0.0
    for row in rows:
        n, total, squares = n + row.n, total + row.total, squares + row.squares
    mean = total / n if n else 0.0
    return mean, math.sqrt(max(squares / n - mean * mean, 0.0)) if n else 0.0


def _span(rows: Iterable[_GroupRewards]) -> tuple[float, float]:
    lows, highs = zip(*[(row.low, row.high) for row in rows], strict=True)
    return min(lows), max(highs)


def _distances_from_others(
    rewards: Sequence[tuple[int, float]], run_std: float
) -> list[tuple[int, float, float]]:
    """Return each reward with its distance, in deviations, from the others of its group.

    The deviation of the others counts as at least half the run's: three rewards that are alike by
    chance would make any fourth an outlier.
    """
    n = len(rewards) - 1
    total = sum(value for _, value in rewards)
    squares = sum(value * value for _, value in rewards)
    distances = []
    for index, value in rewards:
        mean = (total - value) / n
        spread = max((squares - value * value) / n - mean * mean, 0.0)
        std = max(math.sqrt(spread), run_std / 2, 1e-9)
        distances.append((index, value, (value - mean) / std))
    return distances


class SignalMonitor:
    """Counts groups by server and global step, in constant time and memory."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[int, tuple[int, int]]] = {}
        """Groups without a signal and all groups, by server and step; newest steps last."""
        self._dead: dict[str, deque[tuple[int, str]]] = {}
        """Step and id of the newest groups without a signal, by server."""
        self._raised: set[str] = set()

    @property
    def servers(self) -> tuple[str, ...]:
        """Servers of the counted groups."""
        return tuple(self._counts)

    def take(self, server: str, step: int, dead: bool, group_id: str = "") -> None:
        """Count one sealed group.

        Args:
            server: Name of its server.
            step: Global step of the policy that answered.
            dead: Whether it teaches nothing or almost nothing.
            group_id: Id of the group.
        """
        if dead:
            self._dead.setdefault(server, deque(maxlen=MAX_NAMED)).append((step, group_id))
        counts = self._counts.setdefault(server, {})
        without, groups = counts.get(step, (0, 0))
        counts[step] = without + dead, groups + 1
        if len(counts) > STEPS:
            del counts[next(iter(counts))]

    def alert(self, server: str) -> tuple[AlertParams | None, tuple[str, ...]]:
        """Return the alert if nearly all groups of the newest steps have no signal, and which."""
        counts = self._counts.get(server, {})
        without, groups = (sum(column) for column in zip(*counts.values(), strict=True))
        bound = LOW if server in self._raised else HIGH
        if len(counts) < STEPS or groups < MIN_GROUPS or without < bound * groups:
            self._raised.discard(server)
            return None, ()
        self._raised.add(server)
        names = tuple([name for step, name in self._dead.get(server, ()) if step in counts])
        return params_of("dead", dead=without, groups=groups, steps=STEPS), names
