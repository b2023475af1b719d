"""Plots in lines of text: series as braille dots, signs, a shaded band, axes at both sides."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from textual.content import Content

from console.text.lines import EMPTY, Line, line_width

LABEL = 6
"""Cells of the figures of an axis, with the space beside them."""
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bit of each dot of a braille character, by row and column."""
_DASH = 4
"""Dot columns of a dash, and of the gap after it."""
_LEVELS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Axis:
    """The ends of a vertical axis."""

    low: float
    high: float

    @classmethod
    def around(cls, *values: float) -> Self:
        """Return an axis between round figures that contains the values."""
        low, high = min(values), max(values)
        span = max(high - low, 1e-6)
        unit = 10 ** math.floor(math.log10(span))
        for factor in (0.1, 0.2, 0.5, 1.0):
            if span / (unit * factor) <= 8:
                unit *= factor
                break
        low, high = math.floor(low / unit + 1e-9) * unit, math.ceil(high / unit - 1e-9) * unit
        return cls(low, high) if high > low else cls(low - unit, high + unit)

    def label(self, row: int, rows: int) -> str:
        """Return the figure beside a row: at both ends and, in a tall plot, in the middle."""
        span = self.high - self.low
        places = 2 if span < 10 else 0
        if span < 0.05 and self.low >= 0 and self.high < 10:
            places = 3
        if row == 0:
            return f"{self.high:.{places}f}"
        if row == rows - 1:
            return f"{self.low:.{places}f}"
        if rows >= 7 and row == rows // 2:
            return f"{self.high - span * (row + 0.5) / rows:.{places}f}"
        return ""


