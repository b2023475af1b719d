"""Chart of the looks by global step, beside training reward and human ratings."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from textual.content import Content

from console.models.progress.curve import LookPoint, is_wins, look_points
from console.text.format import number
from console.text.lines import Line, flow, line_width
from console.text.sections import Room, heading, lines
from console.views.chart import axis_label, bounds_of, braille, merged
from console.views.step_table import reward_of
from core.state import Progress, Server
from core.verdict.conclusion import CHANCE

BASELINE, LOOK, OLDER, HUMAN, CHECKPOINT = "◉", "●", "○", "◆", "▲"
"""Signs of a baseline, a look, one of an earlier comparison, a human rating, a checkpoint."""
_BAR, _LEVEL = "│", "┈"
_LABEL = 6
"""Width of the labels of an axis."""
_SHORT = 6
"""Below this number of lines the checkpoints have no line of their own."""
_TRAINING = "⠤⠤"
Value = tuple[int, float]
"""A step and a value."""


@dataclass(frozen=True, slots=True)
class LookSeries:
    """The series of the chart; all in ascending order of steps."""

    looks: tuple[LookPoint, ...] = ()
    training: tuple[Value, ...] = ()
    """Mean automatic reward of the groups of a step."""
    human: tuple[Value, ...] = ()
    """Human win rate of a step: mean human reward of the answers that win automatically."""
    checkpoints: tuple[int, ...] = ()
    """Steps that the saved weights sample: a checkpoint itself counts the updates in it."""
    wins: bool = False
    """The looks are win rates and have the axis of the human ratings."""

    @property
    def steps(self) -> list[int]:
        """First and last step; empty without a value."""
        steps = [one.step for one in self.looks]
        steps += [step for step, _ in (*self.training, *self.human)]
        return [min(steps), max(steps)] if steps else []


def look_series(progress: Progress, server: Server | None) -> LookSeries:
    """Return the series of a server."""
    steps = server.steps if server is not None else []
    training = [
        (one.engine_run, one.step, mean) for one in steps if (mean := reward_of(one)[0]) is not None
    ]
    human = [(one.engine_run, one.step, one.hand_mean) for one in steps if one.hand]
    saved = (server.checkpoints or ()) if server is not None else ()
    return LookSeries(
        tuple(look_points(progress)),
        _newest_runs(training),
        _newest_runs(human),
        tuple(sorted({one.step + 1 for one in saved if not one.damaged})),
        is_wins(progress.looks),
    )


def _newest_runs(values: Iterable[tuple[int, int, float]]) -> tuple[Value, ...]:
    """Return the values; steps that a later engine run repeats are taken from that run only."""
    points: list[tuple[int, int, float]] = []
    for run, step, value in values:
        points = [one for one in points if one[0] == run or one[1] < step]
        points.append((run, step, value))
    return tuple(sorted((step, value) for _, step, value in points))


def look_figures(series: LookSeries) -> list[tuple[str, str]]:
    """Return the newest value of each series as pieces of a title."""
    pieces: list[tuple[str, str]] = []
    measured = [one for one in series.looks if not one.is_baseline] or series.looks
    if measured:
        one = measured[-1]
        word = "win rate" if series.wins else "probe"
        limits = f" ({number(one.low)} to {number(one.high)})"
        pieces += [(f"{word} ", "$muted"), (number(one.mean), "bold $curve"), (limits, "$curve")]
    for word, values, tone in (
        ("training", series.training, "$engine-post"),
        ("human", series.human, "$winner"),
    ):
        if values:
            gap = "  " if pieces else ""
            pieces += [(f"{gap}{word} ", "$muted"), (number(values[-1][1]), f"bold {tone}")]
    return pieces


def look_chart(series: LookSeries, width: int, height: int) -> list[Content]:
    """Return the chart in at most `height` lines of `width` cells: plot, axis, legend.

    Rewards have the axis at the left, win rates the one at the right.

    Args:
        height: Total number of lines; below 4 there is no chart.
    """
    legend = _legend(series, width)
    if len(legend) > 1:
        legend = _legend(series, width, short=True)
    ends = series.steps
    marks = [one for one in series.checkpoints if ends and ends[0] <= one <= ends[1]]
    has_marks = bool(marks) and height - len(legend) >= _SHORT
    rows = height - len(legend) - 1 - has_marks
    right = _LABEL if series.human or series.wins else 0
    columns = width - _LABEL - right
    if not ends or rows < 2 or columns < 10:
        return []
    plot = _Plot(series, columns, rows)
    body = []
    for row in range(rows):
        left_label = plot.left_label(row)
        pieces = [(f"{left_label:>{_LABEL - 1}} ", "$muted"), *plot.row(row)]
        if right:
            pieces.append((f" {plot.right_label(row):<{right - 1}}", "$winner"))
        body.append(Content.assemble(*merged(pieces)))
    if has_marks:
        line = ["─"] * columns
        for step in marks:
            line[plot.column(step)] = CHECKPOINT
        tones = [(one, "$returned" if one == CHECKPOINT else "$faint") for one in line]
        body.append(Content.assemble((" " * _LABEL, ""), *merged(tones)))
    body.append(_steps_line(ends, columns))
    return [*body, *(Content.assemble((" " * _LABEL, ""), *line) for line in legend)]


def _steps_line(ends: Sequence[int], columns: int) -> Content:
    first, last = f"step {ends[0]}", str(ends[1]) if ends[1] > ends[0] else ""
    space = " " * max(1, columns - len(first) - len(last))
    return Content.styled(" " * _LABEL + first + space + last, "$muted")


def _legend(series: LookSeries, width: int, short: bool = False) -> list[Line]:
    """Return the signs of the series that are drawn, with their meaning."""
    older = any(not one.is_current for one in series.looks)
    probe = "win rate of the probe" if series.wins else "probe with its interval"
    named = (
        (any(one.is_baseline for one in series.looks), BASELINE, "$curve", "baseline", "baseline"),
        (
            any(not one.is_baseline for one in series.looks),
            LOOK,
            "$curve",
            f"{probe}{' (right)' if series.wins else ''}",
            "probe",
        ),
        (older, OLDER, "$muted", "earlier comparison", "earlier"),
        (series.training, _TRAINING, "$engine-post", "training reward", "training"),
        (series.human, HUMAN, "$winner", "human win rate (right)", "human (right)"),
        (series.checkpoints, CHECKPOINT, "$returned", "checkpoint", "checkpoint"),
    )
    pieces: list[Line] = [
        ((sign, tone), (f" {brief if short else words}", "$muted"))
        for there, sign, tone, words, brief in named
        if there
    ]
    if short:
        spaced: list[Line] = []
        for piece in pieces:
            gap: Line = ((" ", ""),) if spaced else ()
            spaced.append((*gap, *piece))
        joined: Line = tuple(one for piece in spaced for one in piece)
        if line_width(joined) <= width - _LABEL:
            return [joined] if joined else []
    return flow(pieces, width - _LABEL)


class _Plot:
    """The cells of the chart without axes.

    Args:
        series: What to draw; with at least one value.
        columns: Width in cells.
        rows: Height in cells.
    """

    def __init__(self, series: LookSeries, columns: int, rows: int) -> None:
        self._columns, self._rows = columns, rows
        self._first, self._last = series.steps
        on_left = [value for _, value in series.training]
        on_right = [value for _, value in series.human]
        limits = [value for one in series.looks for value in (one.mean, one.low, one.high)]
        if series.wins:
            on_right += [*limits, CHANCE]
        else:
            on_left += limits
        self._left = bounds_of(min(on_left), max(on_left)) if on_left else None
        self._right = (min(0.0, *on_right), max(1.0, *on_right)) if on_right else None
        self._cells: list[list[tuple[str, str]]] = [[(" ", "")] * columns for _ in range(rows)]
        axis = self._right if series.wins else self._left
        if axis is not None:
            self._draw_level(series.looks, axis)
        if self._left is not None:
            self._draw_training(series.training, self._left)
        if axis is not None:
            for one in series.looks:
                self._draw_look(one, axis)
        if self._right is not None:
            for step, value in series.human:
                place = self._dot(value, self._right) // 4
                self._cells[place][self.column(step)] = (HUMAN, "bold $winner")

    def row(self, row: int) -> list[tuple[str, str]]:
        """Return the pieces of a row."""
        return self._cells[row]

    def left_label(self, row: int) -> str:
        """Return the label of a row on the axis of rewards."""
        return axis_label(row, self._rows, *self._left) if self._left is not None else ""

    def right_label(self, row: int) -> str:
        """Return the label of a row on the axis of win rates."""
        return axis_label(row, self._rows, *self._right) if self._right is not None else ""

    def column(self, step: float) -> int:
        """Return the column of a step."""
        return self._dot_column(step) // 2

    def _dot_column(self, step: float) -> int:
        span = self._last - self._first
        share = (step - self._first) / span if span else 0.0
        return round(share * (self._columns * 2 - 1))

    def _dot(self, value: float, ends: tuple[float, float]) -> int:
        """Return the dot row of a value, 0 at the top."""
        dots = self._rows * 4 - 1
        share = (ends[1] - value) / (ends[1] - ends[0])
        return min(dots, max(0, round(share * dots)))

    def _draw_level(self, looks: Sequence[LookPoint], ends: tuple[float, float]) -> None:
        """Draw the mean of the baseline in use as a line from its step on."""
        baseline = next(
            (one for one in reversed(looks) if one.is_baseline and one.is_current), None
        )
        if baseline is not None:
            place = self._dot(baseline.mean, ends) // 4
            for column in range(self.column(baseline.step), self._columns):
                self._cells[place][column] = (_LEVEL, "$faint")

    def _draw_training(self, values: Sequence[Value], ends: tuple[float, float]) -> None:
        bits: dict[tuple[int, int], int] = {}
        spots = [(self._dot_column(step), self._dot(value, ends)) for step, value in values]
        for left, right in pairwise([*spots[:1], *spots]):  # one value alone is a line to itself
            for column, dot in _line(left, right):
                cell = (dot // 4, column // 2)
                bits[cell] = bits.get(cell, 0) | braille(dot % 4, column % 2)
        for (row, column), dots in bits.items():
            self._cells[row][column] = (chr(0x2800 + dots), "$engine-post")

    def _draw_look(self, one: LookPoint, ends: tuple[float, float]) -> None:
        column = self.column(one.step)
        tone = "$curve" if one.is_current else "$muted"
        top, bottom = self._dot(one.high, ends) // 4, self._dot(one.low, ends) // 4
        for row in range(top, bottom + 1):
            self._cells[row][column] = (_BAR, tone)
        sign = BASELINE if one.is_baseline else LOOK if one.is_current else OLDER
        self._cells[self._dot(one.mean, ends) // 4][column] = (sign, f"bold {tone}")


def _line(left: tuple[int, int], right: tuple[int, int]) -> Iterable[tuple[int, int]]:
    """Return the dots of a straight line between two dots, both included."""
    count = max(abs(right[0] - left[0]), abs(right[1] - left[1]), 1)
    for at in range(count + 1):
        share = at / count
        yield (
            round(left[0] + (right[0] - left[0]) * share),
            round(left[1] + (right[1] - left[1]) * share),
        )


def chart_section(progress: Progress, server: Server | None, room: Room, may_look: bool) -> Content:
    """Return the title and the chart for a section; without a value, what will appear.

    Args:
        progress: The progress of the server.
        server: The server.
        room: Available space.
        may_look: Whether the key `l` takes a look now.
    """
    series = look_series(progress, server)
    hint: list[Content] = []
    if not series.looks:
        key = ": l takes it now" if may_look else ""
        words = f"The curve of the looks starts with the first one{key}"
        hint = [Content.styled(words, "$muted")]
    if not series.steps:
        return lines(heading("LOOKS", "by global step"), *hint)
    title = heading("LOOKS", Content.assemble(*look_figures(series)))
    return lines(title, *hint, *look_chart(series, room.width, room.height - 1 - len(hint)))
