"""Points of the curve of the looks."""

from collections.abc import Sequence
from dataclasses import dataclass

from core.events import LookEnded
from core.state import Progress
from core.verdict.conclusion import CHANCE


@dataclass(frozen=True, slots=True)
class LookPoint:
    """The mean of one complete look with its interval."""

    step: int
    mean: float
    low: float
    high: float
    is_baseline: bool
    is_current: bool
    """It belongs to the comparison in use."""


def look_points(progress: Progress) -> list[LookPoint]:
    """Return the complete looks with a known step and the scale of the newest, in order.

    Steps that a later run of the engine repeats are taken from that run only. A baseline of
    comparisons has no mean of its own: it is drawn at an even win rate.
    """
    complete = [look for look in progress.looks if look.complete and look.step is not None]
    baseline = progress.baseline
    points: list[tuple[int, LookPoint]] = []
    for look in complete:
        assert look.step is not None
        if look.mode != complete[-1].mode:
            continue
        first = look.role == "baseline"
        current = baseline is not None and baseline.look_id in (look.look_id, look.baseline_id)
        even = first and look.mode == "wins"
        mean, low, high = (CHANCE,) * 3 if even else (look.mean, look.low, look.high)
        points = [
            (run, point)
            for run, point in points
            if run == look.engine_run or point.step < look.step
        ]
        point = LookPoint(look.step, mean, low, high, first, current)
        points.append((look.engine_run, point))
    return sorted((point for _, point in points), key=lambda point: point.step)


def is_wins(looks: Sequence[LookEnded]) -> bool:
    """Return whether the newest complete look is scored by comparisons."""
    return next((look.mode == "wins" for look in reversed(looks) if look.complete), False)
