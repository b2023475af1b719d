"""Chart of the looks by global step, beside training reward and human ratings."""

from collections.abc import Sequence
from dataclasses import dataclass

from console.screens.progress.model import LookPoint, is_wins, look_points, newest_runs
from console.session.server_facts import step_reward
from console.text.format import number
from console.text.lines import Line, flow
from console.ui.plot import LABEL, Axis, Plot, merged
from core.state import Progress, Server
from core.verdict.conclusion import CHANCE

BASELINE, LOOK, OLDER, HUMAN, CHECKPOINT = "◉", "●", "○", "◆", "▲"
"""Signs of a baseline, a look, one of an earlier comparison, a human rating, a checkpoint."""
_BAR, _LEVEL = "│", "┈"
_SHORT = 6
"""Below this number of lines the checkpoints have no line of their own."""
_TRAINING, _TRAINING_TONE = "⠤⠤", "$muted"
"""Sign and colour of the training reward: the looks stand out against it."""
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
    rewards = [(step, step_reward(step)[0]) for step in steps]
    training = (
        (at.engine_run, at.step, (at.step, mean)) for at, mean in rewards if mean is not None
    )
    human = ((at.engine_run, at.step, (at.step, at.hand_mean)) for at in steps if at.hand)
    saved = (server.checkpoints or ()) if server is not None else ()
    return LookSeries(
        tuple(look_points(progress)),
        tuple(newest_runs(training)),
        tuple(newest_runs(human)),
        tuple(sorted({checkpoint.step + 1 for checkpoint in saved if not checkpoint.damaged})),
        is_wins(progress),
    )


def look_chart(series: LookSeries, width: int, height: int) -> list[Line]:
    """Return the chart in at most `height` lines of `width` cells: plot, axis, legend.

    Rewards have the axis at the left, win rates the one at the right. Below 4 lines there is no
    chart.
    """
    legend = _legend(series, width)
    ends = series.steps
    marks = [step for step in series.checkpoints if ends and ends[0] <= step <= ends[1]]
    has_marks = bool(marks) and height - len(legend) >= _SHORT
    rows = height - len(legend) - 1 - has_marks
    left, right = series.axes()
    columns = width - LABEL - (LABEL if right is not None else 0)
    if not ends or rows < 2 or columns < 10:
        return []
    first, last = ends
    plot = Plot(columns, rows, (first, last))
    if left is not None:
        plot.line(series.training, left, _TRAINING_TONE)
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


def _legend(series: LookSeries, width: int) -> list[Line]:
    """Return the signs of the series that are drawn, with their meaning; briefly if need be."""
    baselines = [look for look in series.looks if look.is_baseline]
    older = [look for look in series.looks if not look.is_current]
    probe = "win rate of the probe (right)" if series.wins else "probe with its interval"
    lines: list[Line] = []
    for brief in (False, True):
        named = (
            (baselines, BASELINE, "$curve", "baseline"),
            (len(series.looks) > len(baselines), LOOK, "$curve", "probe" if brief else probe),
            (older, OLDER, "$muted", "earlier" if brief else "earlier comparison"),
            (series.training, _TRAINING, _TRAINING_TONE, "training" + " reward" * (not brief)),
            (series.human, HUMAN, "$winner", f"human {'' if brief else 'win rate '}(right)"),
            (series.checkpoints, CHECKPOINT, "$returned", "checkpoint"),
        )
        pieces = [
            ((sign, tone), (f" {words}", "$muted"))
            for is_shown, sign, tone, words in named
            if is_shown
        ]
        lines = flow(pieces, width - LABEL)
        if len(lines) < 2:
            break
    return lines


def look_lines(
    progress: Progress, server: Server | None, width: int, height: int, may_look: bool
) -> list[Line]:
    """Return the title and the chart; without a value, what will appear.

    Args:
        progress: The progress of the server.
        server: The server.
        width: Cells of a line.
        height: Most lines.
        may_look: Whether the key `l` takes a look now.
    """
    series = look_series(progress, server)
    title: list[tuple[str, str]] = [("LOOKS", "bold $heading")]
    hint: list[Line] = []
    if not series.looks:
        key = ": l takes it now" if may_look else ""
        hint = [((f"The curve of the looks starts with the first one{key}", "$muted"),)]
    if not series.steps:
        return [(*title, ("  by global step", "$muted")), *hint]
    if series.looks:
        point = next(
            (look for look in reversed(series.looks) if not look.is_baseline), series.looks[-1]
        )
        title += [
            (f"  {'win rate' if series.wins else 'probe'} ", "$muted"),
            (number(point.mean), "bold $curve"),
            (f" ({number(point.low)} to {number(point.high)})", "$curve"),
        ]
    for word, values, tone in (
        ("training", series.training, _TRAINING_TONE),
        ("human", series.human, "$winner"),
    ):
        if values:
            title += [(f"  {word} ", "$muted"), (number(values[-1][1]), f"bold {tone}")]
    return [tuple(title), *hint, *look_chart(series, width, height - 1 - len(hint))]
