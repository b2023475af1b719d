"""Tables of one line a row, whose columns follow the width."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from console.text.lines import Line, fit

Row = TypeVar("Row")
Cell = tuple[str, str]
"""Text and its style."""
_KEPT = 32
"""Widths whose columns are remembered."""


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """One column."""

    title: str
    width: int
    """Cells; of a flexible column the fewest while others can be left out."""
    text: Callable[[Row], str | Cell]
    """What a row shows: text in the column's tone, or text with a tone of its own."""
    tone: str = ""
    rank: int = 0
    """Where space is short, columns with a high rank are left out first; those of rank 0 stay."""
    right: bool = False
    """Whether it is aligned to the right."""
    most: int = 0
    """Most cells of a flexible column; 0 for a fixed width."""

    def cell(self, row: Row, width: int) -> Cell:
        """Return the cell of a row in exactly `width` cells."""
        shown = self.text(row)
        text, tone = (shown, self.tone) if isinstance(shown, str) else shown
        return fit(text, width, self.right), tone


class Table(Generic[Row]):
    """Columns side by side. Flexible ones share the cells that the others leave.

    Args:
        columns: From left to right.
        start: Text before the first column.
        gap: Text between two columns.
        tone: Style of the titles.
    """

    def __init__(
        self,
        columns: Sequence[Column[Row]],
        start: str = "",
        gap: str = " ",
        tone: str = "$muted",
    ) -> None:
        self.columns = columns
        self._start, self._gap, self._tone = start, gap, tone
        self._fitted: dict[tuple[int, tuple[str, ...]], list[tuple[Column[Row], int]]] = {}
        """Columns by width and titles left out; of the last widths only."""

    def fitted(self, width: int, without: tuple[str, ...] = ()) -> list[tuple[Column[Row], int]]:
        """Return the columns that fit into `width` cells, each with its own width.

        Args:
            width: Cells of a line.
            without: Titles of columns that are not wanted now.
        """
        known = self._fitted.get((width, without))
        if known is None:
            if len(self._fitted) >= _KEPT:
                self._fitted.clear()
            known = self._fitted[width, without] = self._fit(width, without)
        return known

    def _fit(self, width: int, without: tuple[str, ...]) -> list[tuple[Column[Row], int]]:
        shown = [column for column in self.columns if column.title not in without]
        while shown and self._least(shown) > width:
            last = max(reversed(shown), key=lambda column: column.rank)
            if not last.rank:
                break
            shown.remove(last)
        left = width - self._least(shown) + sum(column.width for column in shown if column.most)
        flexible = sum(1 for column in shown if column.most)
        fitted = []
        for column in shown:
            size = column.width
            if column.most:
                size = max(min(size, left - flexible + 1), min(column.most, left // flexible))
                left, flexible = left - size, flexible - 1
            fitted.append((column, size))
        return fitted

    def _least(self, columns: Sequence[Column[Row]]) -> int:
        cells = sum(column.width for column in columns)
        return len(self._start) + cells + len(self._gap) * (len(columns) - 1)

    def head(self, width: int, without: tuple[str, ...] = ()) -> Line:
        """Return the titles."""
        titles = [
            fit(column.title, size, column.right) for column, size in self.fitted(width, without)
        ]
        return ((self._start + self._gap.join(titles), self._tone),)

    def row(self, row: Row, width: int, without: tuple[str, ...] = ()) -> Line:
        """Return the line of one row."""
        pieces: list[Cell] = []
        for column, size in self.fitted(width, without):
            pieces += [(self._gap if pieces else self._start, ""), column.cell(row, size)]
        return tuple(pieces)
