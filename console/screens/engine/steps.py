"""A server's last steps: a table of rewards and updates, and their curves beside or below it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from textual.content import Content

from console.session.server_facts import step_reward
from console.text.format import UNKNOWN, duration, figure, number, share_text
from console.text.lines import Line, line_width
from console.ui.curve import Point, curve, latest
from console.ui.table import Cell, Column, Table
from console.views.timeline import step_seconds, sync_seconds
from core.state import Server, StepStats

BESIDE = 28
"""Minimum width in cells of curves beside the table; narrower ones are drawn below it."""
_GAP = 3
_MAX_LINES = 9
_MIN_LINES = 5
"""Limits on the lines of a curve, including its title."""
_BELOW = 36
"""Minimum width in cells of a curve below the table."""

# --- the table --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _StepRow:
    """A step with the durations of all steps in seconds, from the server's state changes."""

    step: StepStats
    steps: Mapping[int, float]
    syncs: Mapping[int, float]


def _shown(
    title: str, width: int, rank: int, text: Callable[[_StepRow], str], tone: str = ""
) -> Column[_StepRow]:
    """Return a column; what is unknown or 0 is faint."""

    def cell(row: _StepRow) -> Cell:
        shown = text(row)
        return shown, "$faint" if shown in (UNKNOWN, "0") else tone

    return Column(title, width, cell, rank=rank, right=True)


def _of(name: str, words: Callable[[float | None], str] = figure) -> Callable[[_StepRow], str]:
    return lambda row: words(row.step.update.get(name))


def _count(value: float | None) -> str:
    return UNKNOWN if value is None else str(round(value))


def _took(row: _StepRow) -> str:
    return duration(row.step.update.get("step_seconds", row.steps.get(row.step.step)))


def _synced(row: _StepRow) -> str:
    return duration(row.step.update.get("sync_seconds", row.syncs.get(row.step.step)))


def _human(row: _StepRow) -> str:
    """Return the mean human reward of the answers with the best automatic reward."""
    return number(row.step.hand_mean if row.step.hand else None)


_TABLE = Table(
    (
        _shown("step", 5, 0, lambda row: str(row.step.step), "bold"),
        _shown("groups", 7, 6, lambda row: str(row.step.groups)),
        _shown("dead", 5, 7, lambda row: str(row.step.dead), "$dead"),
        _shown("reward", 7, 1, lambda row: number(step_reward(row.step)[0]), "$curve"),
        _shown("±std", 6, 2, lambda row: number(step_reward(row.step)[1]), "$muted"),
        _shown("human", 7, 5, _human, "$winner"),
        _shown("KL", 7, 3, _of("kl")),
        _shown("no sig", 7, 4, _of("no_signal_share", share_text)),
        _shown("clip", 6, 9, _of("clip_fraction", share_text), "$muted"),
        _shown("entropy", 8, 10, _of("entropy"), "$muted"),
        _shown("length", 7, 11, _of("response_tokens"), "$muted"),
        _shown("grad", 7, 12, _of("grad_norm"), "$muted"),
        _shown("loss", 7, 13, _of("loss"), "$muted"),
        _shown("took", 7, 5, _took),
        _shown("sync", 6, 8, _synced, "$muted"),
        _shown("train", 7, 14, _of("seconds", duration), "$muted"),
        _shown("samples", 8, 15, _of("samples", _count), "$muted"),
        _shown("tokens", 8, 16, _of("tokens", _count), "$muted"),
    ),
    gap="",
)
_ALWAYS = 3
"""Columns with a rank below this are shown even if they are empty."""


