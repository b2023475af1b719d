"""Parts of a screen section as Textual content: available room, heading, lines."""

from collections.abc import Iterable
from dataclasses import dataclass

from textual.content import Content

from console.text.format import filled
from console.text.lines import Line


@dataclass(frozen=True, slots=True)
class Room:
    """The space available to a section."""

    width: int
    """Width in cells."""
    height: int
    """Present height in rows; the limit when the section's height is fixed."""
    tall: bool
    """Whether the terminal has rows to spare."""
    rows: int = 24
    """Height of the terminal in rows."""

    @property
    def wrap(self) -> int | None:
        """Width at which parts of a heading go to the next line; None if it is one line."""
        return self.width if self.tall else None


HEADING = "bold $heading"
"""Style of a title."""


def heading(title: str, *parts: Content | str, width: int | None = None) -> Content:
    """Return a section's first line: the title, then further parts.

    With a width in cells, parts that do not fit go to further lines.
    """
    styled = (Content.styled(part, "$muted") if isinstance(part, str) else part for part in parts)
    return packed((Content.styled(title, HEADING), *styled), width)


def packed(parts: Iterable[Content], width: int | None) -> Content:
    """Join the parts that are not empty, two cells apart; with a width, in lines of that width."""
    packed_lines: list[Content] = []
    for part in parts:
        if not part:
            continue
        last = packed_lines[-1] if packed_lines else None
        if last is None or (width and last.cell_length + 2 + part.cell_length > width):
            packed_lines.append(part)
        else:
            packed_lines[-1] = Content.assemble(last, "  ", part)
    return lines(*packed_lines)


def lines(*parts: Content | Line) -> Content:
    """Join the parts, one per line."""
    shown = (part if isinstance(part, Content) else Content.assemble(*part) for part in parts)
    return Content("\n").join(shown)


def pill(text: str, color: str) -> Content:
    """Return `text` on a background of `color`."""
    return Content.assemble((f" {text} ", f"bold $pill-text on {color}"))


def bar(share: float | None, width: int, color: str = "$primary") -> Content:
    """Return a progress bar of `width` cells, drawn in eighths of a cell."""
    if share is None:
        return Content.styled("┈" * width, "$faint")
    done = filled(share, width)
    return Content.assemble((done, color), ("░" * (width - len(done)), "$faint"))
