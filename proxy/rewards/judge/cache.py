"""Verdicts stored on disk, so that no question is paid for twice.

Keys are hashes; values are scores with their reasons. No prompt, answer or API key is stored.
"""

import asyncio
import hashlib
import logging
import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

import msgspec

log = logging.getLogger(__name__)

ROWS = 200_000
"""Maximum number of verdicts; the oldest are deleted."""
_EVERY = 1_000
"""Number of verdicts stored between two checks of their count."""
_TABLE = """
create table if not exists verdicts (
    key blob primary key, value blob not null, at real not null
) without rowid
"""
_DELETE_OLDEST = """
delete from verdicts where key in (
    select key from verdicts order by at limit max(0, (select count(*) from verdicts) - ?)
)
"""


def key_of(*what: Any) -> bytes:
    """Return the key for everything that determines a verdict."""
    return hashlib.sha256(msgspec.json.encode(what, order="deterministic")).digest()


class Cache:
    """A database of verdicts; one that cannot be used behaves as if it were empty.

    Args:
        file: The database; it is created if it does not exist.
        rows: See `ROWS`.
    """

    def __init__(self, file: Path, rows: int = ROWS) -> None:
        self.file = file
        self._rows = rows
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._usable = True
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
                if self._usable and self._db is None:
                    self._db = self._open()
                return self._db.execute(statement, values).fetchall() if self._db else []
            except (sqlite3.Error, OSError) as error:
                log.warning("the judge's cache %s cannot be used: %s", self.file, error)
        self._close()
        return []

    def _open(self) -> sqlite3.Connection:
        self.file.parent.mkdir(0o700, parents=True, exist_ok=True)
        try:
            return self._connect()
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:  # not a database: nothing in it is of use
            self.file.unlink()
            return self._connect()

    def _connect(self) -> sqlite3.Connection:
        os.close(os.open(self.file, os.O_RDWR | os.O_CREAT, 0o600))
        db = sqlite3.connect(self.file, timeout=2, isolation_level=None, check_same_thread=False)
        try:
            db.execute("pragma journal_mode=wal")
            db.execute("pragma synchronous=normal")
            db.execute(_TABLE)
        except sqlite3.Error:
            db.close()
            raise
        return db

    def _close(self) -> None:
        with self._lock:
            self._usable = False
            if self._db is not None:
                self._db.close()
                self._db = None
