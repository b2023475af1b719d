"""Table of a server's last steps, newest first: rewards sent and results of the update."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from console.text.format import UNKNOWN, duration, figure, number
from console.text.lines import Line
from console.ui.table import Cell, Column, Table
from console.views.timeline import step_seconds, sync_seconds
from core.state import Server, StepStats


@dataclass(frozen=True, slots=True)
class Times:
    """Durations in seconds by global step, derived from the server's state changes."""

    steps: Mapping[int, float]
    syncs: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class _StepRow:
    """A step with the durations of all steps."""

    step: StepStats
    times: Times


def share_of(value: float | None) -> str:
    """Return a share as a percentage."""
    return UNKNOWN if value is None else f"{100 * value:.0f}%"


def reward_of(step: StepStats) -> tuple[float | None, float | None]:
    """Return mean and standard deviation of the automatic rewards, else of all rewards.

    Both are None if the groups of this console have only human rewards.
    """
    if step.auto:
        return step.auto_mean, step.auto_std
    if step.by_hand:
        return None, None
    return step.update.get("reward_mean"), step.update.get("reward_std")


def _shown(
    title: str,
    width: int,
    rank: int,
    text: Callable[[_StepRow], str],
    tone: str = "",
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
    step = row.step
    return duration(step.update.get("step_seconds", row.times.steps.get(step.step)))


def _synced(row: _StepRow) -> str:
    step = row.step
    return duration(step.update.get("sync_seconds", row.times.syncs.get(step.step)))


def _human(row: _StepRow) -> str:
    """Return the mean human reward of the answers with the best automatic reward."""
    return number(row.step.hand_mean if row.step.hand else None)


_TABLE = Table(
    (
        _shown("step", 5, 0, lambda row: str(row.step.step), "bold"),
        _shown("groups", 7, 6, lambda row: str(row.step.groups)),
        _shown("dead", 5, 7, lambda row: str(row.step.dead), "$dead"),
        _shown("reward", 7, 1, lambda row: number(reward_of(row.step)[0]), "$curve"),
        _shown("±std", 6, 2, lambda row: number(reward_of(row.step)[1]), "$muted"),
        _shown("human", 7, 5, _human, "$winner"),
        _shown("KL", 7, 3, _of("kl")),
        _shown("no sig", 7, 4, _of("no_signal_share", share_of)),
        _shown("clip", 6, 9, _of("clip_fraction", share_of), "$muted"),
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
    """Return a header and at most `most` steps; empty before the first step.

    Columns without any value are left out, then those of the highest rank until the rest fits.

    Args:
        server: The server.
        now: Unix seconds.
        width: Width in cells.
        most: Maximum number of steps.
    """
    steps = server.steps[: -most - 1 : -1]
    if not steps:
        return []
    times = Times(step_seconds(server.spans), sync_seconds(server.spans, now))
    rows = [_StepRow(step, times) for step in steps]
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
