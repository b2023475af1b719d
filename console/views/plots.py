"""Plots of values in lines of text: dots over groups, a histogram, bars by rank."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from textual.content import Content

from ajet_swarm.common.text import plural
from console.views.chart import axis_label, bounds_of, braille, dot_row, merged

_LABEL = 6
MOST_RANGES = 12
"""Most ranges of a histogram."""
_EIGHTHS = " ▏▎▍▌▋▊▉"


@dataclass(frozen=True, slots=True)
class PlotColumn:
    """The values of one group."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean of its values."""
        return sum(self.values) / len(self.values)


def scatter(columns: Sequence[PlotColumn], width: int, height: int) -> list[Content]:
    """Plot each value as a dot over its group, oldest at the left; column means are highlighted.

    Groups in the same column of cells share its dots. The last line counts the groups.

    Args:
        columns: At least one value each.
        height: Total number of lines, including the count; at least 3.
    """
    room, rows = width - _LABEL, height - 1
    if not columns or rows < 2 or room < 4:
        return []
    values = [value for one in columns for value in one.values]
    low, high = bounds_of(min(values), max(values))
    dots = [[0] * room for _ in range(rows)]
    means: list[list[float]] = [[] for _ in range(room)]
    wide = room * 2
    for place, one in enumerate(columns):
        at = place * wide // len(columns)
        for value in one.values:
            dot = dot_row(value, low, high, rows)
            dots[dot // 4][at // 2] |= braille(dot % 4, at % 2)
        means[at // 2].append(one.mean)
    middle = [dot_row(sum(one) / len(one), low, high, rows) // 4 if one else None for one in means]
    lines = []
    for row in range(rows):
        pieces = [(f"{axis_label(row, rows, low, high):>{_LABEL - 1}} ", "$muted")]
        for column in range(room):
            bits = dots[row][column]
            if middle[column] == row:
                pieces.append(("━", "bold $winner"))
            else:
                pieces.append((chr(0x2800 + bits) if bits else " ", "$curve"))
        lines.append(Content.assemble(*merged(pieces)))
    label = plural(len(columns), "group")
    if len(columns) > 1 and len(label) + 21 <= room:
        label += ", newest at the right"
    legend = "  ⠂ answer  "
    pieces = [(f"{'':{_LABEL}}{label}", "$muted")]
    if len(label) + len(legend) + 6 <= room:
        pieces += [(legend, "$curve"), ("━", "bold $winner"), (" mean", "$winner")]
    return [*lines, Content.assemble(*pieces)]


def histogram(values: Sequence[float], width: int, rows: int) -> list[Content]:
    """Count the values in each of at most `rows` equal ranges, the highest range first."""
    if not values or rows < 1 or width < 20:
        return []
    low, high = bounds_of(min(values), max(values))
    count = _ranges(high - low, min(rows, MOST_RANGES))
    bins = [0] * count
    for value in values:
        bins[min(count - 1, int((value - low) / (high - low) * count))] += 1
    most = max(bins)
    size = len(str(most))
    lines = []
    for at in reversed(range(count)):
        start = low + (high - low) * at / count
        label = f"{_figure(start, high - low):>{_LABEL}}+ "
        bar = _bar(bins[at] / most, width - len(label) - size - 1)
        count_text = f" {bins[at]}" if bins[at] else " ·"
        tone = "" if bins[at] else "$faint"
        lines.append(Content.assemble((label, "$muted"), (bar, "$curve"), (count_text, tone)))
    return lines


def _ranges(span: float, most: int) -> int:
    """Return the number of equal round ranges that make up `span`; `most` if none fits."""
    for count in range(most, max(2, most // 2), -1):
        step = span / count
        first = step / 10 ** math.floor(math.log10(step) + 1e-9)
        if any(abs(first - good) < 1e-6 for good in (1, 2, 2.5, 5)):
            return count
    return most


def bars(rows: Sequence[tuple[str, float, str]], width: int) -> list[Content]:
    """Return a bar for each (label, value, words); the longest is the highest value above 0."""
    if not rows or width < 20:
        return []
    label = max(len(one) for one, _, _ in rows)
    words = max(len(one) for _, _, one in rows)
    top = max(1e-9, *(value for _, value, _ in rows))
    room = max(4, width - label - words - 2)
    return [
        Content.assemble(
            (f"{name:>{label}} ", "$muted"),
            (_bar(value / top, room), "$curve"),
            (f" {count_text}", ""),
        )
        for name, value, count_text in rows
    ]


def _bar(share: float, width: int) -> str:
    """Return a bar in eighths of a cell; a share above 0 is at least one eighth."""
    share = min(1.0, max(0.0, share))
    eighths = max(round(share * width * 8), 1 if share > 0 else 0)
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")


def _figure(value: float, span: float) -> str:
    places = 2 if span < 10 else 0
    if span < 0.1:
        places = min(4, 1 - math.floor(math.log10(span)))
    return f"{value:.{places}f}"
