"""Verdicts stored on disk, so that no question is paid for twice.

Keys are hashes; values are scores with their reasons. No prompt, answer or API key is stored.
"""

import asyncio
import logging
import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

ROWS = 200_000
"""Maximum number of verdicts; the oldest are deleted."""
_EVERY = 1_000
"""Number of verdicts stored between two checks of their count."""
_TABLE = """
pragma journal_mode=wal;
pragma synchronous=normal;
create table if not exists verdicts (
    key blob primary key, value blob not null, at real not null
) without rowid
"""
_DELETE_OLDEST = """
delete from verdicts where key in (
    select key from verdicts order by at limit max(0, (select count(*) from verdicts) - ?)
)
"""


class Cache:
    """A database of verdicts; one that cannot be used behaves as if it were empty.

    Args:
        file: The database; it is created if it does not exist.
        rows: See `ROWS`.
    """

    def __init__(self, file: Path, rows: int = ROWS) -> None:
        self._file = file
        self._rows = rows
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._closed = False
        self._puts = 0

    async def get(self, key: bytes) -> bytes | None:
        """Return the verdict, or None."""
        rows = await self._run("select value from verdicts where key = ?", key)
        return bytes(rows[0][0]) if rows else None

    async def put(self, key: bytes, value: bytes) -> None:
        """Store a verdict."""
        now = "(julianday('now') - 2440587.5) * 86400"
        await self._run(f"insert or replace into verdicts values (?, ?, {now})", key, value)
        self._puts += 1
        if self._puts % _EVERY == 1:
            await self._run(_DELETE_OLDEST, self._rows)

    async def close(self) -> None:
        """Close the database."""
        await asyncio.to_thread(self._close)

    async def _run(self, statement: str, *values: bytes | int) -> list[tuple[Any, ...]]:
        """Return the rows of a statement, in a thread; none when the database cannot be used."""
        return await asyncio.to_thread(self._execute, statement, values)

    def _execute(self, statement: str, values: tuple[bytes | int, ...]) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                if self._db is None and not self._closed:
                    self._db = _opened(self._file)
                return self._db.execute(statement, values).fetchall() if self._db else []
            except (sqlite3.Error, OSError) as error:
                log.warning("the judge's cache %s cannot be used: %s", self._file, error)
        self._close()
        return []

    def _close(self) -> None:
        with self._lock:
            self._closed = True
            if self._db is not None:
                self._db.close()
                self._db = None


def _opened(file: Path) -> sqlite3.Connection:
    """Return the database of a file; a file that is none is replaced."""
    file.parent.mkdir(0o700, parents=True, exist_ok=True)
    os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
    db = sqlite3.connect(file, timeout=2, isolation_level=None, check_same_thread=False)
    try:
        db.executescript(_TABLE)
    except sqlite3.Error as error:
        db.close()
        if isinstance(error, sqlite3.OperationalError):
            raise
        file.unlink()  # not a database: nothing in it is of use
        return _opened(file)
    return db
