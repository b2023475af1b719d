"""Table of a server's last steps, newest first: rewards sent and results of the update."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from textual.content import Content

from console.text.format import UNKNOWN, duration, figure, number
from console.views.timeline import step_seconds, sync_seconds
from core.state import Server, StepStats


@dataclass(frozen=True, slots=True)
class Times:
    """Durations in seconds by global step, derived from the server's state changes."""

    steps: Mapping[int, float]
    syncs: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class StepColumn:
    """A column; where space is short, columns with a high `rank` are left out first."""

    title: str
    width: int
    rank: int
    text: Callable[[StepStats, Times], str]
    tone: str = ""


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


def _human(step: StepStats, times: Times) -> str:
    """Return the mean human reward of the answers with the best automatic reward."""
    return number(step.hand_mean if step.hand else None)


def _of(name: str) -> Callable[[StepStats, Times], str]:
    return lambda step, times: figure(step.update.get(name))


def _count(name: str) -> Callable[[StepStats, Times], str]:
    def text(step: StepStats, times: Times) -> str:
        value = step.update.get(name)
        return UNKNOWN if value is None else str(round(value))

    return text


def _took(step: StepStats, times: Times) -> str:
    return duration(step.update.get("step_seconds", times.steps.get(step.step)))


def _synced(step: StepStats, times: Times) -> str:
    return duration(step.update.get("sync_seconds", times.syncs.get(step.step)))


COLUMNS = (
    StepColumn("step", 5, 0, lambda step, _: str(step.step), "bold"),
    StepColumn("groups", 7, 6, lambda step, _: str(step.groups)),
    StepColumn("dead", 5, 7, lambda step, _: str(step.dead), "$dead"),
    StepColumn("reward", 7, 1, lambda step, _: number(reward_of(step)[0]), "$curve"),
    StepColumn("±std", 6, 2, lambda step, _: number(reward_of(step)[1]), "$muted"),
    StepColumn("human", 7, 5, _human, "$winner"),
    StepColumn("KL", 7, 3, _of("kl")),
    StepColumn("no sig", 7, 4, lambda step, _: share_of(step.update.get("no_signal_share"))),
    StepColumn("clip", 6, 9, lambda step, _: share_of(step.update.get("clip_fraction")), "$muted"),
    StepColumn("entropy", 8, 10, _of("entropy"), "$muted"),
    StepColumn("length", 7, 11, _of("response_tokens"), "$muted"),
    StepColumn("grad", 7, 12, _of("grad_norm"), "$muted"),
    StepColumn("loss", 7, 13, _of("loss"), "$muted"),
    StepColumn("took", 7, 5, _took),
    StepColumn("sync", 6, 8, _synced, "$muted"),
    StepColumn("train", 7, 14, lambda step, _: duration(step.update.get("seconds")), "$muted"),
    StepColumn("samples", 8, 15, _count("samples"), "$muted"),
    StepColumn("tokens", 8, 16, _count("tokens"), "$muted"),
)
_ALWAYS = 3
"""Columns with a rank below this are shown even if they are empty."""


def step_table(server: Server, now: float, width: int, most: int) -> list[Content]:
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
    rows = [[column.text(step, times) for column in COLUMNS] for step in steps]
    shown = _shown(rows, width)
    table_lines = [
        Content.styled(
            "".join(f"{COLUMNS[index].title:>{COLUMNS[index].width}}" for index in shown), "$muted"
        )
    ]
    for row in rows:
        pieces = [
            (f"{row[index]:>{COLUMNS[index].width}}", _tone(COLUMNS[index], row[index]))
            for index in shown
        ]
        table_lines.append(Content.assemble(*pieces))
    if any(step.update_source == "pool" for step in steps):
        table_lines.append(
            Content.styled(
                "no sig: from the last reading of the pool; the server reports no more",
                "$muted",
            )
        )
    return table_lines


def _shown(rows: list[list[str]], width: int) -> list[int]:
    filled = [
        index
        for index, column in enumerate(COLUMNS)
        if column.rank < _ALWAYS or any(row[index] != UNKNOWN for row in rows)
    ]
    chosen: list[int] = []
    for index in sorted(filled, key=lambda index: COLUMNS[index].rank):
        width -= COLUMNS[index].width
        if width < 0:
            break
        chosen.append(index)
    return sorted(chosen)


def _tone(column: StepColumn, text: str) -> str:
    return "$faint" if text in (UNKNOWN, "0") else column.tone
