"""Writer of the journal: a queue of events, the thread that commits them, the one that syncs.

A commit survives a kill of the process at once; it survives a loss of power only after a sync. A
sync may take half a second, so callers that need only the first do not wait for the second. A kill
can lose the events of the last milliseconds, never a committed one. Events that cannot be written
because of a full disk or a lock stay in memory, in order, and are written as soon as possible: a
kill loses them.
"""

import asyncio
import contextlib
import logging
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from core.journal.file import JournalError, connect, create, mark
from core.journal.reader import JournalReader
from core.journal.storage import (
    BUSY,
    Backlog,
    Job,
    JournalStorage,
    Meta,
    Snapshot,
    TaskFailed,
    is_damage,
    is_disk_full,
    is_temporary,
    remedy_for,
)
from core.state import State

log = logging.getLogger(__name__)

SYNC_AGAIN = 0.5
"""Seconds until a failed sync is retried."""
SLOW = 2.0
"""Seconds after which an unfinished sync or commit counts as a failure."""
HOPELESS = 10.0
"""Seconds after which the waiters of an unfinished sync get an error."""
CHANGES = 1_000
"""Changed rows after which the log is copied into the file."""

Action = Callable[[sqlite3.Connection], None]
"""Statements of one transaction."""

to_disk: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
"""Syncs a file descriptor; not all systems have `fdatasync`."""


Source = Literal["commit", "sync"]


class Fault(NamedTuple):
    """Why nothing can be committed, or why commits are not on the disk."""

    what: str
    todo: str
    since: float
    """Monotonic time."""


