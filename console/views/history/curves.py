"""Reward curves of one or two engine runs over each other."""

from collections.abc import Sequence
from dataclasses import dataclass

from console.text.lines import Line
from console.ui.plot import LABEL, Axis, Plot
from core.state import RunPoint

TONES = ("$curve", "$winner")
"""Colours of the first and the second curve."""
_SPAN = 0.05
"""Minimum height of the axis: less is noise."""


@dataclass(frozen=True, slots=True)
class RunCurve:
    """One curve and its legend."""

    points: Sequence[RunPoint]
    """In ascending order of steps."""
    label: str


def overlay(curves: Sequence[RunCurve], width: int, height: int, unit: str = "step") -> list[Line]:
    """Return the curves over each other in `height` lines of `width` cells.

    The first curve is a whole line, the second one dashed. The last line has the steps and the
    legend. Without a point there are no lines.

    Args:
        curves: One or two.
        width: Cells, with the axis.
        height: Number of lines; at least 3.
        unit: Name of the horizontal axis.
    """
    columns, rows = width - LABEL, height - 1
    points = [point for curve in curves for point in curve.points]
    if not points or rows < 2 or columns < 8:
        return []
    low, high = min(point.mean for point in points), max(point.mean for point in points)
    if high - low < _SPAN:
        low, high = (low + high - _SPAN) / 2, (low + high + _SPAN) / 2
    axis = Axis.around(low, high)
    first, last = min(point.step for point in points), max(point.step for point in points)
    plot = Plot(columns, rows, (first, last))
    legend: Line = ()
    for place, curve in enumerate(curves):
        drawn = [(point.step, point.mean) for point in curve.points]
        plot.line(drawn, axis, TONES[place], dashed=place > 0)
        sign = "┅┅" if place else "━━"
        legend += ((f"{sign} ", TONES[place]), (f"{curve.label}  ", "$muted"))
    legends = [legend] if len(curves) > 1 else []
    steps = f"{unit} {first}", str(last) if last > first else ""
    return [*plot.lines(axis), plot.foot(*steps, *legends)]
