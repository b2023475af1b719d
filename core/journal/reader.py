"""Reading of the journal: each call opens its own connection and may come from any thread."""

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
from core.journal.texts import UNDECODABLE
from core.reducer import apply
from core.state import State
from core.state.encoder import json_parts

log = logging.getLogger(__name__)

STATE_VERSION = 3
"""Raise it when the reducer treats old events differently: older snapshots are then ignored."""
BUSY = 10.0
"""Seconds to wait for another program's lock on the file."""
PIECE = 64 << 10
"""Bytes of JSON that are compressed at once."""


class JournalReader:
    """Reader of one journal; the file exists and is in order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.without_index = False
        """Whether SQLite's index beside the file cannot be written because the disk is full: each
        connection then builds its own in memory, and no two can be open at once."""

    def _connect(self) -> sqlite3.Connection:
        uri = f"{self.path.absolute().as_uri()}?mode=rw"  # does not create a missing file
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
        """Return the number of the newest event on disk; 0 for none."""
        with self.reading() as db:
            return storage.last_seq(db)

    def first_seq(self) -> int:
        """Return the number of the oldest event on disk; 0 for none."""
        with self.reading() as db:
            return storage.first_seq(db)

    def meta(self, key: str) -> str | None:
        """Return the value stored by `Journal.put_meta`; None without one."""
        value = self._one("select value from meta where key=?", key)
        return None if value is None else str(value)

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield a new connection, usable in any thread."""
        with contextlib.closing(self._connect()) as db:
            yield db

    def _one(self, sql: str, *values: Any) -> Any:
        with self.reading() as db:
            row = db.execute(sql, values).fetchone()
        return row[0] if row else None

    def events(self, after: int = 0, limit: int = 1_000) -> list[AnyEvent]:
        """Return up to `limit` readable events with `seq` above `after`, in order."""
        with self.reading() as db:
            return storage.events_after(db, after, limit)

    def group_events(self, group_id: str) -> list[AnyEvent]:
        """Return all events of one group, with their whole texts."""
        with self.reading() as db:
            return storage.events_of(db, group_id)

    def load_state(self) -> State:
        """Return the state of the journal: the newest snapshot and the events after it."""
        with self.reading() as db:
            state = _snapshot(db) or State()
            base = state_of(storage.base_of(db))
            if base is not None and base.seq >= state.seq:
                state = base
            while events := storage.events_after(db, state.seq, 5_000):
                for event in events:
                    apply(state, event)
            state.seq = max(state.seq, storage.last_seq(db))
        return state

    def replayed_state(self) -> State:
        """Return the state reduced from all events, without a snapshot."""
        state = self.base_state() or State()
        while events := self.events(state.seq, 5_000):
            for event in events:
                apply(state, event)
        return state

    def base_state(self) -> State | None:
        """Return the state at the last pruned event; None if nothing was pruned."""
        with self.reading() as db:
            return state_of(storage.base_of(db))


def _snapshot(db: sqlite3.Connection) -> State | None:
    row = db.execute(
        "select state from snapshots where version=? order by seq desc limit 1",
        (STATE_VERSION,),
    ).fetchone()
    if row is None:
        return None
    try:
        return msgspec.json.decode(row[0], type=State)
    except UNDECODABLE as error:
        log.warning("a snapshot cannot be read (%s): the journal is replayed whole", error)
        return None


def state_of(base: storage.Base | None) -> State | None:
    """Return the state in a pruned journal's base; if it is unreadable, an empty one at its number.

    Its events are deleted, so a base made by an older reducer is used as it is.
    """
    if base is None:
        return None
    try:
        return msgspec.json.decode(zlib.decompress(base.state), type=State)
    except (*UNDECODABLE, zlib.error) as error:
        log.error("the state at the beginning of the journal cannot be read: %s", error)
        return State(seq=base.seq)


def compressed(state: State) -> bytes:
    """Return a state for a base: compressed JSON, which is never whole in memory."""
    work = zlib.compressobj(3)
    pieces: list[bytes] = []
    piece = bytearray()
    for part in json_parts(state):
        piece += part
        if len(piece) >= PIECE:  # each call releases the interpreter's lock and waits for it
            pieces.append(work.compress(piece))
            piece.clear()
    return b"".join((*pieces, work.compress(piece), work.flush()))