class Waits:
    """Callers that wait until all events up to a number are committed, or on the disk.

    Args:
        reached: Number of the newest such event.
    """

    def __init__(self, reached: int) -> None:
        self._lock = threading.Lock()
        self.reached = reached
        self._waiting: list[tuple[int, asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def future(self, seq: int) -> "asyncio.Future[None] | None":
        """Return a future that resolves once `seq` is reached; None if it is."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if self.reached >= seq:
                return None
            future: asyncio.Future[None] = loop.create_future()
            self._waiting.append((seq, loop, future))
        return future

    def reach(self, seq: int) -> None:
        """Resolve the waits for events up to `seq`; called by any thread."""
        with self._lock:
            self.reached = max(self.reached, seq)
        self._end(lambda wanted: wanted <= self.reached, None)

    def fail(self, error: Callable[[], Exception], above: int = -1) -> None:
        """End the waits for events above a number with an error; called by any thread."""
        self._end(lambda wanted: wanted > above, error)

    def _end(self, ends: Callable[[int], bool], error: Callable[[], Exception] | None) -> None:
        with self._lock:
            done = [waiter for waiter in self._waiting if ends(waiter[0])]
            self._waiting = [waiter for waiter in self._waiting if not ends(waiter[0])]
        for _, loop, future in done:
            with contextlib.suppress(RuntimeError):  # the loop is closed: it has no waiters left
                loop.call_soon_threadsafe(_end, future, error)


def _end(future: "asyncio.Future[None]", error: Callable[[], Exception] | None) -> None:
    if not future.done():
        future.set_exception(error()) if error is not None else future.set_result(None)


# --- the writer -----------------------------------------------------------------------------------

BATCH = 4_096
"""Maximum number of jobs of one commit."""
LINGER = 0.02
"""Seconds for which an event may stay unwritten while no caller waits for it."""
RETRY = (0.5, 5.0)
"""Seconds until a failed write is retried: initial and maximum."""
POLL = 0.5
"""Seconds between two checks of the backlog's bounds."""
DISK_REMEDY = "Check the disk: the proxy retries by itself"


def _ignore(_: object) -> None:
    """Take no report."""


class Journal(JournalReader):
    """One journal file, open for writing. Appending never blocks; each read opens a connection."""

    def __init__(self, path: Path) -> None:
        """Open or create the file.

        On a full disk it is opened for reading only: events stay in memory, as after a failed
        commit, until they can be written.

        Raises:
            OlderJournal: An older program wrote the file.
            JournalError: The file is no journal, is from a newer version, or cannot be written for
                another reason.
        """
        self.path = path
        self.storage = JournalStorage(path)
        self.error = ""
        """Why events cannot be written; empty if they can."""
        self._faults: dict[Source, Fault] = {}
        self._lost = False
        """Events are lost: nothing counts as committed any more."""
        self._lock = threading.Lock()
        self._jobs: deque[Job] = deque()
        self._backlog = Backlog()
        self._tasks: deque[tuple[Action, Future[float]]] = deque()
        self._pending = threading.Event()
        self._urgent = threading.Event()
        """Set while a caller waits for a commit."""
        self._closing = threading.Event()
        self._to_sync = threading.Event()
        """Set while the disk may lack a commit."""
        self._written_all = threading.Event()
        """Set when the writer's thread has ended."""
        self._log = f"{path.resolve()}-wal"  # SQLite's name of the log
        self._copied = 0
        """Changes of which the log was copied into the file."""
        self._writing = self._syncing = 0.0
        """Monotonic time since which a commit, which may wait for the disk too, or a sync runs; 0
        while none does."""
        self._refused = False
        """The disk refused a sync, and may have dropped what it was to write."""
        self._stalled = False
        """The reported fault of the disk is that it does not answer."""
        self._reporting = threading.Lock()
        self.on_error: Callable[[JournalError], object] = _ignore
        """Called by the writer's thread when writing begins to fail, or fails in another way."""
        self.on_recovered: Callable[[float], object] = _ignore
        """Called by the writer's thread once the backlog is written, with the seconds it took."""
        self.on_notice: Callable[[str], object] = _ignore
        """Called by a thread with a message for the operator about the file."""
        self._open_at_start()
        self._commits = Waits(self._written)
        self._syncs = Waits(0)
        self._to_sync.set()
        name = "journal-sync"
        self._sync_thread = threading.Thread(target=self._sync_all, name=name, daemon=True)
        self._sync_thread.start()
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def _open_at_start(self) -> None:
        try:
            create(self.path)
            self._written = self.storage.open()
        except (sqlite3.Error, OSError) as error:
            if not is_disk_full(error) or (last := self.storage.read_only()) is None:
                raise JournalError(
                    f"the journal cannot be opened: {error}",
                    where=str(self.path),
                    todo="Move it away to begin a new one; that loses nothing in it",
                ) from error
            self._written = last
            self._note("commit", str(error), remedy_for(error))
            log.error("the journal cannot be written: %s. %s", error, remedy_for(error))

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield a new connection, usable in any thread."""
        with contextlib.closing(connect(self.path, BUSY)) as db:
            yield db

    # --- callers --------------------------------------------------------------------------------

    def append(self, job: Job) -> None:
        """Queue an event or another job for the writer."""
        self._jobs.append(job)
        if not self._pending.is_set():
            self._pending.set()

    def append_snapshot(self, state: State) -> None:
        """Queue a snapshot of the present `state`, unless events were lost."""
        if not self._lost:
            self.append(Snapshot(state.seq, msgspec.json.encode(state)))

    def put_meta(self, key: str, value: str) -> None:
        """Queue a key and value that are no event."""
        self.append(Meta(key, value))

    async def committed(self, seq: int) -> None:
        """Wait until all events up to `seq` are committed and survive a kill of the process.

        Raises:
            JournalError: They cannot be written now. They are still committed later if the error
                passes.
        """
        await self._wait(self._commits, seq)

    async def durable(self, seq: int) -> None:
        """Wait until all events up to `seq` are on the disk and survive a loss of power.

        Raises:
            JournalError: As for `committed`, or they cannot be synced.
        """
        await self._wait(self._syncs, seq)

    async def _wait(self, waits: Waits, seq: int) -> None:
        with self._lock:  # an error that is set later ends this wait
            if waits.reached >= seq:
                return
            uncommitted = waits is self._commits or self._commits.reached < seq
            if (self.error and uncommitted) or not self._thread.is_alive():
                raise self.failure()
            future = waits.future(seq)
        self._urgent.set()
        if future is not None:
            await future

    def run(self, action: Action, ends: threading.Event) -> float:
        """Have the writer carry out `action` in a transaction of its own; blocks until it is done.

        Args:
            action: Statements of the transaction; takes a few milliseconds.
            ends: Event that ends the wait.

        Returns:
            Duration in seconds.

        Raises:
            TaskFailed: The journal cannot be written now, or is closed.
        """
        future: Future[float] = Future()
        self._tasks.append((action, future))
        self._pending.set()
        while not wait([future], 0.1).done:
            if ends.is_set() or not self._thread.is_alive():
                raise TaskFailed("the journal is closed")
        try:
            return future.result()
        except Exception as error:
            raise TaskFailed(str(error)) from error

    def close(self) -> None:
        """Write the queued jobs and end the threads."""
        self._closing.set()
        self._urgent.set()
        self._pending.set()
        self._thread.join(timeout=10)
        self._end_syncs()

    def _end_syncs(self) -> None:
        self._written_all.set()
        self._to_sync.set()
        self._sync_thread.join(timeout=10)

    def failure(self) -> JournalError:
        """Return the error for waiters while nothing can be written."""
        fault = self._shown_fault()
        return JournalError(
            f"the journal cannot be written: {self.error or 'it is closed'}",
            where=str(self.path),
            todo=f"{fault.todo if fault else DISK_REMEDY}; no reward is sent meanwhile",
        )

    # --- faults ---------------------------------------------------------------------------------

    def _shown_fault(self) -> Fault | None:
        return self._faults.get("commit") or self._faults.get("sync")

    def _note(
        self, source: Source, what: str = "", todo: str = DISK_REMEDY, *, is_news: bool = True
    ) -> None:
        """Note a fault, or, without a text, its end, and report it.

        While syncs fail or stall, no reward is sent.
        """
        now = time.monotonic()
        with self._lock:
            before = self._faults.get(source)
            if what:
                self._faults[source] = Fault(what, todo, before.since if before else now)
            else:
                self._faults.pop(source, None)
            fault = self._shown_fault()
            self.error = fault.what if fault else ""
        if not is_news or (source == "sync" and "commit" in self._faults):
            return  # the fault is reported already, and persists
        if fault is not None:
            self.on_error(self.failure())
        elif before is not None:
            seconds = now - before.since
            log.warning("the journal is written again, after %.1f s; nothing is missing", seconds)
            self.on_recovered(seconds)

    # --- the writer's thread --------------------------------------------------------------------

    def _run(self) -> None:
        pause = RETRY[0]
        while True:
            ends = self._closing.is_set()
            if "commit" in self._faults and (self._backlog or not self._lost):
                self._hold(pause)
                pause = min(2 * pause, RETRY[1])
            elif not ends:
                self._pending.wait()
                if self._jobs:
                    self._urgent.wait(LINGER)
                ends = self._closing.is_set()
            try:
                self._write()
            except Exception as error:  # noqa: BLE001  without this thread all waiters would hang
                if "commit" not in self._faults:
                    pause = RETRY[0]
                self._failed(error)
            else:
                if "commit" in self._faults and not self._lost:
                    self._note("commit")
            if ends and ("commit" in self._faults or not self._jobs):
                break
        if self._backlog:
            log.error("the journal is closed without %d events: %s", len(self._backlog), self.error)
        self.storage.close()

    def _write(self) -> None:
        """Commit all queued jobs, and carry out one task.

        Raises:
            sqlite3.Error: They cannot be written now.
            OSError: The same.
        """
        storage = self.storage
        if not storage.is_open:
            self._written = storage.reopen(self._written, self._backlog)
        if notice := storage.restore_path():
            log.error("%s", notice)
            self.on_notice(notice)
        self._take()
        while some := self._backlog[:BATCH]:
            self._writing = time.monotonic()
            try:
                self._written = storage.commit(some, self._written)
            finally:
                self._writing = 0.0
            self._backlog.drop(len(some))
            self._advance()
        if self._tasks:
            action, future = self._tasks.popleft()
            began = time.monotonic()
            try:
                self._written = max(self._written, storage.run(action))
            except Exception as error:  # noqa: BLE001  its waiter raises it
                future.set_exception(error)
            else:
                self._advance()
                future.set_result(time.monotonic() - began)
        if self._tasks:
            self._pending.set()

    def _take(self) -> None:
        """Take the queued jobs."""
        self._pending.clear()
        self._urgent.clear()
        while self._jobs:
            self._backlog.append(self._jobs.popleft())

    def _advance(self) -> None:
        """Resolve the waits for what is committed."""
        if not self._lost:  # later rows do not replace the lost ones
            self._commits.reach(self._written)
            self._to_sync.set()

    def _failed(self, error: Exception) -> None:
        """Note that jobs cannot be written; they stay in the backlog unless that is hopeless."""
        self.storage.close()
        what, lasts = str(error) or type(error).__name__, not is_temporary(error)
        if lasts and (unwritable := self._backlog.drop_unwritable()):
            what, self._lost = unwritable, True
        elif lasts or self._backlog.overflows():
            what, self._lost = f"{what}; {len(self._backlog)} events in memory are lost", True
            self._backlog.drop(len(self._backlog))
        todo = "Correct it and restart the proxy" if self._lost else remedy_for(error)
        before = self._faults.get("commit")
        changed = before is None or before.todo != todo
        if changed:
            if is_damage(error):
                mark(self.path, str(error))
            defect = error if lasts else None
            log.error("the journal cannot be written: %s. %s", what, todo, exc_info=defect)
        if changed or not self._lost:  # the reason of a loss stays
            self._note("commit", what, todo, is_news=changed)
        self._commits.fail(self.failure)
        self._syncs.fail(self.failure, above=self._commits.reached)
        while self._tasks:
            self._tasks.popleft()[1].set_exception(error)

    def _hold(self, seconds: float) -> None:
        """Keep jobs in memory for a while, within the bounds of the backlog."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self._closing.is_set():
            self._closing.wait(min(left, POLL))
            self._take()
            if self._backlog.overflows():
                return

    # --- the thread of syncs --------------------------------------------------------------------

    def check_stall(self) -> None:
        """Report a sync or commit that takes too long; call it now and then, from any thread."""
        began = min(filter(None, (self._writing, self._syncing)), default=0.0)
        took = time.monotonic() - began
        if not began or took < SLOW:
            return
        with self._reporting:
            if began in (self._writing, self._syncing):  # it has not finished meanwhile
                self._report_disk(TimeoutError(f"it has not answered for {took:.0f} s"))
        if took >= HOPELESS:
            self._syncs.fail(self.failure)

    def _sync_all(self) -> None:
        ends = False
        while not ends:
            self._to_sync.wait()
            if self._refused:
                self._written_all.wait(SYNC_AGAIN)
            self._to_sync.clear()
            seq, ends = self._commits.reached, self._written_all.is_set()
            fault: Exception | None = None
            self._syncing = time.monotonic()
            try:
                self._sync()
            except Exception as error:  # noqa: BLE001  without this thread all waiters would hang
                fault = error
                self._to_sync.set()  # retry
            self._refused, self._syncing = fault is not None, 0.0
            with self._reporting:  # first: waiters may read the reported error at once
                self._report_disk(fault)
            if fault is None:
                self._syncs.reach(seq)
            else:
                self._syncs.fail(self.failure)
        self._syncs.fail(self.failure)

    def _sync(self) -> None:
        """Sync the write-ahead log, which has the committed events, and empty it now and then."""
        if self._refused:  # a disk may drop what it refused, and report success from then on
            _copy_log(self.path, "truncate")
        try:
            with open(self._log, "r+b") as file:
                to_disk(file.fileno())
        except FileNotFoundError:
            if self.storage.is_open or self._refused:
                raise
        changes = self.storage.changes
        if not 0 <= changes - self._copied < CHANGES:
            self._copied = changes
            _copy_log(self.path, "passive")

    def _report_disk(self, error: Exception | None) -> None:
        """Report that syncs begin to fail, fail after they stalled, or succeed again."""
        reported = "sync" in self._faults
        if error is None:
            if reported:
                self._note("sync")
        elif not reported or (self._stalled and self._refused):
            self._stalled = isinstance(error, TimeoutError)
            log.error("the journal is not on the disk: %s", error)
            self._note("sync", f"to the disk: {error}")
            self._commits.fail(self.failure)  # the writer may wait for the disk too


def _copy_log(path: Path, mode: str) -> None:
    """Copy the log into the file: `passive` beside commits, `truncate` all of it."""
    with contextlib.closing(connect(path, BUSY, "rw")) as db:
        db.execute("pragma synchronous=full")
        busy, _, _ = db.execute(f"pragma wal_checkpoint({mode})").fetchone()
    if busy and mode == "truncate":
        raise sqlite3.OperationalError("what the disk refused cannot be written again yet")
