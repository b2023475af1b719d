"""Journal: the append-only record of all events, in SQLite with WAL and batched commits.

State is rebuilt from it, and a reward that trains is on the disk before it is sent. One thread
writes. A kill can lose the open batch (some tens of milliseconds), never a committed row; committed
rows are synced to the disk at once, see `core.journal.fsync`. Events that cannot be written because
of a full disk or a lock stay in memory, in order, and are written as soon as possible: a kill loses
them.
"""

import asyncio
import contextlib
import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from ajet_swarm.common.errors import AjetError
from core.journal import file as journal_file
from core.journal import reader, storage
from core.journal.batch import (
    Backlog,
    Job,
    JournalReplaced,
    Meta,
    Snapshot,
    Stop,
    Waiter,
    WriterTasks,
    commit,
    is_damage,
    is_disk_full,
    remedy_for,
    resolve_waiters,
)
from core.journal.fsync import FsyncThread
from core.journal.reader import STATE_VERSION, JournalReader
from core.journal.texts import TextWriter
from core.state import State

log = logging.getLogger(__name__)

BATCH = 4_096
LINGER = 0.02
"""Seconds for which an event may stay unwritten while no caller waits for it."""
SHARE = 0.005
"""Seconds for which events that must be on the disk wait to share a commit: the rewards of a group
share that of the next request of a user who asks again at once."""
SPACING = 0.03
"""Minimum seconds between the starts of two commits under load, so that events share a commit."""
CROWD = 16
"""Number of open groups at which `SPACING` applies in full; it is proportional below."""
REST = 20.0
"""Limit of the spacing as a multiple of the last commit's CPU time: cheap commits are not delayed,
and the writer uses at most a twentieth of one processor."""
TASK_ROOM = 0.01
"""Minimum seconds until the next commit for a task of the pruner to begin while events wait."""
RETRY = (0.5, 5.0)
"""Seconds until a failed write is retried: initial and maximum."""
POLL = 0.5
"""Seconds between two checks of the backlog's bounds."""
DISK_REMEDY = "Check the disk: the proxy retries by itself"
RETRY_BUSY = 1.0
"""Seconds to wait for a lock during a retry; `close` waits for it too."""


class JournalError(AjetError):
    """The journal cannot be read or written."""


