"""Engine runs as lines: the table, the details of one, the comparison of two."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from ajet_swarm.common.text import one_line, plural
from console.models.job_form import RunJob
from console.screens.history.model import (
    RunChange,
    RunComparison,
    duration_of,
    ending,
    job_of,
    run_trend,
    since_start,
    title,
    verdict_sentence,
    verdict_word,
)
from console.text.format import UNKNOWN, duration, number
from console.text.lines import Line, fit, flow
from console.text.wrap import wrapped
from console.ui.plot import LABEL, Axis, Plot, sparkline
from console.ui.table import Cell, Column, Table
from core.state import EngineRun, EngineRuns, RunPoint
from core.verdict.conclusion import sentence

VERDICT_TONES = {"better": "$reward-up", "worse": "$reward-down"}
MARK, PIN = "✓", "◆"
_SPARK = 12
"""Cells of the small curve in the table."""
_LABEL = 12
TONES = ("$curve", "$winner")
"""Colours of the first and the second curve."""
_SPAN = 0.05
"""Minimum height of the axis: less is noise."""


@dataclass(frozen=True, slots=True)
class _RunRow:
    """A run with what its line in the table shows."""

    run: EngineRun
    job: RunJob
    now: float
    """Unix seconds, for a run in progress."""


def when(at: float) -> str:
    """Format a local date and time: `11-23 14:05`."""
    return time.strftime("%m-%d %H:%M", time.localtime(at))


def _date(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def steps_text(run: EngineRun) -> str:
    """Return the global steps of a run: `1-40`, `7`, or a dash before the first sample."""
    if run.first_step is None or run.last_step is None:
        return UNKNOWN
    same = run.first_step == run.last_step
    return str(run.first_step) if same else f"{run.first_step}-{run.last_step}"


def rewards_text(run: EngineRun) -> str:
    """Return the first and the last mean reward: `0.45→0.62`; a dash without one."""
    first, last = run.first_reward, run.last_reward
    if first is None or last is None:
        return UNKNOWN
    if first.step == last.step:
        return number(last.mean)
    return f"{number(first.mean)}→{number(last.mean)}"


def _gain_tone(run: EngineRun) -> str:
    trend = run_trend(run)
    return "" if trend is None else trend.tone


_NAMED, _NAMED_OR_JOB = "name or note", "name, note or job"
"""Titles of the last column where the job has a column of its own, and where it has not."""


def _named(row: _RunRow, job: str = "") -> Cell:
    """Return the name of a run, else its note, else `job`."""
    known = one_line(row.run.name or row.run.note.partition("\n")[0], 80)
    return known or job, "" if row.run.name or row.run.note else "$muted"


def _lasted(row: _RunRow) -> Cell:
    tone = "bold $engine-rolling" if row.run.running else ""
    return duration(duration_of(row.run, row.now)), tone


def _judged(row: _RunRow) -> Cell:
    word = verdict_word(row.run)
    return word, VERDICT_TONES.get(word, "$muted")


_COLUMNS: tuple[Column[_RunRow], ...] = (
    Column("run", 4, lambda row: str(row.run.number), "bold", right=True),
    Column("", 1, lambda row: PIN if row.run.pinned else "", "$accent"),
    Column("began", 11, lambda row: when(row.run.began), "$muted", rank=1),
    Column("lasted", 6, _lasted, rank=3, right=True),
    Column("server", 10, lambda row: one_line(row.run.server, 40), rank=9),
    Column("job", 26, lambda row: row.job.brief or UNKNOWN, rank=8),
    Column("steps", 9, lambda row: steps_text(row.run), rank=2, right=True),
    Column("groups", 6, lambda row: str(row.run.groups), rank=6, right=True),
    Column("reward", 10, lambda row: (rewards_text(row.run), _gain_tone(row.run)), right=True),
    Column("curve", _SPARK, lambda row: small_curve(row.run), "$curve", rank=7),
    Column("verdict", 9, _judged, rank=2),
    Column("rated", 5, lambda row: str(row.run.rated or UNKNOWN), rank=4, right=True),
    Column(_NAMED, 12, _named, most=999),
    Column(_NAMED_OR_JOB, 12, lambda row: _named(row, row.job.brief), most=999),
)
_CLOSE = Table(_COLUMNS, tone="bold $muted")
_APART = Table(_COLUMNS, gap="  ", tone="bold $muted")
_ROOMY = 100
"""Cells from which columns are two cells apart."""


def small_curve(run: EngineRun) -> str:
    """Return the reward curve in `_SPARK` cells of bars, from its lowest to its highest value."""
    means = [point.mean for point in run.finished_curve]
    if len(means) < 2:
        return ""
    size = min(_SPARK, len(means))
    thin = []
    for cell in range(size):
        part = means[cell * len(means) // size : (cell + 1) * len(means) // size]
        thin.append(sum(part) / len(part))
    low, high = min(thin), max(thin)
    span = max(high - low, 1e-9)
    return sparkline([0.06 + 0.94 * (value - low) / span for value in thin], full=1.0).plain


def _table(width: int, several: bool) -> tuple[Table[_RunRow], tuple[str, ...]]:
    """Return the table, and the titles of the columns that it must not show."""
    table = _APART if width >= _ROOMY else _CLOSE
    others = () if several else ("server",)
    fitted = table.fitted(width - 2, (*others, _NAMED_OR_JOB))
    has_job = any(column.title == "job" for column, _ in fitted)
    return table, (*others, _NAMED_OR_JOB if has_job else _NAMED)


def table_head(width: int, *, several: bool) -> Line:
    """Return the titles of the columns."""
    table, without = _table(width, several)
    return (("  ", ""), *table.head(width - 2, without))


def table_row(
    runs: EngineRuns, run: EngineRun, now: float, width: int, *, several: bool, marked: bool = False
) -> Line:
    """Return the line of a run in exactly `width` cells.

    Args:
        runs: All runs.
        run: The run.
        now: Unix seconds, for a run in progress.
        width: Cells.
        several: Whether the runs are of several servers.
        marked: Whether it is marked for a comparison.
    """
    table, without = _table(width, several)
    mark = (f"{MARK if marked else ' '} ", "bold $winner")
    return (mark, *table.row(_RunRow(run, job_of(runs, run), now), width - 2, without))


# --- one run --------------------------------------------------------------------------------------


def detail(
    runs: EngineRuns, run: EngineRun, now: float, width: int, height: int, *, live: bool = True
) -> list[Line]:
    """Return everything about a run, with its reward curve in the remaining lines.

    Args:
        runs: All runs.
        run: The run.
        now: Unix seconds.
        width: Cells of a line.
        height: Lines that are visible.
        live: Whether the proxy that observes the engines runs; else no run is called running.
    """
    lines = [_head(run, now, width, live), *_facts(runs, run, width)]
    room = max(5, min(14, height - len(lines) - 1))
    plot = overlay([RunCurve(run.finished_curve, title(run))], width, room)
    if not plot:
        return [*lines, (("No group of this run has automatic rewards.", "$muted"),)]
    return [*lines, (), *plot]


def _head(run: EngineRun, now: float, width: int, live: bool) -> Line:
    unended = "running" if live else "no end recorded"
    end = unended if run.ended is None else f"to {_date(run.ended)}"
    took = duration(duration_of(run, now))
    text = f"  {_date(run.began)} {end}, {took}, on {one_line(run.server, 40)}"
    name = title(run).replace("run", "Run", 1)
    cells = min(cell_len(name), max(10, width // 2))
    rest = fit(text, max(0, width - cells)).rstrip()
    return ((fit(name, cells), "bold $heading"), (rest, "$muted"))


def _facts(runs: EngineRuns, run: EngineRun, width: int) -> list[Line]:
    job, verdict = job_of(runs, run), VERDICT_TONES.get(verdict_word(run), "$muted")
    rows = (
        ("ended", ending(run) if run.ending != "stopped" else "", ""),
        ("job", job_text(job), "" if job.model else "$muted"),
        ("weights", ", ".join(one_line(weight, 60) for weight in run.weights), ""),
        ("steps", counts_text(run), ""),
        ("reward", reward_sentence(run), _gain_tone(run)),
        ("verdict", verdict_sentence(run), verdict),
        ("rewards", ", ".join(one_line(reward, 20) for reward in run.rewards), ""),
        ("note", one_line(run.note, 1_000), ""),
        ("pinned", "its requests stay when the journal is pruned" * run.pinned, "$accent"),
    )
    return [
        ((fit(label if not place else "", _LABEL), "$muted"), (part, tone))
        for label, text, tone in rows
        if text
        for place, part in enumerate(wrapped(text, max(10, width - _LABEL)))
    ]


def job_text(job: RunJob) -> str:
    """Return the job in one sentence."""
    if not job.fields and not job.model:
        return "unknown: another program started the engine"
    parts = [job.model, job.algorithm]
    parts += [f"{label} {value}" for label, value in job.fields]
    if job.experiment:
        parts.append(f"experiment {job.experiment}")
    if not job.fields:
        parts.append("other settings unknown")
    return ", ".join(filter(None, parts))


def counts_text(run: EngineRun) -> str:
    """Return steps, groups, dead groups and ratings in words."""
    updates, groups = plural(run.updates, "update"), plural(run.groups, "group")
    return f"{steps_text(run)} ({updates}), {groups}, {run.dead} dead, {run.rated} human-rated"


def reward_sentence(run: EngineRun) -> str:
    """Return first and last mean reward with their steps, and the change beside its noise."""
    first, last = run.first_reward, run.last_reward
    if first is None or last is None:
        return UNKNOWN
    if first.step == last.step:
        return f"{number(last.mean)} at step {last.step}"
    trend = run_trend(run)
    change = "" if trend is None else f"; {trend.words} since step {first.step}"
    ends = f"{number(first.mean)} at step {first.step}, {number(last.mean)} at step {last.step}"
    return f"{ends}{change}"


# --- two runs -------------------------------------------------------------------------------------


def comparison(compared: RunComparison, now: float, width: int, height: int) -> list[Line]:
    """Return the comparison of two runs: which is better, figures, job, rewards, both curves.

    Args:
        compared: The differences.
        now: Unix seconds.
        width: Cells of a line.
        height: Lines that are visible.
    """
    left, right = compared.left, compared.right
    figures = [
        RunChange("began", _date(left.began), _date(right.began)),
        RunChange("lasted", duration(duration_of(left, now)), duration(duration_of(right, now))),
        *(
            RunChange(label, text(left), text(right))
            for label, text in (
                ("steps", lambda run: f"{steps_text(run)} ({plural(run.updates, 'update')})"),
                ("groups", lambda run: f"{run.groups}, {run.dead} dead, {run.rated} rated"),
                ("reward", _reward_and_gain),
                ("verdict", _verdict),
            )
        ),
    ]
    names = [figure.what for figure in (*figures, *compared.job, *compared.rewards)]
    label = min(max(map(len, names)) + 2, max(12, width // 3))
    column = max(8, (width - label) // 2 - 1)
    head: Line = (
        (" " * label, ""),
        (fit(f"━━ {title(left)}", column) + " ", "bold $curve"),
        (fit(f"┅┅ {title(right)}", column), "bold $winner"),
    )
    lines: list[Line] = [((part, "bold"),) for part in wrapped(compared.conclusion, width)]
    lines += [(), head, *_pairs(figures, label, column)]
    for name, changes, note in (
        ("JOB", compared.job, compared.job_note),
        ("REWARDS", compared.rewards, compared.rewards_note),
    ):
        section: Line = ((name, "bold $heading"), (f"  {note}" if note else "", "$muted"))
        lines += [(), *flow([section], width), *_pairs(changes, label, column)]
    curves = [RunCurve(since_start(run), f"run {run.number}") for run in (left, right)]
    room = max(7, min(18, height - len(lines) - 1))
    drawn = overlay(curves, width, room, "updates since the start:")
    nothing: Line = (("Neither run has groups with automatic rewards.", "$muted"),)
    return [*lines, (), *(drawn or [nothing])]


def _reward_and_gain(run: EngineRun) -> str:
    trend = run_trend(run)
    return rewards_text(run) + ("" if trend is None else f" ({trend.words})")


def _verdict(run: EngineRun) -> str:
    return UNKNOWN if run.verdict is None else sentence(run.verdict).partition(", ")[0]


def _pairs(changes: Sequence[RunChange], label: int, column: int) -> list[Line]:
    """Return a line for each change: its name, and the value of each run in `column` cells."""
    lines: list[Line] = []
    for change in changes:
        tone = "bold" if change.left != change.right else ""
        lines.append(
            (
                (fit(change.what, label), "$muted"),
                (fit(change.left, column) + " ", tone),
                (fit(change.right, column).rstrip(), tone),
            )
        )
    return lines


# --- curves --------------------------------------------------------------------------------------


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
