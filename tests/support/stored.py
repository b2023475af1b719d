"""What files hold: everything of a folder, the whole state of a journal."""

import contextlib
import sqlite3
from pathlib import Path

from core.journal.file import unpacked
from core.journal.reader import JournalReader
from core.state import State, apply

_ROWS = "select cast(data as blob), size from rows union all select zlib, size from messages"


def stored_bytes(*paths: Path) -> bytes:
    """The bytes of files and of folders with all that is in them; for a journal its rows, too."""
    result = []
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                result += [file.read_bytes(), *_rows_of(file)]
    return b"\n".join(result)


def _rows_of(file: Path) -> list[bytes]:
    if file.suffix != ".db":
        return []
    with contextlib.closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as db:
        rows = []
        with contextlib.suppress(sqlite3.OperationalError):  # no journal
            for data, size in db.execute(_ROWS):
                rows.append(data if size is None else unpacked(data, size))
    return rows


def replayed(journal: JournalReader) -> State:
    """Return the state reduced from all events of a journal, without its newer snapshots."""
    state = journal.base_state() or State()
    for event in journal.events(state.seq, 1_000_000):
        apply(state, event)
    return state
