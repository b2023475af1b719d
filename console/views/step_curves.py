"""Curves of a server's last steps: reward, KL to the reference policy, entropy, length."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from textual.content import Content

from console.models.reward_figures import Point
from console.text.format import figure, number
from console.views.chart import curve, latest
from console.views.step_table import reward_of
from core.state import Server, StepStats

BESIDE = 28
"""Curves with at least this width are drawn beside the table, narrower ones below it."""
_GAP = 3
_TALLEST = 9
_LEAST = 5
"""Most and fewest lines of a curve with its title."""
_BELOW = 36
"""Fewest cells of a curve below the table."""


@dataclass(frozen=True, slots=True)
class _Series:
    title: str
    value: Callable[[StepStats], float | None]
    said: Callable[[float], str]


def _update(name: str) -> Callable[[StepStats], float | None]:
    return lambda step: step.update.get(name)


_SERIES = (
    _Series("reward", lambda step: reward_of(step)[0], number),
    _Series("KL", _update("kl"), figure),
    _Series("entropy", _update("entropy"), figure),
    _Series("length", _update("response_tokens"), figure),
)


def with_curves(
    server: Server, left: Sequence[Content], table: Sequence[Content], width: int
) -> list[Content]:
    """Return facts, then the table of steps, with the curves if there is room.

    Args:
        left: The facts above the table.
        table: Its lines; none without a step.
        width: Cells of all.
    """
    text = [*left, Content(""), *table]
    known = _known(server)
    if not known:
        said = "Curves of reward, KL, entropy and length start with the first finished group"
        return [*left, Content(""), Content.styled(said, "$muted")]
    room = width - max(line.cell_length for line in table) - _GAP
    if room < BESIDE:
        return [*text, Content(""), *_below(known, width)]
    height = max(_LEAST, min(_TALLEST, len(text) // len(known)))
    drawn = [
        _curve(one, points, room, height, axis=at == len(known) - 1)
        for at, (one, points) in enumerate(known)
    ]
    return _beside(text, [line for one in drawn for line in one], width - room - _GAP)


def _known(server: Server) -> list[tuple[_Series, list[Point]]]:
    """Return the series with a value for some step, each by rising step."""
    series = []
    for one in _SERIES:
        points = [
            Point(
                step.step,
                value,
                0.0,
                engine_run=step.engine_run,
                finished=server.is_finished(step),
            )
            for step in server.steps
            if (value := one.value(step)) is not None
        ]
        if points:
            series.append((one, points))
    return series


def _curve(
    one: _Series, points: Sequence[Point], width: int, height: int, *, axis: bool
) -> list[Content]:
    """Return title, curve in `height` - 1 lines, and the steps."""
    newest, step = latest(points)
    title = Content.assemble(
        (f"{one.title} ", "bold $heading"),
        (one.said(newest.mean), "bold $curve"),
        (f"  {step}", "$muted"),
    )
    plot = curve(points, width, height)
    return [title, *(plot if axis else plot[:-1])]


def _beside(left: Sequence[Content], right: Sequence[Content], width: int) -> list[Content]:
    """Return both blocks side by side, the left one in `width` cells."""
    rows = zip_longest(left, right, fillvalue=Content(""))
    return [
        Content.assemble(
            text.truncate(width, ellipsis=True).pad_right(
                width - min(width, text.cell_length) + _GAP
            ),
            plot,
        )
        for text, plot in rows
    ]


def _below(known: Sequence[tuple[_Series, list[Point]]], width: int) -> list[Content]:
    """Return as many curves side by side as fit, the others below them."""
    most = max(1, min(len(known), width // _BELOW))
    columns = math.ceil(len(known) / math.ceil(len(known) / most))
    size = (width - _GAP * (columns - 1)) // columns
    rows: list[Content] = []
    for start in range(0, len(known), columns):
        block: list[Content] = []
        for at, (one, points) in enumerate(known[start : start + columns]):
            drawn = _curve(one, points, size, _LEAST + 1, axis=True)
            block = _beside(block, drawn, at * (size + _GAP) - _GAP) if at else drawn
        rows += block
    return rows
