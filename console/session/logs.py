"""Log lines of all processes: stored in memory, read from the log files as they grow."""

import logging
import os
import re
import time
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ajet_swarm.common.secrets import redact
from ajet_swarm.common.text import plain

LINES_CAP = 5_000
"""Lines stored of each source."""
READ_CAP = 256 * 1024
"""Bytes read from a file at once; the first read of a longer file starts near its end."""
LEVELS = ("debug", "info", "warning", "error")
SOURCES = ("proxy", "engine", "mock", "console")
_TAIL_BYTES = 64 * 1024
_LINE_CAP = 500

_LEVEL = re.compile(r"\b(DEBUG|INFO|WARNING|ERROR|CRITICAL)\b")
_STAMP = re.compile(
    r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:[.,](\d{1,6}))? (DEBUG|INFO|WARNING|ERROR|CRITICAL) "
)
_NO_FAILURE = re.compile(r"^\d{4}-\d\d-\d\d[T ][\d:.,]+\S* +(?:DEBUG|INFO|WARN(?:ING)?)\b")
_CONTINUATION = re.compile(r"^(\s+\S|Traceback |[\w.]+(Error|Exception|Interrupt)\b|$)")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of one process."""

    number: int
    """Counts up over all sources."""
    at: float
    """When it was written or read, Unix seconds."""
    source: str
    level: str
    """debug, info, warning or error."""
    text: str
    kind: str = ""
    """Lines of one kind that follow each other are folded; empty for a line on its own."""


def parse(text: str, before: float) -> tuple[float, str, str]:
    """Return (time, level, text) of a log line that begins with its own time and level.

    Any other line, as in a traceback, gets the time `before` and no level.
    """
    stamp = _STAMP.match(text)
    if stamp is None:
        return before, "", text
    try:
        at = time.mktime(time.strptime(stamp[1].replace("T", " "), "%Y-%m-%d %H:%M:%S"))
    except (ValueError, OverflowError):
        return before, "", text
    return at + float(f"0.{stamp[2] or 0}"), _name(stamp[3]), text[stamp.end() :]


def _name(level: str) -> str:
    return "error" if level == "CRITICAL" else level.lower()


class LogStore:
    """Store of the newest lines of each source, and of all in order of time."""

    def __init__(self, cap: int = LINES_CAP) -> None:
        self._all: list[LogLine] = []
        self._by_source: dict[str, deque[LogLine]] = {}
        self._cap = cap
        self.total = 0
        """Number of lines ever added, which is the number of the next one."""

    def add(self, source: str, text: str, at: float, level: str = "", kind: str = "") -> None:
        """Add a line; without a level, derive it from the text or from the line before."""
        stored = self._by_source.setdefault(source, deque(maxlen=self._cap))
        line = LogLine(self.total, at, source, level or _level(text, stored), text, kind)
        stored.append(line)
        insort(self._all, line, key=lambda known: known.at)  # a file is read later than written
        del self._all[: -2 * self._cap]
        self.total += 1

    def lines(self, source: str | None = None) -> Sequence[LogLine]:
        """Return the lines of one source or of all, oldest first."""
        return self._all if source is None else self._by_source.get(source, deque())


def _level(text: str, before: Sequence[LogLine]) -> str:
    word = _LEVEL.search(text[:80])
    if word is not None:
        return _name(word[1])
    if before and _CONTINUATION.match(text):
        return "error" if text.startswith("Traceback ") else before[-1].level
    return "info"


class LogTail:
    """Reads what was appended to a file since the last read; handles rotation."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset: int | None = None
        self._inode = 0
        self._rest = b""

    def read(self) -> list[str]:
        """Return the new complete lines; empty when the file is missing. Blocks on the disk."""
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, 2)
                inode = self.path.stat().st_ino
                if self._offset is None:
                    self._offset = max(0, size - READ_CAP)
                elif inode != self._inode or size < self._offset:
                    self._offset, self._rest = 0, b""
                self._inode = inode
                file.seek(self._offset)
                data = file.read(READ_CAP)
        except OSError:
            return []
        self._offset += len(data)
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [line.decode("utf-8", "replace").rstrip("\r") for line in whole]


def failure_line(lines: Sequence[str]) -> str:
    """Return the last log line when it explains why the process ended; else an empty string.

    It does when it is an error, the end of a traceback, or output outside the log format.
    """
    last = lines[-1] if lines else ""
    return "" if _NO_FAILURE.match(last) else last


def last_lines(path: Path, n: int, since: int = 0) -> list[str]:
    """Return the last `n` non-empty lines of a log, safe to show. Blocks on the disk.

    Args:
        path: The log file.
        n: Number of lines.
        since: Offset of the first byte to read, unless the file is shorter.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = max(since if since <= size else 0, size - _TAIL_BYTES)
            file.seek(start)
            data = file.read()
    except OSError:
        return []
    lines: Iterable[bytes] = data.split(b"\n")[-n - 1 :]
    texts = (plain(redact(line.decode("utf-8", "replace")))[:_LINE_CAP] for line in lines)
    return [text for text in texts if text.strip()][-n:]


class ConsoleHandler(logging.Handler):
    """Log handler that passes this process's own records to the session's log."""

    def __init__(self, note: Callable[[str, str, str], None]) -> None:
        super().__init__(logging.INFO)
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        """Pass the record on line by line, with its traceback."""
        level = "error" if record.levelno >= logging.ERROR else record.levelname.lower()
        for line in self.format(record).splitlines():
            self._note("console", line, level)
