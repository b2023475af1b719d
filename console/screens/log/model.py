"""The lines of a log: which rows they take while tracebacks are folded, the cursor, the search."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ajet_swarm.common.text import plural
from console.session.logs import LEVELS, LogLine
from console.text.wrap import safe

HEAD = "Traceback (most recent call last):"
LINE_CAP = 2_000
"""Most characters of one line on screen."""
MAX_LINES = 20_000
"""Lines stored for scrolling back."""
SPARE_LINES = 2_000
"""Extra lines until the oldest are dropped in one batch."""
_LINKS = ("During handling of the above exception", "The above exception was the direct cause")
_INSIDE = re.compile(r"^(\s|Traceback \(most|[+|])")


def matches(line: LogLine, level: str, needle: str) -> bool:
    """Return whether a line has at least that level and contains the text."""
    if LEVELS.index(line.level) < LEVELS.index(level):
        return False
    return not needle or needle in line.text.lower()


@dataclass(slots=True)
class Traceback:
    """A traceback: the indices of its lines; the last one names the exception."""

    head: int
    lines: list[int]
    whole: bool = False
    """Whether the line with the exception was added."""
    folded: bool = True


class LogBook:
    """Lines in order of their arrival, even when two processes write tracebacks at once.

    Attributes:
        lines: The lines.
        rows: Index of each visible line, in order.
        at: Index of the line under the cursor; None for none.
        needle: Text that is searched, in lower case.
        folded: Whether new tracebacks are folded.
    """

    def __init__(self) -> None:
        self.needle = ""
        self.folded = True
        self.replace(())

    def replace(self, lines: Iterable[LogLine]) -> None:
        """Have these lines and no others."""
        self.lines: list[LogLine] = []
        self.rows: list[int] = []
        self.at: int | None = None
        self._traceback_of: dict[int, Traceback] = {}
        self._open: dict[str, Traceback] = {}
        for line in lines:
            self.add(line)

    def add(self, line: LogLine) -> None:
        """Add a line at the end."""
        place = len(self.lines)
        self.lines.append(line)
        traceback = self._continues(line)
        if traceback is None and line.text.lstrip("+ |").startswith(HEAD):
            traceback = self._open[line.source] = Traceback(place, [], folded=self.folded)
        if traceback is not None:
            traceback.lines.append(place)
            self._traceback_of[place] = traceback
        if traceback is None or traceback.head == place or not traceback.folded:
            self.rows.append(place)

    def _continues(self, line: LogLine) -> Traceback | None:
        """Return the traceback that a line continues; the line with the exception ends it."""
        traceback = self._open.get(line.source)
        if traceback is None:
            return None
        if line.text and _INSIDE.match(line.text):
            return traceback
        if not traceback.whole and line.text:
            traceback.whole = True
            return traceback
        if traceback.whole and (not line.text or line.text.startswith(_LINKS)):
            traceback.whole = bool(not line.text)
            return traceback
        del self._open[line.source]
        return None

    def drop_oldest(self) -> int:
        """Drop the oldest lines when there are too many; return the number of their rows."""
        extra = len(self.lines) - MAX_LINES
        if extra <= SPARE_LINES:
            return 0
        rows, at, remaining = self.row_of(extra), self.at, self.lines[extra:]
        self.replace(remaining)
        self.at = None if at is None or at < extra else at - extra
        return rows

    # --- rows --------------------------------------------------------------------------------

    def traceback(self, place: int) -> Traceback | None:
        """Return the traceback of a line."""
        return self._traceback_of.get(place)

    @property
    def tracebacks(self) -> int:
        """Number of tracebacks."""
        return sum(place == found.head for place, found in self._traceback_of.items())

    def row_of(self, place: int) -> int:
        """Return the row that shows a line, or the head it is folded into."""
        found = self.traceback(place)
        return bisect_left(self.rows, found.head if found and found.folded else place)

    def fold(self, traceback: Traceback, folded: bool) -> None:
        """Fold or unfold a traceback."""
        traceback.folded = folded
        self._set_rows()

    def fold_all(self, folded: bool) -> None:
        """Fold or unfold all tracebacks, and later ones too."""
        self.folded = folded
        for traceback in self._traceback_of.values():
            traceback.folded = folded
        self._set_rows()

    def _set_rows(self) -> None:
        self.rows = [
            place
            for place in range(len(self.lines))
            if (found := self.traceback(place)) is None or not found.folded or found.head == place
        ]

    # --- texts -------------------------------------------------------------------------------

    def text(self, place: int) -> str:
        """Return the text of a row; of a folded traceback the line that names the exception."""
        found = self.traceback(place)
        if found is None or found.head != place:
            return self._safe(place)
        if not found.folded:
            return f"▾ {self._safe(place)}"
        named = (line for line in reversed(found.lines) if self.lines[line].text.strip())
        return f"▸ {self._safe(next(named, place))}  · {plural(len(found.lines), 'line')}"

    def _safe(self, place: int) -> str:
        text = safe(self.lines[place].text[:LINE_CAP])
        return text.replace("\t", "    ").replace("\n", "␊")

    def whole_texts(self, rows: Sequence[int]) -> list[str]:
        """Return the texts of visible lines in full, with folded tracebacks unfolded."""
        texts: list[str] = []
        for place in rows:
            found = self.traceback(place)
            places = found.lines if found is not None and found.folded else [place]
            texts += [self.lines[place].text for place in places]
        return texts

    def find(self, forward: bool) -> bool:
        """Move the cursor to the next match; return False when there is none.

        The first search goes back from the end.
        """
        count = len(self.lines)
        start = count if self.at is None else self.at
        order = range(start + 1, count) if forward else range(start - 1, -1, -1)
        for place in order:
            if self.needle in self.lines[place].text.lower():
                self.at = place
                found = self.traceback(place)
                if found is not None and found.folded:
                    self.fold(found, False)
                return True
        return False
