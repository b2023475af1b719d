"""The lines of a log: which rows they take while some are folded, the cursor, the search."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ajet_swarm.common.text import plural
from console.session.logs import LEVELS, SOURCES, LogLine
from console.text.lines import EMPTY, Line
from console.text.sections import HEADING
from console.text.wrap import safe, wrapped

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
class Fold:
    """The indices of the lines of a traceback, or of one kind; its last one says what it is."""

    head: int
    lines: list[int]
    whole: bool = False
    """Whether the line with the exception of a traceback was added."""
    folded: bool = True


class LogBook:
    """Lines in order of time, even when two processes write tracebacks at once.

    Attributes:
        lines: The lines.
        rows: Index of each visible line, in order.
        at: Index of the line under the cursor; None for none.
        needle: Text that is searched, in lower case.
        folded: Whether new tracebacks and lines of one kind are folded.
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
        self._fold_of: dict[int, Fold] = {}
        self._open: dict[str, Fold] = {}
        for line in lines:
            self.add(line)

    def add(self, line: LogLine) -> None:
        """Add a line at the end."""
        place = len(self.lines)
        self.lines.append(line)
        fold = self._continues(line) or self._repeats(line, place - 1)
        if fold is None and line.text.lstrip("+ |").startswith(HEAD):
            fold = self._open[line.source] = Fold(place, [], folded=self.folded)
        if fold is not None:
            fold.lines.append(place)
            self._fold_of[place] = fold
        if fold is None or fold.head == place or not fold.folded:
            self.rows.append(place)

    def _repeats(self, line: LogLine, before: int) -> Fold | None:
        """Return the fold of a line of the same kind as the line before."""
        if before < 0 or not line.kind or self.lines[before].kind != line.kind:
            return None
        return self._fold_of.setdefault(before, Fold(before, [before], folded=self.folded))

    def _continues(self, line: LogLine) -> Fold | None:
        """Return the traceback that a line continues; the line with the exception ends it."""
        fold = self._open.get(line.source)
        if fold is None:
            return None
        if line.text and _INSIDE.match(line.text):
            return fold
        if not fold.whole and line.text:
            fold.whole = True
            return fold
        if fold.whole and (not line.text or line.text.startswith(_LINKS)):
            fold.whole = bool(not line.text)
            return fold
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

    def fold_of(self, place: int) -> Fold | None:
        """Return the fold of a line."""
        return self._fold_of.get(place)

    @property
    def folds(self) -> Sequence[Fold]:
        """All folds, open ones included."""
        return [fold for place, fold in self._fold_of.items() if place == fold.head]

    @property
    def tracebacks(self) -> int:
        """Number of tracebacks."""
        return sum(not self.lines[fold.head].kind for fold in self.folds)

    def row_of(self, place: int) -> int:
        """Return the row that shows a line, or the head it is folded into."""
        found = self.fold_of(place)
        return bisect_left(self.rows, found.head if found and found.folded else place)

    def fold(self, fold: Fold, folded: bool) -> None:
        """Fold or unfold lines."""
        fold.folded = folded
        self._set_rows()

    def fold_all(self, folded: bool) -> None:
        """Fold or unfold everything, and later lines too."""
        self.folded = folded
        for fold in self._fold_of.values():
            fold.folded = folded
        self._set_rows()

    def _set_rows(self) -> None:
        self.rows = [
            place
            for place in range(len(self.lines))
            if (found := self.fold_of(place)) is None or not found.folded or found.head == place
        ]

    # --- texts -------------------------------------------------------------------------------

    def text(self, place: int) -> str:
        """Return the text of a row; of folded lines the last one, which names the exception."""
        found = self.fold_of(place)
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
        """Return the texts of visible lines in full, with folded lines unfolded."""
        texts: list[str] = []
        for place in rows:
            found = self.fold_of(place)
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
                found = self.fold_of(place)
                if found is not None and found.folded:
                    self.fold(found, False)
                return True
        return False


_TONES = {"error": "$engine-lost", "warning": "$engine-booting"}


def head_lines(book: LogBook, source: str, level: str, only: bool, follow: bool) -> list[Line]:
    """Return the sources, and below them what is shown of them."""
    chosen: list[tuple[str, str]] = []
    for name in ("all", *SOURCES):
        chosen += [(f" {name} ", "bold reverse" if name == source else "$muted"), (" ", "")]
    notes = [f"from {level}", "following" if follow else "paused, End follows"]
    if book.needle:
        count = sum(book.needle in line.text.lower() for line in book.lines)
        notes.append(f"“{book.needle}” in {plural(count, 'line')}")
    if only:
        notes.append("only these")
    if count := book.tracebacks:
        verb = "unfolds" if book.folded else "folds"
        notes.append(f"{plural(count, 'traceback')}, t {verb}")
    notes.append(f"{plural(len(book.lines), 'line')} shown")
    below = "     " + " · ".join(notes)
    return [(("LOG", HEADING), ("  ", ""), *chosen), ((below, "$muted"),)]


def whole_lines(book: LogBook, width: int, rows: int) -> list[Line]:
    """Return the line under the cursor in at most `rows` rows; nothing without a cursor."""
    if book.at is None:
        return []
    shown = wrapped(book.text(book.at), width)
    if len(shown) > rows:
        more = sum(len(row) for row in shown[rows - 1 :])
        shown[rows - 1 :] = [f"… {more} more characters; c copies what is on screen"]
    tone = _TONES.get(book.lines[book.at].level, "")
    lines: list[Line] = [((row, tone),) for row in shown]
    return [*lines, *[EMPTY] * (rows - len(lines))]
