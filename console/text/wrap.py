"""Wraps text from models and users into lines of a given width in cells."""

from collections.abc import Iterator, Sequence

from rich.cells import cell_len, get_character_cell_size

from ajet_swarm.common.text import plain
from console.text.lines import Line, fit

TAB = "    "
PLAIN_CAP = 200_000
"""Maximum number of characters shown of one text; the others are counted."""


def safe(text: str) -> str:
    """Return `text` without control characters and without presentation selectors.

    Terminals disagree about the width of a character before such a selector.
    """
    return plain(text).replace("\ufe0e", "").replace("\ufe0f", "")


def wrapped(text: str, width: int, cap: int = PLAIN_CAP) -> list[str]:
    """Return the text in lines of at most `width` cells, broken at spaces where possible."""
    width = max(1, width)
    left_out = len(text) - cap
    lines: list[str] = []
    for paragraph in safe(text[:cap]).replace("\t", TAB).split("\n"):
        lines.extend(_broken(paragraph.rstrip(), width))
    while lines and not lines[-1]:
        lines.pop()
    if left_out > 0:
        lines.extend(_broken_cells(f"… {left_out} more characters", width))
    return lines


def wrapped_lines(
    text: str, width: int, tone: str = "", cap: int = PLAIN_CAP, indent: str = ""
) -> list[Line]:
    """Return the text wrapped into lines of one tone, each after an indent."""
    rows = wrapped(text, width - len(indent), cap)
    return [((indent + row, tone),) for row in rows]


def wrapped_within(text: str, width: int, rows: int) -> list[str]:
    """Wrap one-line text into at most `rows` lines; an ellipsis marks what is cut off."""
    lines = wrapped(text, width)
    if len(lines) <= rows:
        return lines
    return [*lines[: rows - 1], fit(" ".join(lines[rows - 1 :]), width)]


Piece = tuple[str, str]
"""Text and its tone."""


def wrapped_pieces(pieces: Sequence[Piece], width: int) -> list[tuple[Piece, ...]]:
    """Return toned text in lines of at most `width` cells; it must be safe and without tabs."""
    text = "".join(piece for piece, _ in pieces)
    width = max(1, width)
    lines: list[tuple[Piece, ...]] = []
    cutter = _Cutter(pieces)
    start = 0
    for paragraph in text.split("\n"):
        at = start
        for line in _broken(paragraph.rstrip(), width):
            at = text.find(line, at) if line else at  # only spaces are dropped between lines
            lines.append(cutter.cut(at, at + len(line)))
            at += len(line)
        start += len(paragraph) + 1
    return lines


class _Cutter:
    """Cuts parts out of toned text, from left to right."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = pieces
        self._place = 0
        self._begin = 0

    def cut(self, start: int, end: int) -> tuple[Piece, ...]:
        """Return the pieces of the characters from `start` to `end`."""
        pieces = self._pieces
        while self._place < len(pieces) and self._begin + len(pieces[self._place][0]) <= start:
            self._begin += len(pieces[self._place][0])
            self._place += 1
        result: list[Piece] = []
        place, begin = self._place, self._begin
        while place < len(pieces) and begin < end:
            text, tone = pieces[place]
            if part := text[max(0, start - begin) : end - begin]:
                result.append((part, tone))
            begin += len(text)
            place += 1
        return tuple(result)


def _broken(text: str, width: int) -> Iterator[str]:
    if text.isascii():
        yield from _broken_ascii(text, width)
        return
    if len(text) <= width and cell_len(text) <= width:
        yield text
        return
    yield from _broken_cells(text, width)


def _broken_ascii(text: str, width: int) -> Iterator[str]:
    start, end = 0, len(text)
    while end - start > width:
        cut = text.rfind(" ", start + 1, start + width + 1)
        if cut == -1 or not text[start:cut].strip():
            cut = start + width
        yield text[start:cut].rstrip()
        start = cut
        while start < end and text[start] == " ":
            start += 1
    yield text[start:]


def _broken_cells(text: str, width: int) -> Iterator[str]:
    """Break text with wide and combining characters; the length of a line is bounded."""
    longest = width * 4
    start = cells = 0
    space = -1
    at = 0
    while at < len(text):
        if at == start:  # a line of narrow characters is cut at once, not counted one by one
            line = text[start : start + width + 1]
            if len(line) > width and line.isascii() and line.isprintable():
                cut = text.rfind(" ", start + 1, start + width)
                yield text[start : cut if cut > start else start + width].rstrip()
                at = start = cut + 1 if cut > start else start + width
                continue
        size = get_character_cell_size(text[at])
        if cells + size > width or at - start >= longest:
            cut = space if space > start else max(at, start + 1)
            yield text[start:cut].rstrip()
            start = cut + 1 if space > start else cut
            at, cells, space = start, 0, -1
            continue
        if text[at] == " ":
            space = at
        cells += size
        at += 1
    yield text[start:]
