"""Reward curves of one or two engine runs over each other, drawn with braille dots."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from console.text.lines import Line
from console.views.chart import axis_label, bounds_of, braille, merged
from core.state import RunPoint

_LABEL = 6
TONES = ("$curve", "$winner")
"""Colours of the first and the second curve."""
_SPAN = 0.05
"""Minimum height of the axis: less is noise."""
_BOTH = "bold"
"""Style of a cell with dots of both curves."""
_DASH = 4
"""Dot columns of a dash, and of the gap after it, of the second curve."""


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
    room, rows = width - _LABEL, height - 1
    points = [point for one in curves for point in one.points]
    if not points or rows < 2 or room < 8:
        return []
    low, high = min(one.mean for one in points), max(one.mean for one in points)
    if high - low < _SPAN:
        low, high = (low + high - _SPAN) / 2, (low + high + _SPAN) / 2
    low, high = bounds_of(low, high)
    first, last = min(one.step for one in points), max(one.step for one in points)
    grids = [
        _dots(one.points, (first, last), (low, high), (room, rows), dashed=place > 0)
        for place, one in enumerate(curves)
    ]
    lines: list[Line] = []
    for row in range(rows):
        label = axis_label(row, rows, low, high)
        pieces = [(f"{label:>{_LABEL - 1}} ", "$muted")]
        pieces += [_cell([grid[row][column] for grid in grids]) for column in range(room)]
        lines.append(tuple(merged(pieces)))
    return [*lines, _axis(curves, first, last, room, unit)]


def _cell(layers: Sequence[int]) -> tuple[str, str]:
    """Return character and style of a cell with the dots of each curve."""
    bits = 0
    for one in layers:
        bits |= one
    drawn = [place for place, one in enumerate(layers) if one]
    if not drawn:
        return " ", ""
    return chr(0x2800 + bits), TONES[drawn[0]] if len(drawn) == 1 else _BOTH


def _dots(
    points: Sequence[RunPoint],
    steps: tuple[int, int],
    ends: tuple[float, float],
    size: tuple[int, int],
    *,
    dashed: bool,
) -> list[list[int]]:
    """Return the braille bits of each cell of a line through the points, by row and column."""
    width, rows = size
    cells = [[0] * width for _ in range(rows)]
    count = width * 2
    span = max(steps[1] - steps[0], 1)

    def column_of(step: int) -> int:
        return round((step - steps[0]) / span * (count - 1))

    def row_of(mean: float) -> float:
        return (ends[1] - mean) / (ends[1] - ends[0]) * (rows * 4 - 1)

    def put(column: int, row: int) -> None:
        if not dashed or column % (2 * _DASH) < _DASH:
            cells[row // 4][column // 2] |= braille(row % 4, column % 2)

    places = [(column_of(one.step), row_of(one.mean)) for one in points]
    if len(places) == 1:
        at, row = places[0][0], round(places[0][1])
        for column in {max(0, at - 1), at, min(count - 1, at + 1)}:
            cells[row // 4][column // 2] |= braille(row % 4, column % 2)
    for (left, start), (right, end) in pairwise(places):
        before = round(start)
        for column in range(left, right + 1):
            share = (column - left) / max(right - left, 1)
            row = round(start + (end - start) * share)
            for each in range(min(before, row), max(before, row) + 1):
                if each != before or before == row:
                    put(column, each)
            before = row
    return cells


def _axis(curves: Sequence[RunCurve], first: int, last: int, room: int, unit: str) -> Line:
    """Return the line with the first and last step and, where there is room, the legend."""
    left, right = f"{unit} {first}", str(last) if last > first else ""
    legend: list[tuple[str, str]] = []
    for place, one in enumerate(curves if len(curves) > 1 else ()):
        sign = "┅┅" if place else "━━"
        legend += [(f"{sign} ", TONES[place]), (f"{one.label}  ", "$muted")]
    size = sum(len(text) for text, _ in legend)
    spare = room - len(left) - len(right) - size
    if spare < 2:
        legend, spare = [], room - len(left) - len(right)
    gap = spare // 2
    return (
        (" " * _LABEL + left + " " * gap, "$muted"),
        *legend,
        (" " * (spare - gap) + right, "$muted"),
    )
