"""Finds the lines of a log that make one traceback, and folds them."""

import re
from dataclasses import dataclass

from console.session.logs import LogLine

HEAD = "Traceback (most recent call last):"
_LINKS = ("During handling of the above exception", "The above exception was the direct cause")
_INSIDE = re.compile(r"^(\s|Traceback \(most|[+|])")


@dataclass(slots=True)
class Block:
    """A traceback: the indices of its lines; the last one names the exception."""

    head: int
    lines: list[int]
    whole: bool = False
    """Whether the line with the exception was added."""
    folded: bool = True


class Folds:
    """Finds tracebacks in arriving lines, even when two processes write at once.

    Attributes:
        folded: Whether new tracebacks are folded.
        rows: Index of each visible line, in order.
    """

    def __init__(self, folded: bool = True) -> None:
        self.folded = folded
        self.rows: list[int] = []
        self._block_of: dict[int, Block] = {}
        self._open: dict[str, Block] = {}

    def add(self, place: int, line: LogLine) -> None:
        """Add the line with index `place`; indices count up."""
        block = self._continues(line)
        if block is None:
            if line.text.lstrip("+ |").startswith(HEAD):
                block = Block(place, [place], folded=self.folded)
                self._block_of[place] = self._open[line.source] = block
            self.rows.append(place)
            return
        block.lines.append(place)
        self._block_of[place] = block
        if not block.folded:
            self.rows.append(place)

    def _continues(self, line: LogLine) -> Block | None:
        """Return the traceback that a line continues; the line with the exception ends it."""
        block = self._open.get(line.source)
        if block is None:
            return None
        if line.text and _INSIDE.match(line.text):
            return block
        if not block.whole and line.text:
            block.whole = True
            return block
        if block.whole and (not line.text or line.text.startswith(_LINKS)):
            block.whole = bool(not line.text)
            return block
        del self._open[line.source]
        return None

    def block(self, place: int) -> Block | None:
        """Return the traceback of the line at `place`."""
        return self._block_of.get(place)

    @property
    def count(self) -> int:
        """Number of tracebacks."""
        return sum(1 for place, block in self._block_of.items() if block.head == place)

    def row_of(self, place: int) -> int:
        """Return the row that shows `place`, or the head it is folded into."""
        block = self.block(place)
        line = block.head if block is not None and block.folded else place
        low, high = 0, len(self.rows)
        while low < high:
            middle = (low + high) // 2
            if self.rows[middle] < line:
                low = middle + 1
            else:
                high = middle
        return low

    def set(self, block: Block, folded: bool) -> None:
        """Fold or unfold a traceback."""
        if block.folded != folded:
            block.folded = folded
            self._rebuild_rows()

    def set_all(self, folded: bool) -> None:
        """Fold or unfold all tracebacks, and later ones too."""
        self.folded = folded
        for block in self._block_of.values():
            block.folded = folded
        self._rebuild_rows()

    def _rebuild_rows(self) -> None:
        last = max(self.rows[-1] if self.rows else -1, max(self._block_of, default=-1))
        self.rows = [place for place in range(last + 1) if self._is_visible(place)]

    def _is_visible(self, place: int) -> bool:
        block = self._block_of.get(place)
        return block is None or not block.folded or block.head == place
