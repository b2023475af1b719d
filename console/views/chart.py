"""A curve with its spread, drawn with braille dots on a shaded band."""

import math
from collections.abc import Sequence
from itertools import pairwise

from textual.content import Content

from console.models.reward_figures import Point

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_LABEL = 6
HAND = "◆"
RUN_END = "┊"
_LEGENDS = (f"{HAND} human-rated: reward of the winner", f"{HAND} human-rated")
"""Legends from long to short; the first one that fits is used."""
CHANGE = "┆"
"""The start of another version of the rewards."""


def latest(points: Sequence[Point]) -> tuple[Point, str]:
    """Return the newest finished point, else the newest one, and its step in words."""
    done = next((one for one in reversed(points) if one.finished), None)
    shown = done or points[-1]
    return shown, f"step {shown.step}" + ("" if shown.finished else " so far")


def thin(points: Sequence[Point], most: int) -> list[Point]:
    """Return at most `most` points; neighbours are averaged, except the last one."""
    if len(points) <= most:
        return list(points)
    *older, last = points
    size = math.ceil(len(older) / (most - 1))
    thinned = []
    for at in range(0, len(older), size):
        part = older[at : at + size]
        by_hand = [one.hand for one in part if one.hand is not None]
        thinned.append(
            Point(
                part[-1].step,
                sum(one.mean for one in part) / len(part),
                sum(one.std for one in part) / len(part),
                sum(by_hand) / len(by_hand) if by_hand else None,
                part[-1].engine_run,
                part[-1].version,
            )
        )
    return [*thinned, last]


def bounds(points: Sequence[Point]) -> tuple[float, float]:
    """Return the ends of the axis: round figures that contain curve and band."""
    by_hand = [one.hand for one in points if one.hand is not None]
    low = min(*by_hand, *(one.mean - one.std for one in points), math.inf)
    high = max(*by_hand, *(one.mean + one.std for one in points), -math.inf)
    return bounds_of(low, high)


def bounds_of(low: float, high: float) -> tuple[float, float]:
    """Return round figures at or beyond `low` and `high`, which differ."""
    span = max(high - low, 1e-6)
    unit = 10 ** math.floor(math.log10(span))
    for factor in (0.1, 0.2, 0.5, 1.0):
        if span / (unit * factor) <= 8:
            unit *= factor
            break
    low, high = math.floor(low / unit + 1e-9) * unit, math.ceil(high / unit - 1e-9) * unit
    return (low, high) if high > low else (low - unit, high + unit)


def curve(points: Sequence[Point], width: int, height: int) -> list[Content]:
    """Return the curve in `height` lines of `width` cells: axis labels, plot, steps below.

    Human ratings are drawn as `◆`, with a legend below. A line `┊` marks the boundary of two engine
    runs, a line `┆` the start of another version of the rewards.

    Args:
        points: In order of their steps; without points there are no lines.
        height: Total number of lines, including the one with the steps; at least 3.
    """
    if not points or height < 3 or width < _LABEL + 4:
        return []
    plot_width, plot_height = width - _LABEL, height - 1
    shown = thin(points, plot_width)
    low, high = bounds(shown)
    columns = _columns(shown, plot_width * 2)
    rows = _rows([dot_row(mean, low, high, plot_height) for mean, _ in columns], plot_height)
    by_hand = _hand_points(shown, (low, high), plot_width, plot_height)
    ends = _run_ends(shown, plot_width)
    changes = _changes(shown, plot_width)
    chart_lines = []
    for row in range(plot_height):
        label = axis_label(row, plot_height, low, high)
        top = high - (high - low) * row / plot_height
        bottom = high - (high - low) * (row + 1) / plot_height
        pieces: list[tuple[str, str]] = [(f"{label:>{_LABEL - 1}} ", "$muted")]
        for column in range(plot_width):
            mean, std = columns[column * 2]
            middle = (top + bottom) / 2
            within = mean - std <= middle <= mean + std
            band = " on $band" if within else ""
            if (row, column) in by_hand:
                pieces.append((HAND, f"bold $winner{band}"))
            elif column in ends and rows[row][column] == " ":
                pieces.append((RUN_END, f"$muted{band}"))
            elif column in changes and rows[row][column] == " ":
                pieces.append((CHANGE, f"$muted{band}"))
            else:
                pieces.append((rows[row][column], f"$curve{band}"))
        chart_lines.append(Content.assemble(*merged(pieces)))
    first, last = f"step {shown[0].step}", str(shown[-1].step)
    if len(shown) == 1:
        last = ""
    between = plot_width - len(first) - len(last)
    fitting = (one for one in _LEGENDS if by_hand and between >= len(one) + 2)
    legend = next(fitting, "")
    left = (between - len(legend)) // 2
    axis: list[tuple[str, str]] = [(" " * _LABEL + first + " " * left, "$muted")]
    if legend:
        axis += [(HAND, "bold $winner"), (legend[1:], "$muted")]
    return [
        *chart_lines,
        Content.assemble(*axis, (" " * (between - left - len(legend)) + last, "$muted")),
    ]