def step_table(server: Server, now: float, width: int, most: int) -> list[Line]:
    """Return a header and at most `most` steps, newest first; empty before the first step.

    Columns without any value are left out, then those of the highest rank until the rest fits.
    """
    steps = server.steps[: -most - 1 : -1]
    if not steps:
        return []
    times = step_seconds(server.spans), sync_seconds(server.spans, now)
    rows = [_StepRow(step, *times) for step in steps]
    empty = tuple(
        column.title
        for column in _TABLE.columns
        if column.rank >= _ALWAYS and all(column.text(row)[0] == UNKNOWN for row in rows)
    )
    shown = [_TABLE.head(width, empty), *(_TABLE.row(row, width, empty) for row in rows)]
    if any(step.update_source == "pool" for step in steps):
        note = "no sig: from the last reading of the pool; the server reports no more"
        shown.append(((note, "$muted"),))
    return shown


# --- curves -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Series:
    title: str
    value: Callable[[StepStats], float | None]
    format: Callable[[float], str]
    """Formats a value for the title."""


def _update(name: str) -> Callable[[StepStats], float | None]:
    return lambda step: step.update.get(name)


_SERIES = (
    _Series("reward", lambda step: step_reward(step)[0], number),
    _Series("KL", _update("kl"), figure),
    _Series("entropy", _update("entropy"), figure),
    _Series("length", _update("response_tokens"), figure),
)


def with_curves(
    server: Server, left: Sequence[Content], table: Sequence[Line], width: int
) -> list[Content]:
    """Return the facts and the table of steps, with curves beside or below them.

    Args:
        server: The server.
        left: Facts above the table.
        table: Lines of the table; empty without a step.
        width: Total width in cells.
    """
    known = [(series, points) for series in _SERIES if (points := _points(server, series))]
    if not known:
        hint = "Curves of reward, KL, entropy and length start with the first finished group"
        return [*left, Content(""), Content.styled(hint, "$muted")]
    text = [*left, Content(""), *(Content.assemble(*line) for line in table)]
    room = width - max(map(line_width, table)) - _GAP
    if room < BESIDE:
        return [*text, Content(""), *_below(known, width)]
    height = max(_MIN_LINES, min(_MAX_LINES, len(text) // len(known)))
    drawn = [_curve(series, points, room, height) for series, points in known]
    curves = [line for block in drawn for line in block[:-1]]  # the last one has the steps
    return _beside(text, [*curves, drawn[-1][-1]], width - room - _GAP)


def _points(server: Server, series: _Series) -> list[Point]:
    return [
        Point(step.step, value, 0.0, engine_run=step.engine_run, finished=server.is_finished(step))
        for step in server.steps
        if (value := series.value(step)) is not None
    ]


def _curve(series: _Series, points: Sequence[Point], width: int, height: int) -> list[Content]:
    """Return the title, the curve in `height` - 1 lines, and the step numbers."""
    newest, step = latest(points)
    title = Content.assemble(
        (f"{series.title} ", "bold $heading"),
        (series.format(newest.mean), "bold $curve"),
        (f"  {step}", "$muted"),
    )
    return [title, *(Content.assemble(*line) for line in curve(points, width, height))]


def _beside(left: Sequence[Content], right: Sequence[Content], width: int) -> list[Content]:
    """Return both blocks side by side, the left one in `width` cells."""
    return [
        Content.assemble(
            text.truncate(width, ellipsis=True).pad_right(
                width - min(width, text.cell_length) + _GAP
            ),
            plot,
        )
        for text, plot in zip_longest(left, right, fillvalue=Content(""))
    ]


def _below(known: Sequence[tuple[_Series, list[Point]]], width: int) -> list[Content]:
    """Return rows of curves, as many side by side as fit."""
    most = max(1, min(len(known), width // _BELOW))
    columns = math.ceil(len(known) / math.ceil(len(known) / most))
    size = (width - _GAP * (columns - 1)) // columns
    rows: list[Content] = []
    for start in range(0, len(known), columns):
        block: list[Content] = []
        for at, (series, points) in enumerate(known[start : start + columns]):
            drawn = _curve(series, points, size, _MIN_LINES + 1)
            block = _beside(block, drawn, at * (size + _GAP) - _GAP) if at else drawn
        rows += block
    return rows
