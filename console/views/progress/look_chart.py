"""Chart of the looks by global step, beside training reward and human ratings."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from textual.content import Content

from console.models.progress.curve import LookPoint, is_wins, look_points
from console.session.server_facts import step_reward
from console.text.format import number
from console.text.lines import Line, flow, line_width
from console.text.sections import Room, heading, lines
from console.ui.plot import LABEL, Axis, Plot, merged
from core.state import Progress, Server
from core.verdict.conclusion import CHANCE

BASELINE, LOOK, OLDER, HUMAN, CHECKPOINT = "◉", "●", "○", "◆", "▲"
"""Signs of a baseline, a look, one of an earlier comparison, a human rating, a checkpoint."""
_BAR, _LEVEL = "│", "┈"
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
        steps = [look.step for look in self.looks]
        steps += [step for step, _ in (*self.training, *self.human)]
        return [min(steps), max(steps)] if steps else []

    def axes(self) -> tuple[Axis | None, Axis | None]:
        """Return the axis of rewards and that of win rates; None without values."""
        rewards = [value for _, value in self.training]
        rates = [value for _, value in self.human]
        limits = [value for look in self.looks for value in (look.mean, look.low, look.high)]
        if self.wins:
            rates += [*limits, CHANCE]
        else:
            rewards += limits
        return (
            Axis.around(*rewards) if rewards else None,
            Axis(min(0.0, *rates), max(1.0, *rates)) if rates else None,
        )


def look_series(progress: Progress, server: Server | None) -> LookSeries:
    """Return the series of a server."""
    steps = server.steps if server is not None else []
    training = [
        (step.engine_run, step.step, mean)
        for step in steps
        if (mean := step_reward(step)[0]) is not None
    ]
    human = [(step.engine_run, step.step, step.hand_mean) for step in steps if step.hand]
    saved = (server.checkpoints or ()) if server is not None else ()
    return LookSeries(
        tuple(look_points(progress)),
        _newest_runs(training),
        _newest_runs(human),
        tuple(sorted({checkpoint.step + 1 for checkpoint in saved if not checkpoint.damaged})),
        is_wins(progress.looks),
    )


def _newest_runs(values: Iterable[tuple[int, int, float]]) -> tuple[Value, ...]:
    """Return the values; steps that a later engine run repeats are taken from that run only."""
    points: list[tuple[int, int, float]] = []
    for run, step, value in values:
        points = [point for point in points if point[0] == run or point[1] < step]
        points.append((run, step, value))
    return tuple(sorted((step, value) for _, step, value in points))


def look_figures(series: LookSeries) -> list[tuple[str, str]]:
    """Return the newest value of each series as pieces of a title."""
    pieces: list[tuple[str, str]] = []
    measured = [look for look in series.looks if not look.is_baseline] or series.looks
    if measured:
        point = measured[-1]
        word = "win rate" if series.wins else "probe"
        limits = f" ({number(point.low)} to {number(point.high)})"
        pieces += [(f"{word} ", "$muted"), (number(point.mean), "bold $curve"), (limits, "$curve")]
    for word, values, tone in (
        ("training", series.training, "$engine-post"),
        ("human", series.human, "$winner"),
    ):
        if values:
            gap = "  " if pieces else ""
            pieces += [(f"{gap}{word} ", "$muted"), (number(values[-1][1]), f"bold {tone}")]
    return pieces


def look_chart(series: LookSeries, width: int, height: int) -> list[Line]:
    """Return the chart in at most `height` lines of `width` cells: plot, axis, legend.

    Rewards have the axis at the left, win rates the one at the right.

    Args:
        height: Total number of lines; below 4 there is no chart.
    """
    legend = _legend(series, width)
    if len(legend) > 1:
        legend = _legend(series, width, short=True)
    ends = series.steps
    marks = [
        checkpoint for checkpoint in series.checkpoints if ends and ends[0] <= checkpoint <= ends[1]
    ]
    has_marks = bool(marks) and height - len(legend) >= _SHORT
    rows = height - len(legend) - 1 - has_marks
    left, right = series.axes()
    columns = width - LABEL - (LABEL if right is not None else 0)
    if not ends or rows < 2 or columns < 10:
        return []
    first, last = ends
    plot = Plot(columns, rows, (first, last))
    if left is not None:
        plot.line(series.training, left, "$engine-post")
    if (axis := right if series.wins else left) is not None:
        _draw_looks(plot, series.looks, axis)
    if right is not None:
        for step, value in series.human:
            plot.sign(plot.column(step), plot.row(value, right), HUMAN, "bold $winner")
    body = plot.lines(left, right, "$winner")
    if has_marks:
        places = {plot.column(step) for step in marks}
        signs = (
            (CHECKPOINT, "$returned") if column in places else ("─", "$faint")
            for column in range(columns)
        )
        body.append(((" " * LABEL, ""), *merged(signs)))
    body.append(plot.foot(f"step {first}", str(last) if last > first else ""))
    return [*body, *(((" " * LABEL, ""), *line) for line in legend)]


def _draw_looks(plot: Plot, looks: Sequence[LookPoint], axis: Axis) -> None:
    """Draw each look with its interval, and the level of the baseline in use from its step on."""
    level = next((look for look in reversed(looks) if look.is_baseline and look.is_current), None)
    if level is not None:
        for column in range(plot.column(level.step), plot.columns):
            plot.sign(column, plot.row(level.mean, axis), _LEVEL, "$faint", behind=True)
    for look in looks:
        column, tone = plot.column(look.step), "$curve" if look.is_current else "$muted"
        for row in range(plot.row(look.high, axis), plot.row(look.low, axis) + 1):
            plot.sign(column, row, _BAR, tone)
        sign = BASELINE if look.is_baseline else LOOK if look.is_current else OLDER
        plot.sign(column, plot.row(look.mean, axis), sign, f"bold {tone}")


def _legend(series: LookSeries, width: int, short: bool = False) -> list[Line]:
    """Return the signs of the series that are drawn, with their meaning."""
    older = any(not look.is_current for look in series.looks)
    probe = "win rate of the probe" if series.wins else "probe with its interval"
    named = (
        (
            any(look.is_baseline for look in series.looks),
            BASELINE,
            "$curve",
            "baseline",
            "baseline",
        ),
        (
            any(not look.is_baseline for look in series.looks),
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
        joined: Line = tuple(segment for piece in spaced for segment in piece)
        if line_width(joined) <= width - LABEL:
            return [joined] if joined else []
    return flow(pieces, width - LABEL)


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
