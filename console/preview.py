"""The first rows of a dataset, for a look before it is asked. Reads a file: call it in a thread."""

import stat
from dataclasses import dataclass
from pathlib import Path

from core.text import one_line
from mock.dataset import RowError, parse, shipped

ROWS = 6
_READ = 1_000_000
"""Bytes looked at; a preview never reads a whole large file."""


@dataclass(frozen=True, slots=True)
class Preview:
    """What a dataset looks like."""

    path: str = ""
    rows: tuple[tuple[str, str], ...] = ()
    """Query and reference answer (empty when there is none) of the first usable rows."""
    problems: tuple[str, ...] = ()
    error: str = ""
    """Why nothing can be shown."""
    size: int = 0
    """Bytes."""


def read_preview(path: str) -> Preview:
    """The first rows of `path`, or of the shipped questions when it is empty; never raises."""
    file = Path(path).expanduser() if path else shipped()
    try:
        found = file.stat()
        if not stat.S_ISREG(found.st_mode):
            return Preview(path, error="this is not a file")
        with file.open("rb") as source:
            data = source.read(_READ)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return Preview(path, error=f"cannot be read: {reason or error}")
    return _from_lines(path, data.splitlines(), found.st_size)


def _from_lines(path: str, lines: list[bytes], size: int) -> Preview:
    if size > _READ and lines:
        lines.pop()  # it may be cut in the middle
    rows: list[tuple[str, str]] = []
    problems: list[str] = []
    for number, line in enumerate(lines, 1):
        if len(rows) >= ROWS:
            break
        if not line.strip():
            continue
        try:
            row = parse(number, line)
        except RowError as error:
            if len(problems) < ROWS:
                problems.append(f"line {number}: {error}")
            continue
        rows.append((one_line(row.query, 300), one_line(row.reference or "", 100)))
    fault = "" if rows else "no usable row at its beginning"
    return Preview(path, tuple(rows), tuple(problems), fault, size)