class OlderJournal(JournalError):
    """The journal was written by an older program, in another form."""


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
        super().__init__(path)
        self.error: str = ""
        """Why events cannot be written; empty if they can."""
        self._fault = self._todo = ""
        """Why nothing can be committed, and the remedy."""
        self._unsynced = ""
        """Why committed events are not on the disk."""
        self._lost = False
        """Events are lost: nothing counts as committed any more."""
        self._start_fault: Exception | None = None
        """Why the journal could only be read at the start; None once it is written."""
        try:
            journal_file.create(path)
            self._prepare()
        except (sqlite3.Error, OSError) as error:
            if not self._read_only(error):
                raise JournalError(
                    f"the journal cannot be opened: {error}",
                    where=str(path),
                    todo="Move it away to begin a new one; that loses nothing in it",
                ) from error
        self._jobs: deque[Job] = deque()
        self._pending = threading.Event()
        """Set while jobs are queued."""
        self._pending_set = False
        """Whether `_pending` was set since the writer's last check; quicker to test."""
        self._urgent = threading.Event()
        """Set while a caller waits for a commit."""
        self._sharing = True
        """Whether the next commit is at least `SHARE` after its first event; False once that time
        has passed."""
        self._lock = threading.Lock()
        self._waiters: list[Waiter] = []
        self._closing = threading.Event()
        self.on_error: Callable[[JournalError], None] | None = None
        """Called by the writer's thread when writing begins to fail, or fails in another way."""
        self.on_recovered: Callable[[float], None] | None = None
        """Called by the writer's thread once the backlog is written, with the seconds it took."""
        self.on_notice: Callable[[str], None] | None = None
        """Called by the writer's thread with a message for the operator about the file."""
        self._db: sqlite3.Connection | None = None
        """The writer's connection."""
        self._texts: TextWriter | None = None
        """Text store of `_db`."""
        self._file: journal_file.Identity | None = None
        """Identity of the file that `_db` has open."""
        self._detached = False
        """Whether the path names another file than `_db` has open, or none: only `_db` has the
        rows."""
        self.disk = FsyncThread(
            path,
            self._committed,
            failed=partial(_sync_error, str(path)),
            on_change=self._on_disk_change,
        )
        """Syncs commits to the disk; call its `check_stall` now and then."""
        self._thread = threading.Thread(target=self._write, name="journal", daemon=True)
        self.tasks = WriterTasks(self._pending, self._thread)
        """Transactions of the pruner, carried out between two commits."""
        self._thread.start()

    def _read_only(self, error: Exception) -> bool:
        """Start with a journal that can only be read because the disk is full.

        Returns:
            False if the error has another cause, or the journal cannot be read either.
        """
        if not is_disk_full(error):
            return False
        self.without_index = True
        try:
            with self.reading() as db:
                check_version(db, self.path)
                self._open_groups = storage.open_ids(db)
                self._committed = self._written = storage.last_seq(db)
        except sqlite3.Error as unreadable:
            log.error("the journal cannot be read without writing beside it: %s", unreadable)
            return False
        self._start_fault = error
        self.error = self._fault = str(error)
        self._todo = remedy_for(error)
        log.error("the journal cannot be written: %s. %s", error, self._todo)
        return True

    def _prepare(self) -> None:
        with contextlib.closing(self._connect()) as db:
            file_version = check_version(db, self.path)
            storage.begin_file(db)
            db.execute("pragma journal_mode=wal")
            storage.prepare(db, file_version)
            self._open_groups = storage.open_ids(db)
            self._committed = self._written = storage.last_seq(db)

    # --- writing --------------------------------------------------------------------------------

    def append(self, job: Job) -> None:
        """Queue an event or another job for the writer."""
        self._jobs.append(job)
        if not self._pending_set:
            self._pending_set = True
            self._pending.set()

    def append_snapshot(self, state: State, parts: tuple[bytes, ...] = ()) -> None:
        """Queue a snapshot of the present `state`, unless events were lost.

        Args:
            state: The state; not used after the call.
            parts: Its JSON in parts; empty to encode it here.
        """
        if not self._lost:
            parts = parts or (msgspec.json.encode(state),)
            self.append(Snapshot(state.seq, STATE_VERSION, parts))

    def put_meta(self, key: str, value: str) -> None:
        """Queue a key and value that are no event."""
        self.append(Meta(key, value))

    async def durable(self, seq: int) -> None:
        """Wait until all events up to `seq` are on the disk and survive a loss of power.

        Raises:
            JournalError: As for `committed`, or they cannot be synced.
        """
        with self._lock:
            if self.error and self._committed < seq:
                raise self.failure()
            future = self.disk.waits_for(seq, self._committed)
        if future is not None:
            if not self._sharing:
                self._urgent.set()
            await future

    async def committed(self, seq: int) -> None:
        """Wait until all events up to `seq` are committed and survive a kill of the process.

        Raises:
            JournalError: They cannot be written now. They are still committed later if the error
                passes.
        """
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._committed >= seq:
                return
            if self.error:
                raise self.failure()
            future: asyncio.Future[None] = loop.create_future()
            self._waiters.append((seq, loop, future))
        if not self._urgent.is_set():
            self._urgent.set()
        await future

    def close(self) -> None:
        """Write the queued jobs and end the writer."""
        self.append(Stop())
        self._urgent.set()
        self._closing.set()
        self._thread.join(timeout=10)
        self.disk.close()

    def _on_disk_change(self, error: Exception | None, seconds: float) -> None:
        """Note a change of the disk's health. While syncs fail or stall, no reward is sent."""
        with self._lock:
            self._unsynced = "" if error is None else f"to the disk: {error}"
            self.error = self._fault or self._unsynced
            waiters: list[Waiter] = []
            if error is not None:  # the writer may wait for the disk too
                waiters, self._waiters = self._waiters, []
        if not self._fault:  # a fault is already reported and persists
            self._notify(seconds)
        resolve_waiters(waiters, self.failure)

    def failure(self) -> JournalError:
        """Return the error for waiters while nothing can be written."""
        return JournalError(
            f"the journal cannot be written: {self.error}",
            where=str(self.path),
            todo=f"{self._todo if self._fault else DISK_REMEDY}; no reward is sent meanwhile",
        )

    def _notify(self, seconds: float) -> None:
        """Report the present error; or the recovery, with the seconds that the error lasted."""
        if self.error:
            if self.on_error is not None:
                self.on_error(self.failure())
            return
        log.warning("the journal is written again, after %.1f s; nothing is missing", seconds)
        if self.on_recovered is not None:
            self.on_recovered(seconds)

    def _write(self) -> None:
        running = True
        began = cost = 0.0
        if self._start_fault is not None:
            running = self._recover(Backlog([]), self._start_fault)
        while running:
            self._pending.wait()
            if self._jobs:  # a task of the pruner alone waits for nothing
                rest = began + _spacing(len(self._open_groups), cost) - time.monotonic()
                if rest > 0:  # even a sleep of 0 s costs time
                    time.sleep(rest)
                if not self._urgent.wait(SHARE):
                    self._sharing = False  # first: a later caller of `durable` sets `_urgent`
                    if not self.disk.awaited:
                        self._urgent.wait(LINGER - SHARE)
                    self._sharing = True
            now, cpu = time.monotonic(), time.thread_time()
            jobs = self._take_jobs()
            running = Stop not in map(type, jobs)
            try:
                self._db = self._db or self._open()
                self.disk.writing = now
                self._restore_path()
                if jobs:
                    began = now
                    self._commit(jobs)
                    cost = time.thread_time() - cpu
                self.disk.writing = 0.0
                room = began + _spacing(len(self._open_groups), cost) - time.monotonic()
                if not self._jobs or room >= TASK_ROOM or self.tasks.overdue:
                    self.tasks.run_next(self._db, self._texts)
            except Exception as error:  # noqa: BLE001  without this thread all waiters would hang
                self.disk.writing = 0.0
                running = self._recover(Backlog(jobs), error) and running
        self._close_db()

    def _open(self) -> sqlite3.Connection:
        db = self._connect()
        try:
            storage.prepare_writer(db)
            self._texts = TextWriter(db)
            db.execute(
                "pragma synchronous=normal"
            )  # the fsync thread syncs, and nothing waits here
            self._file = journal_file.identity(self.path)
            self.disk.opened()
            if self._fault:
                db.execute(f"pragma busy_timeout={RETRY_BUSY * 1_000:.0f}")
                self._open_groups = storage.open_ids(db)  # a failed commit may have changed them
        except sqlite3.Error:
            db.close()
            raise
        return db

    def _restore_path(self) -> None:
        """Copy the open file back to its path if it was deleted or replaced.

        Raises:
            sqlite3.Error: The copy cannot be made now; the open file stays open until it can.
            OSError: The same.
        """
        if not self._detached and journal_file.identity(self.path) == self._file:
            return
        assert self._db is not None
        self._detached = True
        copy = journal_file.copy_of(self._db, self.path)
        self._detached = False
        self._close_db()  # before the copy gets the name: SQLite deletes the log by name
        aside = journal_file.put_at(copy, self.path)
        self._db = self._open()
        what = (
            "deleted" if aside is None else f"replaced by another file, which is now {aside.name}"
        )
        notice = (
            f"the journal was {what}: it is written again from the open file, nothing is missing"
        )
        log.error("%s", notice)
        if self.on_notice is not None:
            self.on_notice(notice)

    def _close_db(self) -> None:
        if self._db is not None and not self._detached:
            self.disk.closed()  # first: closing may delete the log that the fsync thread opens
            with contextlib.suppress(sqlite3.Error):
                self._db.close()  # rolls an open transaction back
            self._db = None

    def _commit(self, jobs: list[Job]) -> None:
        assert self._db is not None
        assert self._texts is not None
        seq = commit(self._db, jobs, self._open_groups, self._texts)
        self.disk.writing = 0.0
        self._advance(seq)

    def _advance(self, seq: int) -> None:
        self._written = max(self._written, seq)
        with self._lock:
            if self._lost:  # later rows do not replace the lost ones
                return
            self._committed = self._written
            done = [waiter for waiter in self._waiters if waiter[0] <= self._committed]
            if done:
                self._waiters = [one for one in self._waiters if one[0] > self._committed]
        resolve_waiters(done)
        self.disk.committed(self._committed)

    # --- recovery -------------------------------------------------------------------------------

    def _recover(self, backlog: Backlog, error: Exception) -> bool:
        """Retry until the backlog is written or overflows.

        Returns:
            False if the writer must end.
        """
        began, pause = time.monotonic(), RETRY[0]
        if self._lost:
            self._close_db()
            self._fail(error)
            self._collect(backlog)
            return not backlog.stop
        while True:
            self._close_db()
            if backlog.overflows or not (
                backlog.unwritable or isinstance(error, (sqlite3.Error, OSError))
            ):
                self._lost = True
                self._fail(error, f"; {len(backlog)} events in memory are lost")
                return not backlog.stop
            self._fail(error)
            self._check(backlog)
            if backlog.stop:
                log.error("the journal is closed without %d events: %s", len(backlog), error)
                return False
            self._wait(backlog, pause)
            pause = min(2 * pause, RETRY[1])
            try:
                self._write_backlog(backlog)
            except Exception as again:  # noqa: BLE001  as in `_write`
                error = again
            else:
                break
        if not self._lost:
            with self._lock:
                self._fault = self._todo = ""
                self.error = self._unsynced
            self._notify(time.monotonic() - began)
        return not backlog.stop

    def _wait(self, backlog: Backlog, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not (backlog.stop or backlog.overflows):
            self._closing.wait(min(left, POLL))
            self._collect(backlog)
        self._check(backlog)

    def _collect(self, backlog: Backlog) -> None:
        while jobs := self._take_jobs():
            backlog.add(jobs)

    def _check(self, backlog: Backlog) -> None:
        if backlog.unwritable and not self._lost:
            self._lost = True
            self._fail(ValueError(backlog.unwritable), "; it is lost")

    def _write_backlog(self, backlog: Backlog) -> None:
        if self._start_fault is not None:
            self.without_index = False
            try:
                self._prepare()
            except sqlite3.Error:
                self.without_index = True
                raise
            self._start_fault = None
        if self._db is not None:
            self._restore_path()
        elif not self.path.exists():
            raise JournalReplaced("the file is gone")
        self._db = db = self._db or self._open()
        last = storage.last_seq(db)
        backlog.resume_after(last, self._written)
        self._advance(last)
        while jobs := backlog.oldest(BATCH):
            self._commit(jobs)
            backlog.drop(len(jobs))
        db.execute(f"pragma busy_timeout={reader.BUSY * 1_000:.0f}")

    def _take_jobs(self) -> list[Job]:
        """Return up to `BATCH` queued jobs."""
        self._pending.clear()
        self._urgent.clear()
        self._pending_set = False  # last: jobs appended before are taken below
        jobs = [self._jobs.popleft() for _ in range(min(BATCH, len(self._jobs)))]
        if len(jobs) == BATCH:
            self._pending.set()
            self._urgent.set()
        return jobs

    def _fail(self, error: Exception, lost: str = "") -> None:
        todo = "Correct it and restart the proxy" if self._lost else remedy_for(error)
        with self._lock:
            changed, self._todo = not self._fault or todo != self._todo, todo
            if changed or not self._lost:  # the reason of a loss stays
                self.error = self._fault = f"{str(error) or type(error).__name__}{lost}"
            waiters, self._waiters = self._waiters, []
            waiters += self.disk.given_up(self._committed)
        if changed:
            if is_damage(error):
                journal_file.mark(self.path, str(error))
            defect = None if isinstance(error, (sqlite3.Error, OSError)) else error
            log.error("the journal cannot be written: %s. %s", self.error, todo, exc_info=defect)
            self._notify(0.0)
        resolve_waiters(waiters, self.failure)


def check_version(db: sqlite3.Connection, path: Path) -> int:
    """Return the schema version of the file; 0 for a new one.

    Raises:
        OlderJournal: It is older than this program.
        JournalError: It is newer.
    """
    file_version = int(db.execute("pragma user_version").fetchone()[0])
    if file_version > storage.SCHEMA:
        todo = "Use the newer program, or name another home"
        raise JournalError(storage.refusal(db, file_version), str(path), todo)
    if 0 < file_version < storage.SCHEMA:
        raise OlderJournal(storage.refusal(db, file_version), str(path), export_remedy(path))
    return file_version


def export_remedy(path: Path) -> str:
    """Return how to export a journal of an older program."""
    return f"The program that wrote it exports it: `ajet-console export jsonl OUT --journal {path}`"


def _sync_error(path: str, error: Exception) -> JournalError:
    return JournalError(f"the journal cannot be written to the disk: {error}", path, DISK_REMEDY)


def _spacing(open_groups: int, cost: float) -> float:
    """Return the minimum seconds between the starts of two commits.

    Args:
        open_groups: Number of groups that are not closed.
        cost: CPU seconds of the last commit.
    """
    return min(SPACING * min(1.0, open_groups / CROWD), REST * cost)
