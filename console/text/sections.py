"""Parts of a screen section as Textual content: available room, heading, lines."""

from dataclasses import dataclass

from textual.content import Content

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


HEADING = "bold $heading"
"""Style of a title."""


def heading(title: str, *parts: Content | str) -> Content:
    """Return a section's first line: the title, then further parts."""
    pieces: list[Content | tuple[str, str]] = [(title, HEADING)]
    for part in parts:
        if not part:
            continue
        if isinstance(part, str):
            pieces.append((f"  {part}", "$muted"))
        else:
            pieces += [Content("  "), part]
    return Content.assemble(*pieces)


def lines(*parts: Content | Line) -> Content:
    """Join the parts, one per line."""
    shown = (part if isinstance(part, Content) else Content.assemble(*part) for part in parts)
    return Content("\n").join(shown)
