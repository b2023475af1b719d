"""The append-only record of everything: SQLite in WAL mode, one writer thread, batched commits.

It is the truth: state is rebuilt from it, and a reward is on the disk before it is sent. A kill
can lose the batch that was open (some tens of milliseconds), never a committed row; what was
committed follows to the disk at once, see `core.journal.fsync`. What cannot be
written because of a full disk or a lock is kept in order, and written as soon as it can be.
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
"""Seconds an event may lie about before it is written when nobody waits for it."""
SPACING = 0.03
"""Seconds between the beginnings of two commits at least where many wait: they share one."""
CROWD = 16
"""Open groups from which on that holds; fewer wait less, a single one hardly at all."""
REST = 20.0
"""A commit that took so little CPU that it could be had so many times meanwhile need not be shared:
the writer then takes a twentieth of one processor at most."""
RETRY = (0.5, 5.0)
"""Seconds until what could not be written is tried again: at first, and at most."""
LOOK = 0.5
"""Seconds between two looks at what has come meanwhile, so that it is bounded."""
DISK = "Look after the disk: it is tried again by itself"
RETRY_BUSY = 1.0
"""Seconds a lock is waited for meanwhile: closing waits for it."""


class JournalError(AjetError):
    """The journal cannot be read or written."""


class Journal(JournalReader):
    """One file. Appending never blocks; reading opens its own connection."""

    def __init__(self, path: Path) -> None:
        """Open or make the file.

        On a full disk it is opened to be read: events are kept, as after a commit that failed,
        until they can be written.

        Raises:
            JournalError: it is no journal, is from a newer version, or cannot be written for
                another reason.
        """
        super().__init__(path)
        self.error: str = ""
        """Why nothing can be written; empty while all is well, and again once all was written."""
        self._fault = self._todo = ""
        """Why nothing can be committed, and what to do."""
        self._unsynced = ""
        """Why the disk does not have what is committed."""
        self._lost = False
        """Events are missing for good: nothing counts as committed any more."""
        self._start_fault: Exception | None = None
        """Why the journal could only be read at the start; None once it was written."""
        try:
            journal_file.create(path)
            self._prepare()
        except (sqlite3.Error, OSError) as error:
            if not self._read_only(error):
                raise JournalError(
                    f"the journal cannot be opened: {error}",
                    where=str(path),
                    todo="Move it away to begin a new one; nothing in it is lost by that",
                ) from error
        self._jobs: deque[Job] = deque()
        self._some = threading.Event()
        """There is something to write."""
        self._told = False
        """`_some` was set since the writer looked; quicker to ask."""
        self._urgent = threading.Event()
        """Somebody waits for it."""
        self._lock = threading.Lock()
        self._waiters: list[Waiter] = []
        self._closing = threading.Event()
        self.on_error: Callable[[JournalError], None] | None = None
        """Called from the writer's thread when writing begins to fail, or fails in another way."""
        self.on_recovered: Callable[[float], None] | None = None
        """The same, once all is written that could not be: after how many seconds."""
        self.on_notice: Callable[[str], None] | None = None
        """Called from the writer's thread with what has happened to the file, for the operator."""
        self._db: sqlite3.Connection | None = None
        """The writer's own."""
        self._texts: TextWriter | None = None
        """Of `_db`."""
        self._file: journal_file.Identity | None = None
        """The file that `_db` has open."""
        self._moved = False
        """The path names another file than `_db` has open, or none: `_db` alone has the rows."""
        self.disk = FsyncThread(
            path,
            self._committed,
            failed=partial(_not_synced, str(path)),
            on_change=self._disk,
        )
        """Whoever would know of a disk that stalls calls its `look` now and then."""
        self._thread = threading.Thread(target=self._write, name="journal", daemon=True)
        self.steps = WriterTasks(self._some, self._thread)
        """What the pruner has the writer do between two commits."""
        self._thread.start()

    def _read_only(self, error: Exception) -> bool:
        """Begin with a journal that can only be read, as the disk is full.

        Returns:
            False when the error is another one, or the journal cannot be read either.
        """
        if not is_disk_full(error):
            return False
        self.without_index = True
        try:
            with self.reading() as db:
                _version(db, self.path)
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
            storage.begin_file(db)
            db.execute("pragma journal_mode=wal")
            storage.prepare(db, _version(db, self.path))
            self._open_groups = storage.open_ids(db)
            self._committed = self._written = storage.last_seq(db)

    # --- writing --------------------------------------------------------------------------------

    def append(self, job: Job) -> None:
        """Queue an event, or another job, for the writer."""
        self._jobs.append(job)
        if not self._told:
            self._told = True
            self._some.set()

    def append_snapshot(self, state: State) -> None:
        """Queue a snapshot of `state` as it is now; none of a state whose events are lost."""
        if not self._lost:
            self.append(Snapshot(state.seq, STATE_VERSION, msgspec.json.encode(state)))

    def put_meta(self, key: str, value: str) -> None:
        """Queue a small fact that is no event."""
        self.append(Meta(key, value))

    async def durable(self, seq: int) -> None:
        """Wait until all events up to `seq` are on the disk: not even the loss of power loses them.

        Raises:
            JournalError: as of `committed`; or the disk does not take them.
        """
        with self._lock:
            if self.error and self._committed < seq:
                raise self.failure()
            future = self.disk.waits_for(seq, self._committed)
        if future is not None:
            if not self._urgent.is_set():
                self._urgent.set()
            await future

    async def committed(self, seq: int) -> None:
        """Wait until all events up to `seq` are committed: no kill of the process loses them.

        Raises:
            JournalError: they cannot be written now. They are committed later, all the same, where
                the error passes.
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
        """Write what is queued and end the writer."""
        self.append(Stop())
        self._urgent.set()
        self._closing.set()
        self._thread.join(timeout=10)
        self.disk.close()

    def _disk(self, error: Exception | None, seconds: float) -> None:
        """From the syncer. While the disk refuses or stalls nothing new is trained on."""
        with self._lock:
            self._unsynced = "" if error is None else f"to the disk: {error}"
            self.error = self._fault or self._unsynced
            waiters: list[Waiter] = []
            if error is not None:  # the writer may wait for the disk, too
                waiters, self._waiters = self._waiters, []
        if not self._fault:  # which is told, and stays
            self._tell(seconds)
        resolve_waiters(waiters, self.failure)

    def failure(self) -> JournalError:
        """Error of the waiters while nothing can be written."""
        return JournalError(
            f"the journal cannot be written: {self.error}",
            where=str(self.path),
            todo=f"{self._todo if self._fault else DISK}; no reward is sent meanwhile",
        )

    def _tell(self, seconds: float) -> None:
        """What is wrong now; or that nothing is, and for how long something was."""
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
            self._some.wait()
            spacing = min(SPACING * min(1.0, len(self._open_groups) / CROWD), REST * cost)
            if (rest := began + spacing - time.monotonic()) > 0:  # a sleep of 0 s waits as well
                time.sleep(rest)
            self._urgent.wait(LINGER)
            began, cpu = time.monotonic(), time.thread_time()
            jobs = self._taken()
            running = Stop not in map(type, jobs)
            try:
                self._db = self._db or self._opened()
                self.disk.writing = began
                self._stay_at_path()
                self._commit(jobs)
                cost = time.thread_time() - cpu
                if not self._jobs:
                    self.steps.carry_out_one(self._db, self._texts)
            except Exception as error:  # noqa: BLE001  without this thread all who wait hang
                self.disk.writing = 0.0
                running = self._recover(Backlog(jobs), error) and running
        self._hang_up()

    def _opened(self) -> sqlite3.Connection:
        db = self._connect()
        try:
            storage.prepare_writer(db)
            self._texts = TextWriter(db)
            db.execute("pragma synchronous=normal")  # the syncer does it, and nobody waits here
            self._file = journal_file.identity(self.path)
            self.disk.opened()
            if self._fault:
                db.execute(f"pragma busy_timeout={RETRY_BUSY * 1_000:.0f}")
                self._open_groups = storage.open_ids(db)  # a failed commit has been at them
        except sqlite3.Error:
            db.close()
            raise
        return db

    def _stay_at_path(self) -> None:
        """Copy the open file back to its path when it was deleted or replaced.

        Raises:
            sqlite3.Error: the copy cannot be made now; the open file stays open until it can.
            OSError: the same.
        """
        if not self._moved and journal_file.identity(self.path) == self._file:
            return
        assert self._db is not None
        self._moved = True
        copy = journal_file.copy_of(self._db, self.path)
        self._moved = False
        self._hang_up()  # before the copy gets its name: SQLite removes a log by its name
        aside = journal_file.put_at(copy, self.path)
        self._db = self._opened()
        what = (
            "deleted" if aside is None else f"replaced by another file, which is now {aside.name}"
        )
        notice = (
            f"the journal was {what}: it is written again from the open file, nothing is missing"
        )
        log.error("%s", notice)
        if self.on_notice is not None:
            self.on_notice(notice)

    def _hang_up(self) -> None:
        if self._db is not None and not self._moved:
            self.disk.closed()  # first: closing may delete the log that the syncer is about to open
            with contextlib.suppress(sqlite3.Error):
                self._db.close()  # which ends what it had begun
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
            if self._lost:  # rows after those do not make up for them
                return
            self._committed = self._written
            done = [waiter for waiter in self._waiters if waiter[0] <= self._committed]
            if done:
                self._waiters = [one for one in self._waiters if one[0] > self._committed]
        resolve_waiters(done)
        self.disk.committed(self._committed)

    # --- writing again --------------------------------------------------------------------------

    def _recover(self, kept: Backlog, error: Exception) -> bool:
        """Try until all that is kept is written, or too much is.

        Returns:
            False when the writer is to end.
        """
        began, pause = time.monotonic(), RETRY[0]
        if self._lost:
            self._hang_up()
            self._fail(error)
            self._take_over(kept)
            return not kept.stop
        while True:
            self._hang_up()
            if kept.too_many or not (kept.spoilt or isinstance(error, (sqlite3.Error, OSError))):
                self._lost = True
                self._fail(error, f"; {len(kept)} events that were kept meanwhile are lost")
                return not kept.stop
            self._fail(error)
            self._look_through(kept)
            if kept.stop:
                log.error("the journal is closed without %d events: %s", len(kept), error)
                return False
            self._wait(kept, pause)
            pause = min(2 * pause, RETRY[1])
            try:
                self._write_kept(kept)
            except Exception as again:  # noqa: BLE001  as in `_write`
                error = again
            else:
                break
        if not self._lost:
            with self._lock:
                self._fault = self._todo = ""
                self.error = self._unsynced
            self._tell(time.monotonic() - began)
        return not kept.stop

    def _wait(self, kept: Backlog, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not (kept.stop or kept.too_many):
            self._closing.wait(min(left, LOOK))
            self._take_over(kept)
        self._look_through(kept)

    def _take_over(self, kept: Backlog) -> None:
        while jobs := self._taken():
            kept.add(jobs)

    def _look_through(self, kept: Backlog) -> None:
        if kept.spoilt and not self._lost:
            self._lost = True
            self._fail(ValueError(kept.spoilt), "; it is lost")

    def _write_kept(self, kept: Backlog) -> None:
        if self._start_fault is not None:
            self.without_index = False
            try:
                self._prepare()
            except sqlite3.Error:
                self.without_index = True
                raise
            self._start_fault = None
        if self._db is not None:
            self._stay_at_path()
        elif not self.path.exists():
            raise JournalReplaced("the file is gone")
        self._db = db = self._db or self._opened()
        last = storage.last_seq(db)
        kept.go_on_from(last, self._written)
        self._advance(last)
        while jobs := kept.oldest(BATCH):
            self._commit(jobs)
            kept.written(len(jobs))
        db.execute(f"pragma busy_timeout={reader.BUSY * 1_000:.0f}")

    def _taken(self) -> list[Job]:
        """What is queued, up to a bound."""
        self._some.clear()
        self._urgent.clear()
        self._told = False  # last: what is put in before is taken below
        jobs = [self._jobs.popleft() for _ in range(min(BATCH, len(self._jobs)))]
        if len(jobs) == BATCH:
            self._some.set()
            self._urgent.set()
        return jobs

    def _fail(self, error: Exception, lost: str = "") -> None:
        todo = "Correct it and restart the proxy" if self._lost else remedy_for(error)
        with self._lock:
            anew, self._todo = not self._fault or todo != self._todo, todo
            if anew or not self._lost:  # what was lost, and why, stays
                self.error = self._fault = f"{str(error) or type(error).__name__}{lost}"
            waiters, self._waiters = self._waiters, []
            waiters += self.disk.given_up(self._committed)
        if anew:
            if is_damage(error):
                journal_file.mark(self.path, str(error))
            defect = None if isinstance(error, (sqlite3.Error, OSError)) else error
            log.error("the journal cannot be written: %s. %s", self.error, todo, exc_info=defect)
            self._tell(0.0)
        resolve_waiters(waiters, self.failure)


def _version(db: sqlite3.Connection, path: Path) -> int:
    """The version of the file's tables.

    Raises:
        JournalError: it is newer than this program.
    """
    found = int(db.execute("pragma user_version").fetchone()[0])
    if newer := storage.refuse_newer(db, found):
        raise JournalError(newer, str(path), "Use the newer program, or name another home")
    return found


def _not_synced(path: str, error: Exception) -> JournalError:
    return JournalError(f"the journal cannot be written to the disk: {error}", path, DISK)
