"""Verdicts stored on disk, so that no question is paid for twice.

Keys are hashes; values are scores with their reasons. No prompt, answer or API key is stored.
"""

import asyncio
import hashlib
import logging
import os
import sqlite3
import threading
import time
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
        self._broken = False
        self._puts = 0

    async def get(self, key: bytes) -> bytes | None:
        """Return the verdict, or None."""
        return await asyncio.to_thread(self._guarded, self._get, key)

    async def put(self, key: bytes, value: bytes) -> None:
        """Store a verdict."""
        await asyncio.to_thread(self._guarded, self._put, key, value)

    async def close(self) -> None:
        """Close the database."""
        await asyncio.to_thread(self._close)

    def _guarded(self, work: Any, *args: bytes) -> Any:
        with self._lock:
            if self._broken:
                return None
            try:
                return work(self._open(), *args)
            except (sqlite3.Error, OSError) as error:
                log.warning("the judge's cache %s cannot be used: %s", self.file, error)
                self._broken = True
                self._disconnect()
                return None

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            self.file.parent.mkdir(0o700, parents=True, exist_ok=True)
            try:
                self._db = self._connect()
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):
                    raise
                self.file.unlink()  # not a database: nothing in it is of use
                self._db = self._connect()
        return self._db

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

    def _get(self, db: sqlite3.Connection, key: bytes) -> bytes | None:
        row = db.execute("select value from verdicts where key = ?", (key,)).fetchone()
        return None if row is None else bytes(row[0])

    def _put(self, db: sqlite3.Connection, key: bytes, value: bytes) -> None:
        db.execute("insert or replace into verdicts values (?, ?, ?)", (key, value, time.time()))
        self._puts += 1
        if self._puts % _EVERY == 1:
            (count,) = db.execute("select count(*) from verdicts").fetchone()
            if count > self._rows:
                db.execute(
                    "delete from verdicts where key in "
                    "(select key from verdicts order by at limit ?)",
                    (count - self._rows,),
                )

    def _close(self) -> None:
        with self._lock:
            self._broken = True
            self._disconnect()

    def _disconnect(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None
