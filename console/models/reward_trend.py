"""Whether the mean reward rose or fell over the steps of training, beside the noise of a step."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from core.state import RunPoint

WINDOW = 10
"""Maximum number of steps at either end that are compared."""
FEWEST = 3
"""Fewest points at either end: the spread of fewer says nothing."""
NOTABLE = 0.005
"""Change that is shown as 0.00."""


@dataclass(frozen=True, slots=True)
class Trend:
    """The newest steps against the first ones."""

    change: float
    """Mean of the newest steps minus that of the first ones."""
    error: float
    """Two standard errors of `change`, from the spread of the means of the steps."""
    since: int
    """Global step of the first point."""

    @property
    def certain(self) -> bool:
        """Whether the change exceeds two standard errors, and is not shown as 0.00."""
        return abs(self.change) > max(self.error, NOTABLE)

    @property
    def words(self) -> str:
        """The change: `▲ up 0.21`, or `≈ +0.21 ± 0.40` if it may be noise."""
        if not self.certain:
            change = round(self.change, 2) + 0.0  # no minus for a change of 0
            return f"≈ {change:+.2f} ± {self.error:.2f}"
        return f"{'▲ up' if self.change > 0 else '▼ down'} {abs(self.change):.2f}"

    @property
    def tone(self) -> str:
        """The colour of the change; empty if it may be noise."""
        if not self.certain:
            return ""
        return "$reward-up" if self.change > 0 else "$reward-down"


def reward_trend(points: Sequence[RunPoint]) -> Trend | None:
    """Return the change from the first steps to the newest ones; None for under 6 points.

    Each end has at most `WINDOW` steps and half of the points; more steps only where fewer than
    `FEWEST` points would be left, because a point is the mean of many.

    Args:
        points: By step, of one version of the rewards.
    """
    most = len(points) // 2
    if most < FEWEST:
        return None
    first, error_first = _mean(_window(points, most))
    newest, error_newest = _mean(_window(points[::-1], most))
    error = 2.0 * math.hypot(error_first, error_newest)
    return Trend(newest - first, error, points[0].step)


def newest_level(points: Sequence[RunPoint]) -> tuple[float, float] | None:
    """Return the mean of the newest steps and its standard error; None for under `FEWEST` points.

    Args:
        points: By step, of one version of the rewards.
    """
    if len(points) < FEWEST:
        return None
    return _mean(_window(points[::-1], max(FEWEST, len(points) // 2)))


def _window(points: Sequence[RunPoint], most: int) -> Sequence[RunPoint]:
    """Return the points from the beginning that a window covers, at most `most`."""
    taken = steps = 0
    while taken < most and (taken < FEWEST or steps + points[taken].steps <= WINDOW):
        steps += points[taken].steps
        taken += 1
    return points[:taken]


def _mean(points: Sequence[RunPoint]) -> tuple[float, float]:
    """Return the mean by step and its standard error; a mean of n steps varies 1/n as much."""
    steps = sum(point.steps for point in points)
    mean = math.fsum(point.steps * point.mean for point in points) / steps
    spread = math.fsum(point.steps * (point.mean - mean) ** 2 for point in points)
    return mean, math.sqrt(spread / (len(points) - 1) / steps)
