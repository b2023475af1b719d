"""Pieces of a line that break onto further lines where they do not fit."""

from collections.abc import Sequence

from console.views.group import EMPTY, Line, line_width


def flow(pieces: Sequence[Line], width: int, indent: str = "") -> list[Line]:
    """Pieces beside each other, in as many lines as they need.

    Args:
        width: Cells of a line.
        indent: Begins each line after the first.
    """
    lines: list[Line] = []
    now: Line = EMPTY
    for piece in pieces:
        joined = (*now, ("   ", ""), *piece) if now else piece
        if now and line_width(joined) > width:
            lines.append(now)
            joined = ((indent, ""), *piece) if indent else piece
        now = joined
    return [*lines, now] if now else lines