class Plot:
    """A grid of cells of 2 by 4 dots. What is drawn later covers signs, and adds to dots.

    Args:
        columns: Width in cells, without the axes.
        rows: Height in cells.
        ends: Values at the left and the right edge.
    """

    def __init__(self, columns: int, rows: int, ends: tuple[float, float]) -> None:
        self.columns, self.rows = columns, rows
        self._ends = ends
        self._dots: dict[tuple[int, int], tuple[int, str]] = {}
        self._signs: dict[tuple[int, int], tuple[str, str]] = {}
        self._behind: dict[tuple[int, int], tuple[str, str]] = {}
        self._band: set[tuple[int, int]] = set()

    def column(self, x: float) -> int:
        """Return the column of cells of a value."""
        return round(self._across(x)) // 2

    def row(self, y: float, axis: Axis) -> int:
        """Return the row of cells of a value, 0 at the top."""
        return self._whole(self._height(y, axis)) // 4

    def dot(self, x: float, y: float, axis: Axis, tone: str) -> None:
        """Draw one value."""
        self._put(round(self._across(x)), self._whole(self._height(y, axis)), tone)

    def line(
        self, points: Iterable[tuple[float, float]], axis: Axis, tone: str, *, dashed: bool = False
    ) -> None:
        """Draw straight lines through points in ascending order; a single one is a short line."""
        places = [(self._across(x), self._height(y, axis)) for x, y in points]
        if len(places) == 1:
            at, height = places[0]
            places = [(max(0, at - 1), height), (min(self.columns * 2 - 1, at + 1), height)]
        before: int | None = None
        for column, height in _between(places):
            row = self._whole(height)
            start = row if before is None else before
            for each in range(min(start, row), max(start, row) + 1):
                if (each != before or before == row) and not (dashed and column // _DASH % 2):
                    self._put(column, each, tone)
            before = row

    def band(self, limits: Sequence[tuple[float, float, float]], axis: Axis) -> None:
        """Shade the cells between a low and a high value over (x, low, high)."""
        low = _between([(self._across(x), self._height(y, axis)) for x, y, _ in limits])
        high = _between([(self._across(x), self._height(y, axis)) for x, _, y in limits])
        for (column, bottom), (_, top) in zip(low, high, strict=True):
            if column % 2 == 0:
                for row in range(self.rows):
                    if top <= row * 4 + 1.5 <= bottom:
                        self._band.add((row, column // 2))

    def sign(self, column: int, row: int, sign: str, tone: str, *, behind: bool = False) -> None:
        """Put a sign into a cell: over dots, or `behind` them and all other signs."""
        (self._behind if behind else self._signs)[row, column] = (sign, tone)

    def lines(
        self, left: Axis | None, right: Axis | None = None, right_tone: str = "$muted"
    ) -> list[Line]:
        """Return the rows; the right axis takes cells only if there is one."""
        shown: list[Line] = []
        for row in range(self.rows):
            label = left.label(row, self.rows) if left is not None else ""
            pieces = [(f"{label:>{LABEL - 1}} ", "$muted")]
            pieces += [self._cell(row, column) for column in range(self.columns)]
            if right is not None:
                pieces.append((f" {right.label(row, self.rows):<{LABEL - 1}}", right_tone))
            shown.append(merged(pieces))
        return shown

    def foot(self, left: str, right: str, *legends: Line) -> Line:
        """Return the line below: both ends, and between them the first legend that has room."""
        room = self.columns - len(left) - len(right)
        fitting = (legend for legend in legends if line_width(legend) + 2 <= room)
        legend = next(fitting, EMPTY)
        room = max(1, room - line_width(legend))
        start = " " * LABEL + left + " " * (room // 2)
        return ((start, "$muted"), *legend, (" " * (room - room // 2) + right, "$muted"))

    def _across(self, x: float) -> float:
        """Return the dot column of a value as a fraction."""
        first, last = self._ends
        share = (x - first) / (last - first) if last > first else 0.0
        return share * (self.columns * 2 - 1)

    def _height(self, y: float, axis: Axis) -> float:
        """Return the dot row of a value as a fraction, 0 at the top."""
        return (axis.high - y) / (axis.high - axis.low) * (self.rows * 4 - 1)

    def _whole(self, height: float) -> int:
        return min(self.rows * 4 - 1, max(0, round(height)))

    def _put(self, column: int, row: int, tone: str) -> None:
        cell = (row // 4, column // 2)
        bits, before = self._dots.get(cell, (0, tone))
        both = tone if before == tone else "bold"
        self._dots[cell] = (bits | _DOTS[row % 4][column % 2], both)

    def _cell(self, row: int, column: int) -> tuple[str, str]:
        cell = (row, column)
        sign, tone = self._signs.get(cell) or ("", "")
        if not sign and cell in self._dots:
            bits, tone = self._dots[cell]
            sign = chr(0x2800 + bits)
        elif not sign:
            sign, tone = self._behind.get(cell, (" ", ""))
        return sign, f"{tone} on $band".strip() if cell in self._band else tone


def _between(places: Sequence[tuple[float, float]]) -> Iterator[tuple[int, float]]:
    """Yield each column with its height on the straight lines through the places."""
    for column, height in places[:1]:
        yield math.floor(column), height
    for (left, start), (right, end) in pairwise(places):
        for column in range(math.floor(left) + 1, math.floor(right) + 1):
            yield column, start + (end - start) * (column - left) / (right - left)


def merged(pieces: Iterable[tuple[str, str]]) -> Line:
    """Return the pieces as a line, neighbours of the same style joined."""
    joined: list[tuple[str, str]] = []
    for text, style in pieces:
        if joined and joined[-1][1] == style:
            joined[-1] = (joined[-1][0] + text, style)
        else:
            joined.append((text, style))
    return tuple(joined)


def sparkline(values: Sequence[float], full: float | None = None) -> Content:
    """Return one line of bars; 0 is a dot. `full` fills a cell; default: the highest value."""
    top = max(values, default=0.0) if full is None else full
    if top <= 0:
        return Content.styled("·" * len(values), "$faint")
    bars = (
        (_LEVELS[min(7, int(value / top * 7.999))], "$curve") if value > 0 else ("·", "$faint")
        for value in values
    )
    return Content.assemble(*merged(bars))


def small_bars(values: Sequence[float | None]) -> str:
    """Return a bar of one cell for each value from 0 to 1 or to the highest; a dot for none."""
    top = max([1.0, *(value for value in values if value is not None)])
    return "".join(
        "·" if value is None else _LEVELS[max(0, min(7, int(value / top * 7.999)))]
        for value in values
    )
