"""What a terminal shows: a small emulator, fed by a console on a pseudo terminal."""

import codecs
import re

from rich.cells import cell_len

from tests.support.pty.terminal import Terminal

_CONTROL = re.compile(
    r"\x1b\[(?P<args>[0-9;?<>=]*)[ !]?(?P<kind>[a-zA-Z])"
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"
    r"|\x1b[P_^X].*?\x1b\\"
    r"|\x1b[=>()][0-9A-B]?"
    r"|[\r\n\b\x07\x0e\x0f]",
    re.DOTALL,
)


class Grid:
    """Cells of text; colours are left out."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._cells = [[" "] * width for _ in range(height)]
        self._x = self._y = 0
        self._rest = ""

    @property
    def rows(self) -> list[str]:
        """The screen, line by line."""
        return ["".join(row).rstrip() for row in self._cells]

    def feed(self, text: str) -> None:
        """Paint what a program wrote."""
        text = self._rest + text
        self._rest = ""
        at = 0
        while at < len(text):
            match = _CONTROL.search(text, at)
            end = match.start() if match is not None else len(text)
            piece = text[at:end]
            if match is None and "\x1b" in piece:  # the rest of a sequence is still to come
                cut = piece.rindex("\x1b")
                self._rest, piece = piece[cut:], piece[:cut]
            self._write(piece)
            if match is None:
                return
            self._obey(match)
            at = match.end()

    def _write(self, text: str) -> None:
        for char in text:
            size = cell_len(char)
            if not size or char == "\x1b":
                continue
            if self._x + size <= self.width:
                row = self._cells[self._y]
                row[self._x] = char
                if size == 2:
                    row[self._x + 1] = ""
            self._x = min(self._x + size, self.width)

    def _obey(self, match: re.Match[str]) -> None:
        kind, value = match["kind"], match["args"] or ""
        if kind is None:
            self._simple(match[0])
            return
        if value[:1] in ("?", "<", ">", "="):
            return
        numbers = [int(one or 0) for one in value.split(";")] if value else []
        first = numbers[0] if numbers else 0
        if kind in "Hf":
            self._y = min(max(first - 1, 0), self.height - 1)
            self._x = min(max((numbers[1] if len(numbers) > 1 else 1) - 1, 0), self.width - 1)
        elif kind == "G":
            self._x = min(max(first - 1, 0), self.width - 1)
        elif kind in "ABCD":
            self._move(kind, max(first, 1))
        elif kind == "J" and first in (2, 3):
            self._cells = [[" "] * self.width for _ in range(self.height)]
        elif kind == "K":
            start, end = ((self._x, self.width), (0, self._x + 1), (0, self.width))[first]
            self._cells[self._y][start:end] = [" "] * (end - start)

    def _move(self, kind: str, by: int) -> None:
        if kind in "AB":
            self._y = min(max(self._y + (by if kind == "B" else -by), 0), self.height - 1)
        else:
            self._x = min(max(self._x + (by if kind == "C" else -by), 0), self.width - 1)

    def _simple(self, char: str) -> None:
        if char == "\r":
            self._x = 0
        elif char == "\n":
            self._y = min(self._y + 1, self.height - 1)
        elif char == "\b":
            self._x = max(self._x - 1, 0)


class ScreenTerminal(Terminal):
    """A console whose screen can be read as a person reads it."""

    def __init__(
        self, args: list[str], environment: dict[str, str], width: int = 80, height: int = 24
    ) -> None:
        self.grid = Grid(width, height)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        super().__init__(args, environment, width, height)

    def painted(self, data: bytes) -> None:
        """Bytes the console has just written."""
        self.grid.feed(self._decoder.decode(data))

    def look(self, seconds: float = 0.0) -> list[str]:
        """The rows now, after reading for at most `seconds`."""
        self.read(seconds)
        return self.grid.rows
