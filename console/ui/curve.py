"""The curve of a reward by global step, on a shaded band of its spread."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from console.text.lines import Line
from console.ui.plot import LABEL, Axis, Plot

HAND = "◆"
RUN_END = "┊"
CHANGE = "┆"
"""The start of another version of the rewards."""
_LEGENDS: tuple[Line, ...] = tuple(
    ((HAND, "bold $winner"), (words, "$muted"))
    for words in (" human-rated: reward of the winner", " human-rated")
)


@dataclass(frozen=True, slots=True)
class Point:
    """One value by global step, with its spread."""

    step: int
    mean: float
    std: float
    hand: float | None = None
    """Mean human rating of the automatic winner, where there are some; a separate series."""
    engine_run: int = 0
    version: str = ""
    """Version of the rewards; empty when unknown."""
    dataset: str = ""
    """Dataset of the mock user; empty for the requests of users."""
    mode: str = ""
    """Rating mode; empty when unknown."""
    finished: bool = True
    """Whether the update of the step is done: its value is final."""


def latest(points: Sequence[Point]) -> tuple[Point, str]:
    """Return the newest finished point, else the newest one, and its step in words."""
    done = next((point for point in reversed(points) if point.finished), None)
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
        by_hand = [point.hand for point in part if point.hand is not None]
        thinned.append(
            Point(
                part[-1].step,
                sum(point.mean for point in part) / len(part),
                sum(point.std for point in part) / len(part),
                sum(by_hand) / len(by_hand) if by_hand else None,
                part[-1].engine_run,
                part[-1].version,
            )
        )
    return [*thinned, last]


def curve(points: Sequence[Point], width: int, height: int) -> list[Line]:
    """Return the curve in `height` lines of `width` cells: axis labels, plot, steps below.

    Human ratings are drawn as `◆`, with a legend below. A line `┊` marks the boundary of two engine
    runs, a line `┆` the start of another version of the rewards.

    Args:
        points: In order of their steps; without points there are no lines.
        height: Total number of lines, including the one with the steps; at least 3.
    """
    columns, rows = width - LABEL, height - 1
    if not points or height < 3 or columns < 4:
        return []
    shown = thin(points, columns)
    first, last = shown[0].step, shown[-1].step
    steps = f"step {first}", str(last) if len(shown) > 1 else ""
    if len(shown) == 1:  # a level line
        first -= 1
        shown.insert(0, replace(shown[0], step=first, hand=None))
    rated = [(point.step, point.hand) for point in shown if point.hand is not None]
    spread = [(point.step, point.mean - point.std, point.mean + point.std) for point in shown]
    axis = Axis.around(*(end for _, *ends in spread for end in ends), *(hand for _, hand in rated))
    plot = Plot(columns, rows, (first, last))
    plot.band(spread, axis)
    plot.line([(point.step, point.mean) for point in shown], axis, "$curve")
    for step in _changes(shown):
        _upright(plot, step, CHANGE)
    for left, right in pairwise(shown):
        if left.engine_run != right.engine_run:
            _upright(plot, (left.step + right.step) / 2, RUN_END)
    for step, hand in rated:
        plot.sign(plot.column(step), plot.row(hand, axis), HAND, "bold $winner")
    return [*plot.lines(axis), plot.foot(*steps, *(_LEGENDS if rated else ()))]


def _upright(plot: Plot, step: float, sign: str) -> None:
    for row in range(plot.rows):
        plot.sign(plot.column(step), row, sign, "$muted", behind=True)


def _changes(points: Sequence[Point]) -> list[int]:
    """Return the steps at which another known version of the rewards begins."""
    steps = []
    before = points[0].version
    for point in points:
        if point.version and before and point.version != before:
            steps.append(point.step)
        before = point.version or before
    return steps
