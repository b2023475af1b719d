"""The append-only record of everything: SQLite in WAL mode, one writer thread, batched commits.

It is the truth: state is rebuilt from it, and a reward is committed here before it is sent. A kill
can lose the batch that was open (some tens of milliseconds), never a committed row.
"""

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec

from core.errors import AjetError
from core.events import (
    AnyEvent,
    Event,
    GroupClosed,
    GroupEvent,
    GroupOpened,
    decode,
    encode,
)
from core.reducer import reduce
from core.state import State

log = logging.getLogger(__name__)

SCHEMA = 1
STATE_VERSION = 1
"""Raise it when the reducer changes what it makes of old events: snapshots are then made anew."""
BATCH = 512

_TABLES = """
create table if not exists meta(key text primary key, value text not null);
create table if not exists events(
    seq integer primary key, kind text not null, group_id text, data blob not null);
create index if not exists events_by_group on events(group_id) where group_id is not null;
create table if not exists groups(
    id text primary key, opened_seq integer not null, opened_at real not null,
    phase text not null, cause text not null, query text not null);
create index if not exists groups_by_seq on groups(opened_seq);
create table if not exists snapshots(
    seq integer primary key, version integer not null, state blob not null);
"""


class JournalError(AjetError):
    """The journal cannot be read or written."""


class GroupRow(msgspec.Struct, frozen=True):
    """One line of the history of groups."""

    id: str
    opened_at: float
    phase: str
    cause: str
    query: str


class _Stop:
    """Tells the writer to end."""


_Job = tuple[str, Any]


