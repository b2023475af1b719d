"""The append-only record of everything: SQLite in WAL mode, one writer thread, batched commits.

It is the truth: state is rebuilt from it, and a reward is committed here before it is sent. A kill
can lose the batch that was open (some tens of milliseconds), never a committed row.
"""

import asyncio
import contextlib
import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from core import journal_rows
from core.errors import AjetError
from core.events import AnyEvent, Event
from core.journal_rows import PAGE, SCHEMA, Packer
from core.reducer import reduce
from core.state import State

log = logging.getLogger(__name__)

STATE_VERSION = 1
"""Raise it when the reducer changes what it makes of old events: snapshots are then made anew."""
BATCH = 4_096
LINGER = 0.02
"""Seconds an event may lie about before it is written when nobody waits for it."""
SPACING = 0.03
"""Seconds between the beginnings of two commits at least where many wait: they share one."""
CROWD = 16
"""Open groups from which on that holds; fewer wait less, a single one hardly at all."""


class JournalError(AjetError):
    """The journal cannot be read or written."""


class _Stop:
    """Tells the writer to end."""


class _Snapshot(msgspec.Struct, frozen=True):
    seq: int
    state: bytes


class _Meta(msgspec.Struct, frozen=True):
    key: str
    value: str


_Job = Event | _Snapshot | _Meta | _Stop


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
        self._jobs: deque[_Job] = deque()
        self._some = threading.Event()
        """There is something to write."""
        self._told = False
        """`_some` was set since the writer looked; quicker to ask."""
        self._urgent = threading.Event()
        """Somebody waits for it."""
        self._lock = threading.Lock()
        self._waiters: list[tuple[int, asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self.on_error: Callable[[str], None] | None = None
        """Called once, from the writer's thread, when writing fails."""
        self._thread = threading.Thread(target=self._write, name="journal", daemon=True)
        self._thread.start()

    def _prepare(self) -> None:
        with contextlib.closing(self._connect()) as db:
            db.execute(f"pragma page_size={PAGE}")
            db.execute("pragma journal_mode=wal")
            found = db.execute("pragma user_version").fetchone()[0]
            if found > SCHEMA:
                raise JournalError(
                    f"the journal is of version {found}, this program knows {SCHEMA}",
                    where=str(self.path),
                    todo="Use the newer program, or name another home",
                )
            journal_rows.prepare(db, found)
            self._open_groups = journal_rows.open_ids(db)
            self._durable = journal_rows.last_seq(db)

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=10, check_same_thread=False)
        db.execute("pragma synchronous=full")
        return db

    # --- writing --------------------------------------------------------------------------------

    def append(self, event: Event) -> None:
        """Queue `event` for the writer."""
        self._jobs.append(event)
        if not self._told:
            self._told = True
            self._some.set()

    def append_snapshot(self, state: State) -> None:
        """Queue a snapshot of `state` as it is now."""
        self._put(_Snapshot(state.seq, msgspec.json.encode(state)))

    def put_meta(self, key: str, value: str) -> None:
        """Queue a small fact that is no event."""
        self._put(_Meta(key, value))

    def _put(self, job: _Job) -> None:
        self._jobs.append(job)
        if not self._told:
            self._told = True
            self._some.set()

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
        if not self._urgent.is_set():
            self._urgent.set()
        await future

    def close(self) -> None:
        """Write what is queued and end the writer."""
        self._put(_Stop())
        self._urgent.set()
        self._thread.join(timeout=10)

    def _failed(self) -> JournalError:
        return JournalError(
            f"the journal cannot be written: {self.error}",
            where=str(self.path),
            todo="Free some space or make it writable, then restart; no reward is sent meanwhile",
        )

    def _write(self) -> None:
        db = self._connect()
        ready = False
        running = True
        began = 0.0
        while running:
            self._some.wait()
            spacing = SPACING * min(1.0, len(self._open_groups) / CROWD)
            time.sleep(max(began + spacing - time.monotonic(), 0.0))
            self._urgent.wait(LINGER)
            began = time.monotonic()
            jobs = self._taken()
            running = not any(isinstance(job, _Stop) for job in jobs)
            try:
                if not ready:
                    journal_rows.open_intake(db)
                    ready = True
                seq = _commit(db, jobs, self._open_groups)
            except Exception as error:  # noqa: BLE001  without this thread all who wait hang
                with contextlib.suppress(sqlite3.Error):
                    db.rollback()
                self._fail(str(error))
            else:
                self._wake(seq)
        db.close()

    def _taken(self) -> list[_Job]:
        """What is queued, up to a bound."""
        self._some.clear()
        self._urgent.clear()
        self._told = False  # last: what is put in before is taken below
        jobs: list[_Job] = []
        with contextlib.suppress(IndexError):
            while len(jobs) < BATCH:
                jobs.append(self._jobs.popleft())
            self._some.set()
            self._urgent.set()
        return jobs

    def _fail(self, error: str) -> None:
        with self._lock:
            first, self.error = not self.error, error
            waiters, self._waiters = self._waiters, []
        if first:
            log.error("the journal cannot be written: %s", error)
            if self.on_error is not None:
                self.on_error(error)
        _settle(waiters, self._failed)

    def _wake(self, seq: int) -> None:
        with self._lock:
            if self.error:  # what failed before is lost: rows after it do not make it durable
                return
            self._durable = max(self._durable, seq)
            done = [waiter for waiter in self._waiters if waiter[0] <= self._durable]
            if done:
                self._waiters = [one for one in self._waiters if one[0] > self._durable]
        _settle(done)

    # --- reading --------------------------------------------------------------------------------

    def last_seq(self) -> int:
        """Number of the newest event on disk; 0 when there is none."""
        with self.reading() as db:
            return journal_rows.last_seq(db)

    def first_seq(self) -> int:
        """Number of the oldest event on disk; 0 when there is none."""
        with self.reading() as db:
            return journal_rows.first_seq(db)

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
            return journal_rows.events_after(db, after, limit)

    def group_events(self, group_id: str) -> list[AnyEvent]:
        """Everything that happened to one group, whole texts included."""
        with self.reading() as db:
            return journal_rows.events_of(db, group_id)

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


_Waiter = tuple[int, asyncio.AbstractEventLoop, "asyncio.Future[None]"]


def _commit(db: sqlite3.Connection, jobs: list[_Job], opened: set[str]) -> int:
    """Write one batch; returns the highest event number in it."""
    packer = Packer(opened)
    others: list[_Job] = []
    for job in jobs:
        if isinstance(job, Event):
            packer.add(job)
        elif not isinstance(job, _Stop):
            others.append(job)
    if not others:
        packer.finish(db)
        return packer.last
    db.execute("begin")
    for job in others:
        if isinstance(job, _Snapshot):
            db.execute("delete from snapshots")
            row = (job.seq, STATE_VERSION, job.state)
            db.execute("insert into snapshots values(?,?,?)", row)
        elif isinstance(job, _Meta):
            db.execute("insert or replace into meta values(?,?)", (job.key, job.value))
    packer.finish(db, alone=False)
    db.execute("commit")
    return packer.last


def _settle(waiters: list[_Waiter], error: Callable[[], JournalError] | None = None) -> None:
    """Wake those who wait, each loop once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for _, loop, future in waiters:
        by_loop.setdefault(loop, []).append(future)
    for loop, futures in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_set_all, futures, error)


def _set_all(
    futures: list["asyncio.Future[None]"], error: Callable[[], JournalError] | None
) -> None:
    for future in futures:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error())
