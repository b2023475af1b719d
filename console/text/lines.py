"""Lines of styled text for the screens: their type, their width, and fitting to a width.

Widgets paint lines and do not interpret markup. Text from users and models is made safe before it
becomes a piece of a line.
"""

from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size

Line = tuple[tuple[str, str], ...]
"""Pieces of (text, style): a style such as `bold $winner` over the theme's variables, or empty."""
EMPTY: Line = ()


def fit(text: str, width: int, right: bool = False) -> str:
    """Return safe `text` in exactly `width` cells: cut with an ellipsis, or padded.

    Args:
        text: Without control characters.
        width: Cells.
        right: Align to the right.
    """
    if width <= 0:
        return ""
    size = cell_len(text)
    if size > width:
        return set_cell_size(set_cell_size(text, width - 1).rstrip() + "…", width)
    return " " * (width - size) + text if right else text + " " * (width - size)


def line_text(line: Iterable[tuple[str, str]]) -> str:
    """Return the text of a line without its styles."""
    return "".join(text for text, _ in line)


def line_width(line: Line) -> int:
    """Return the number of cells a line takes."""
    return sum(cell_len(text) for text, _ in line)


def flow(pieces: Sequence[Line], width: int, indent: str = "") -> list[Line]:
    """Arrange pieces next to each other, on as many lines as they need.

    Args:
        pieces: Parts of a line; none of them is broken.
        width: Cells of a line.
        indent: Text at the start of each line after the first.
    """
    lines: list[Line] = []
    current: Line = EMPTY
    for piece in pieces:
        joined = (*current, ("   ", ""), *piece) if current else piece
        if current and line_width(joined) > width:
            lines.append(current)
            joined = ((indent, ""), *piece) if indent else piece
        current = joined
    return [*lines, current] if current else lines


def bar_pieces(share: float | None, width: int, tone: str) -> Line:
    """Return a thin bar of `width` cells, drawn in half cells; None is an unknown share."""
    if width <= 0:
        return ()
    if share is None:
        return (("┈" * width, "$faint"),)
    halves = round(min(1.0, max(0.0, share)) * width * 2)
    full, half = divmod(halves, 2)
    filled = "━" * full + "╸" * half
    return ((filled, tone), ("─" * (width - len(filled)), "$faint"))