def _changes(points: Sequence[Point], width: int) -> set[int]:
    """Return the columns at which another known version of the rewards begins."""
    first, last = points[0].step, points[-1].step
    places: set[int] = set()
    before = points[0].version
    for one in points:
        if one.version and before and one.version != before:
            places.add(round((one.step - first) / max(last - first, 1) * (width - 1)))
        before = one.version or before
    return places


def _hand_points(
    points: Sequence[Point], ends: tuple[float, float], width: int, height: int
) -> set[tuple[int, int]]:
    """Return row and column of each human rating."""
    first, last = points[0].step, points[-1].step
    low, high = ends
    places = set()
    for one in points:
        if one.hand is not None:
            share = (one.step - first) / (last - first) if last > first else 1.0
            row = dot_row(one.hand, low, high, height) // 4
            places.add((row, round(share * (width - 1))))
    return places


def _run_ends(points: Sequence[Point], width: int) -> set[int]:
    """Return the columns between the last step of an engine run and the first of the next one."""
    first, last = points[0].step, points[-1].step
    return {
        int(((left.step + right.step) / 2 - first) / (last - first) * (width - 1))
        for left, right in pairwise(points)
        if left.engine_run != right.engine_run
    }


def _columns(points: Sequence[Point], count: int) -> list[tuple[float, float]]:
    """Return mean and spread at each of `count` dot columns, interpolated between points."""
    if len(points) == 1:
        return [(points[0].mean, points[0].std)] * count
    first, last = points[0].step, points[-1].step
    means, at = [], 0
    for column in range(count):
        step = first + (last - first) * column / (count - 1)
        while at < len(points) - 2 and points[at + 1].step < step:
            at += 1
        left, right = points[at], points[at + 1]
        share = (step - left.step) / (right.step - left.step)
        share = min(1.0, max(0.0, share))
        means.append(
            (
                left.mean + (right.mean - left.mean) * share,
                left.std + (right.std - left.std) * share,
            )
        )
    return means


def dot_row(value: float, low: float, high: float, rows: int) -> int:
    """Return the dot row of a value, 0 at the top."""
    dots = rows * 4 - 1
    return min(dots, max(0, round((high - value) / (high - low) * dots)))


def _rows(dots: Sequence[int], rows: int) -> list[list[str]]:
    """Return the braille characters of a line through one dot a column."""
    cells = [[0] * (len(dots) // 2) for _ in range(rows)]
    before = dots[0]
    for column, dot in enumerate(dots):
        low, high = sorted((before, dot))
        for each in range(low + (before < dot), high + (before <= dot)) or (dot,):
            cells[each // 4][column // 2] |= _DOTS[each % 4][column % 2]
        cells[dot // 4][column // 2] |= _DOTS[dot % 4][column % 2]
        before = dot
    return [[chr(0x2800 + bits) if bits else " " for bits in row] for row in cells]


def braille(row: int, column: int) -> int:
    """Return the bit of one dot of a braille character: `row` 0-3 from the top, `column` 0 or 1."""
    return _DOTS[row][column]


def axis_label(row: int, rows: int, low: float, high: float) -> str:
    """Return the figure beside a row of a plot; empty except at both ends and, if tall, between."""
    span = high - low
    places = 2 if span < 10 else 0
    if span < 0.05 and low >= 0 and high < 10:
        places = 3
    if row == 0:
        return f"{high:.{places}f}"
    if row == rows - 1:
        return f"{low:.{places}f}"
    if rows >= 7 and row == rows // 2:
        return f"{high - (high - low) * (row + 0.5) / rows:.{places}f}"
    return ""


def merged(pieces: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the pieces, neighbours of the same style joined."""
    joined: list[tuple[str, str]] = []
    for text, style in pieces:
        if joined and joined[-1][1] == style:
            joined[-1] = (joined[-1][0] + text, style)
        else:
            joined.append((text, style))
    return joined


def sparkline(values: Sequence[float], full: float | None = None) -> Content:
    """Return one line of bars; 0 is a dot. `full` fills a cell; default: the highest value."""
    top = max(values, default=0.0) if full is None else full
    if top <= 0:
        return Content.styled("·" * len(values), "$faint")
    bars = "▁▂▃▄▅▆▇█"
    return Content.assemble(
        *merged(
            [
                ("·", "$faint")
                if value <= 0
                else (bars[min(7, int(value / top * 7.999))], "$curve")
                for value in values
            ]
        )
    )
