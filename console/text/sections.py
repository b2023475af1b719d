"""Parts of a section as Textual content: the room it has, its heading, its lines."""

from dataclasses import dataclass

from textual.content import Content


@dataclass(frozen=True, slots=True)
class Room:
    """The space a section is built for."""

    width: int
    """Cells."""
    height: int
    """Rows it has now; what it may fill when its height is fixed."""
    tall: bool
    """The terminal has rows to spare."""
    rows: int = 24
    """Rows of the terminal."""


HEADING = "bold $heading"
"""Style of a title."""


def heading(title: str, *parts: Content | str) -> Content:
    """A section's first line: the title, then what is said beside it."""
    pieces: list[Content | tuple[str, str]] = [(title, HEADING)]
    for part in parts:
        if not part:
            continue
        if isinstance(part, str):
            pieces.append((f"  {part}", "$muted"))
        else:
            pieces += [Content("  "), part]
    return Content.assemble(*pieces)


def lines(*parts: Content) -> Content:
    """One below the other."""
    return Content("\n").join(parts)
