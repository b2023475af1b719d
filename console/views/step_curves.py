"""Curves of a server's last steps: reward, KL to the reference policy, entropy, length."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from textual.content import Content

from console.text.format import figure, number
from console.text.lines import Line, line_width
from console.ui.curve import Point, curve, latest
from console.views.step_table import reward_of
from core.state import Server, StepStats

BESIDE = 28
"""Minimum width in cells of curves beside the table; narrower ones are drawn below it."""
_GAP = 3
_MAX_LINES = 9
_MIN_LINES = 5
"""Limits on the lines of a curve, including its title."""
_BELOW = 36
"""Minimum width in cells of a curve below the table."""


@dataclass(frozen=True, slots=True)
class _Series:
    title: str
    value: Callable[[StepStats], float | None]
    format: Callable[[float], str]
    """Formats a value for the title."""


def _update(name: str) -> Callable[[StepStats], float | None]:
    return lambda step: step.update.get(name)


_SERIES = (
    _Series("reward", lambda step: reward_of(step)[0], number),
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
    text = [*left, Content(""), *(Content.assemble(*line) for line in table)]
    known = _known(server)
    if not known:
        hint = "Curves of reward, KL, entropy and length start with the first finished group"
        return [*left, Content(""), Content.styled(hint, "$muted")]
    room = width - max(map(line_width, table)) - _GAP
    if room < BESIDE:
        return [*text, Content(""), *_below(known, width)]
    height = max(_MIN_LINES, min(_MAX_LINES, len(text) // len(known)))
    drawn = [
        _curve(series, points, room, height, axis=at == len(known) - 1)
        for at, (series, points) in enumerate(known)
    ]
    return _beside(text, [line for block in drawn for line in block], width - room - _GAP)


def _known(server: Server) -> list[tuple[_Series, list[Point]]]:
    """Return the series that have a value for any step, in ascending order of steps."""
    series = []
    for kind in _SERIES:
        points = [
            Point(
                step.step,
                value,
                0.0,
                engine_run=step.engine_run,
                finished=server.is_finished(step),
            )
            for step in server.steps
            if (value := kind.value(step)) is not None
        ]
        if points:
            series.append((kind, points))
    return series


def _curve(
    series: _Series, points: Sequence[Point], width: int, height: int, *, axis: bool
) -> list[Content]:
    """Return the title, the curve in `height` - 1 lines and, if `axis`, the step numbers."""
    newest, step = latest(points)
    title = Content.assemble(
        (f"{series.title} ", "bold $heading"),
        (series.format(newest.mean), "bold $curve"),
        (f"  {step}", "$muted"),
    )
    plot = [Content.assemble(*line) for line in curve(points, width, height)]
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
    """Return rows of curves, as many side by side as fit."""
    most = max(1, min(len(known), width // _BELOW))
    columns = math.ceil(len(known) / math.ceil(len(known) / most))
    size = (width - _GAP * (columns - 1)) // columns
    rows: list[Content] = []
    for start in range(0, len(known), columns):
        block: list[Content] = []
        for at, (series, points) in enumerate(known[start : start + columns]):
            drawn = _curve(series, points, size, _MIN_LINES + 1, axis=True)
            block = _beside(block, drawn, at * (size + _GAP) - _GAP) if at else drawn
        rows += block
    return rows
