"""Reading the journal: each call opens a connection of its own, from any thread."""

import contextlib
import logging
import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from core.events import AnyEvent
from core.journal import storage
from core.reducer import reduce
from core.state import State

log = logging.getLogger(__name__)

STATE_VERSION = 2
"""Raise it when the reducer changes what it makes of old events: snapshots are then made anew."""
BUSY = 10.0
"""Seconds a lock of another program on the file is waited for."""


class JournalReader:
    """One journal's file, which is there and in order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.without_index = False
        """SQLite's index beside the file cannot be written, as the disk is full: each connection
        makes its own in memory, and no two can be open at once."""

    def _connect(self) -> sqlite3.Connection:
        uri = f"{self.path.absolute().as_uri()}?mode=rw"  # a deleted file is not created again
        db = sqlite3.connect(uri, uri=True, timeout=BUSY, check_same_thread=False)
        try:
            if self.without_index:
                db.execute("pragma locking_mode=exclusive")
            db.execute("pragma synchronous=full")
        except sqlite3.Error:
            db.close()
            raise
        return db

    def last_seq(self) -> int:
        """Number of the newest event on disk; 0 when there is none."""
        with self.reading() as db:
            return storage.last_seq(db)

    def first_seq(self) -> int:
        """Number of the oldest event on disk; 0 when there is none."""
        with self.reading() as db:
            return storage.first_seq(db)

    def meta(self, key: str) -> str | None:
        """A small fact, or None."""
        found = self._one("select value from meta where key=?", key)
        return None if found is None else str(found)

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection of one's own, to read from any thread."""
        with contextlib.closing(self._connect()) as db:
            yield db

    def _one(self, sql: str, *values: Any) -> Any:
        with self.reading() as db:
            row = db.execute(sql, values).fetchone()
        return row[0] if row else None

    def events(self, after: int = 0, limit: int = 1_000) -> list[AnyEvent]:
        """Up to `limit` events with `seq` above `after`, in order; unreadable ones are left out."""
        with self.reading() as db:
            return storage.events_after(db, after, limit)

    def group_events(self, group_id: str) -> list[AnyEvent]:
        """Everything that happened to one group, whole texts included."""
        with self.reading() as db:
            return storage.events_of(db, group_id)

    def load_state(self) -> State:
        """The state that the reducer makes of the journal: newest snapshot, then the rest."""
        state = self._snapshot() or State()
        base = self.base_state()
        if base is not None and base.seq >= state.seq:
            state = base
        while found := self.events(state.seq, 5_000):
            for event in found:
                reduce(state, event)
        state.seq = max(state.seq, self.last_seq())
        return state

    def replayed_state(self) -> State:
        """The state made of every event, without any snapshot."""
        state = self.base_state() or State()
        while found := self.events(state.seq, 5_000):
            for event in found:
                reduce(state, event)
        return state

    def base_state(self) -> State | None:
        """The state up to which a journal was pruned; None when nothing was."""
        with self.reading() as db:
            return state_of(storage.base_of(db))

    def _snapshot(self) -> State | None:
        with self.reading() as db:
            row = db.execute(
                "select state from snapshots where version=? order by seq desc limit 1",
                (STATE_VERSION,),
            ).fetchone()
        if row is None:
            return None
        try:
            return msgspec.json.decode(row[0], type=State)
        except msgspec.MsgspecError as error:
            log.warning("a snapshot cannot be read (%s): the journal is replayed whole", error)
            return None


def state_of(base: storage.Base | None) -> State | None:
    """The state in a pruned journal's base; one that cannot be read has only its number.

    The events it was made of are gone, so a base that an older reducer made is used as it is.
    """
    if base is None:
        return None
    try:
        return msgspec.json.decode(zlib.decompress(base.state), type=State)
    except (msgspec.MsgspecError, zlib.error) as error:
        log.error("the state at the beginning of the journal cannot be read: %s", error)
        return State(seq=base.seq)