class Journal:
    """One file. Appending never blocks; reading opens its own connection."""

    def __init__(self, path: Path) -> None:
        """Open or make the file.

        Raises:
            JournalError: it is no journal, is from a newer version, or cannot be written.
        """
        self.path = path
        self.error: str = ""
        """Why nothing can be written any more; empty while all is well."""
        try:
            self._prepare()
        except sqlite3.Error as error:
            raise JournalError(
                f"the journal cannot be opened: {error}",
                where=str(path),
                todo="Move it away to begin a new one; nothing in it is lost by that",
            ) from error
        self._jobs: SimpleQueue[_Job | _Stop] = SimpleQueue()
        self._lock = threading.Lock()
        self._durable = self.last_seq()
        self._waiters: list[tuple[int, asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self.on_error: Callable[[str], None] | None = None
        """Called once, from the writer's thread, when writing fails."""
        self._thread = threading.Thread(target=self._write, name="journal", daemon=True)
        self._thread.start()

    def _prepare(self) -> None:
        db = self._connect()
        try:
            db.execute("pragma journal_mode=wal")
            found = db.execute("pragma user_version").fetchone()[0]
            if found > SCHEMA:
                raise JournalError(
                    f"the journal is of version {found}, this program knows {SCHEMA}",
                    where=str(self.path),
                    todo="Use the newer program, or name another home",
                )
            db.executescript(_TABLES)
            db.execute(f"pragma user_version={SCHEMA}")
            db.commit()
        finally:
            db.close()

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=10, check_same_thread=False)
        db.execute("pragma synchronous=full")
        return db

    # --- writing --------------------------------------------------------------------------------

    def append(self, event: Event) -> None:
        """Queue `event` for the writer."""
        self._jobs.put(("event", event))

    def append_snapshot(self, state: State) -> None:
        """Queue a snapshot of `state` as it is now."""
        self._jobs.put(("snapshot", (state.seq, msgspec.json.encode(state))))

    def put_meta(self, key: str, value: str) -> None:
        """Queue a small fact that is no event."""
        self._jobs.put(("meta", (key, value)))

    async def durable(self, seq: int) -> None:
        """Wait until all events up to `seq` are committed.

        Raises:
            JournalError: they cannot be written.
        """
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._durable >= seq:
                return
            if self.error:
                raise self._failed()
            future: asyncio.Future[None] = loop.create_future()
            self._waiters.append((seq, loop, future))
        await future

    def close(self) -> None:
        """Write what is queued and end the writer."""
        self._jobs.put(_Stop())
        self._thread.join(timeout=10)

    def _failed(self) -> JournalError:
        return JournalError(
            f"the journal cannot be written: {self.error}",
            where=str(self.path),
            todo="Free some space or make it writable, then restart; no reward is sent meanwhile",
        )

    def _write(self) -> None:
        db = self._connect()
        running = True
        while running:
            batch = [self._jobs.get()]
            while len(batch) < BATCH and not self._jobs.empty():
                batch.append(self._jobs.get())
            running = not any(isinstance(job, _Stop) for job in batch)
            jobs = [job for job in batch if not isinstance(job, _Stop)]
            try:
                seq = _commit(db, jobs)
            except sqlite3.Error as error:
                db.rollback()
                self._fail(str(error))
            else:
                self._wake(seq)
        db.close()

    def _fail(self, error: str) -> None:
        with self._lock:
            first, self.error = not self.error, error
            waiters, self._waiters = self._waiters, []
        if first:
            log.error("the journal cannot be written: %s", error)
            if self.on_error is not None:
                self.on_error(error)
        for _, loop, future in waiters:
            _call(loop, _set_error, future, self._failed())

    def _wake(self, seq: int) -> None:
        with self._lock:
            self._durable = max(self._durable, seq)
            if self.error:  # what failed before is lost: rows after it do not make it durable
                return
            done = [waiter for waiter in self._waiters if waiter[0] <= self._durable]
            self._waiters = [waiter for waiter in self._waiters if waiter[0] > self._durable]
        for _, loop, future in done:
            _call(loop, _set_done, future)

    # --- reading --------------------------------------------------------------------------------

    def last_seq(self) -> int:
        """Number of the newest event on disk; 0 when there is none."""
        return int(self._one("select coalesce(max(seq), 0) from events") or 0)

    def first_seq(self) -> int:
        """Number of the oldest event on disk; 0 when there is none."""
        return int(self._one("select coalesce(min(seq), 0) from events") or 0)

    def meta(self, key: str) -> str | None:
        """A small fact, or None."""
        found = self._one("select value from meta where key=?", key)
        return None if found is None else str(found)

    def _one(self, sql: str, *values: Any) -> Any:
        db = self._connect()
        try:
            row = db.execute(sql, values).fetchone()
        finally:
            db.close()
        return row[0] if row else None

    def events(self, after: int = 0, limit: int = 1_000) -> list[AnyEvent]:
        """Up to `limit` events with `seq` above `after`, in order; unreadable rows are left out."""
        return list(self._decoded("where seq>? order by seq limit ?", after, limit))

    def group_events(self, group_id: str) -> list[AnyEvent]:
        """Everything that happened to one group, whole texts included."""
        return list(self._decoded("where group_id=? order by seq", group_id))

    def groups(self, before: float | None = None, limit: int = 200) -> list[GroupRow]:
        """A page of the history, newest first, opened before `before`."""
        db = self._connect()
        try:
            rows = db.execute(
                "select id, opened_at, phase, cause, query from groups where opened_at < ?"
                " order by opened_seq desc limit ?",
                (before if before is not None else float("inf"), limit),
            ).fetchall()
        finally:
            db.close()
        return [GroupRow(*row) for row in rows]

    def load_state(self) -> State:
        """The state that the reducer makes of the journal: newest snapshot, then the rest."""
        state = self._snapshot() or State()
        while found := self.events(state.seq, 5_000):
            for event in found:
                reduce(state, event)
        state.seq = max(state.seq, self.last_seq())
        return state

    def replayed_state(self) -> State:
        """The state made of every event, without any snapshot."""
        state = State()
        while found := self.events(state.seq, 5_000):
            for event in found:
                reduce(state, event)
        return state

    def _snapshot(self) -> State | None:
        db = self._connect()
        try:
            row = db.execute(
                "select state from snapshots where version=? order by seq desc limit 1",
                (STATE_VERSION,),
            ).fetchone()
        finally:
            db.close()
        if row is None:
            return None
        try:
            return msgspec.json.decode(row[0], type=State)
        except msgspec.MsgspecError as error:
            log.warning("a snapshot cannot be read (%s): the journal is replayed whole", error)
            return None

    def _decoded(self, where: str, *values: Any) -> Iterator[AnyEvent]:
        db = self._connect()
        try:
            for seq, data in db.execute(f"select seq, data from events {where}", values):
                try:
                    yield decode(data)
                except msgspec.MsgspecError as error:
                    log.warning("journal row %s is not an event this program knows: %s", seq, error)
        finally:
            db.close()


def _commit(db: sqlite3.Connection, jobs: list[_Job]) -> int:
    """Write one batch; returns the highest event number in it."""
    last = 0
    for what, value in jobs:
        if what == "event":
            last = value.seq
            group_id = value.group_id if isinstance(value, GroupEvent) else None
            db.execute(
                "insert into events values(?,?,?,?)",
                (value.seq, value.kind, group_id, encode(value)),
            )
            _index(db, value)
        elif what == "snapshot":
            db.execute("delete from snapshots")
            db.execute("insert into snapshots values(?,?,?)", (value[0], STATE_VERSION, value[1]))
        else:
            db.execute("insert or replace into meta values(?,?)", value)
    db.commit()
    return last


def _index(db: sqlite3.Connection, event: Event) -> None:
    if isinstance(event, GroupOpened):
        db.execute(
            "insert or replace into groups values(?,?,?,?,?,?)",
            (event.group_id, event.seq, event.at, "QUEUED", "", event.query[:200]),
        )
    elif isinstance(event, GroupClosed):
        db.execute(
            "update groups set phase=?, cause=? where id=?",
            (event.phase, event.cause, event.group_id),
        )


def _call(loop: asyncio.AbstractEventLoop, fn: Callable[..., None], *args: Any) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(fn, *args)


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _set_error(future: asyncio.Future[None], error: JournalError) -> None:
    if not future.done():
        future.set_exception(error)
