"""Jobs of the journal's writer, their commit, and the backlog of jobs that cannot be written."""

import asyncio
import contextlib
import errno
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

import msgspec

from core.events import Event
from core.journal.storage import Packer
from core.journal.texts import TextWriter

BACKLOG_EVENTS = 200_000
"""Maximum number of jobs in the backlog."""
BACKLOG_BYTES = 256 << 20
"""Maximum bytes of the backlog as JSON; beyond either limit it is lost."""
TASK_PATIENCE = 0.1
"""Seconds after which a task is carried out although events wait."""

_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
"""Primary error codes of a file with damaged pages."""
_HARMED = frozenset({sqlite3.SQLITE_ERROR})
"""Primary error codes of a file that lacks a table."""
_HELD = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


class Stop:
    """Job that ends the writer."""


class Snapshot(msgspec.Struct, frozen=True):
    """The state as it was after event `seq`."""

    seq: int
    version: int
    parts: tuple[bytes, ...]
    """JSON of the state, in parts that the writer's thread joins."""


class Meta(msgspec.Struct, frozen=True):
    """A key and value that are not an event."""

    key: str
    value: str


Job = Event | Snapshot | Meta | Stop


class TaskFailed(Exception):
    """A task was not carried out; nothing of it is in the file."""


TaskAction = Callable[[sqlite3.Connection, TextWriter], None]


class WriterTask:
    """One short transaction for the writer."""

    def __init__(self, action: TaskAction) -> None:
        self.action = action
        self.done = threading.Event()
        self.error: Exception | None = None
        self.queued_at = time.monotonic()
        self.seconds = 0.0


class WriterTasks:
    """Queue of transactions that the writer carries out between two commits.

    A task is carried out while no event waits, in the time for which events wait to share a commit,
    or after `TASK_PATIENCE`: a load without a gap delays it, but does not stop it.

    Args:
        pending: Event that wakes the writer.
        writer: The writer's thread.
    """

    def __init__(self, pending: threading.Event, writer: threading.Thread) -> None:
        self._pending = pending
        self._writer = writer
        self._tasks: deque[WriterTask] = deque()

    def run(self, action: TaskAction, ends: threading.Event) -> float:
        """Have the writer carry out `action` in a transaction; blocks until it is done.

        Args:
            action: Statements of the transaction.
            ends: Event that ends the wait.

        Returns:
            Duration in seconds.

        Raises:
            TaskFailed: The journal cannot be written now, or is closed.
        """
        task = WriterTask(action)
        self._tasks.append(task)
        self._pending.set()
        while not task.done.wait(0.1):
            if ends.is_set() or not self._writer.is_alive():
                raise TaskFailed("the journal is closed")
        if task.error is not None:
            raise TaskFailed(str(task.error)) from task.error
        return task.seconds

    @property
    def overdue(self) -> bool:
        """Whether the oldest task waits for longer than `TASK_PATIENCE`."""
        tasks = self._tasks
        return bool(tasks) and time.monotonic() - tasks[0].queued_at >= TASK_PATIENCE

    def run_next(self, db: sqlite3.Connection | None, texts: TextWriter | None) -> None:
        """Carry out the oldest task, if any; called by the writer's thread.

        A task that fails leaves nothing in the file.
        """
        if not self._tasks or db is None or texts is None:
            return
        task = self._tasks.popleft()
        began = time.monotonic()
        try:
            db.execute("begin immediate")
            task.action(db, texts)
            db.execute("commit")
        except Exception as error:  # noqa: BLE001  boundary of the writer thread: its waiter raises it
            task.error = error
            if db.in_transaction:
                db.execute("rollback")
        finally:
            task.seconds = time.monotonic() - began
            task.done.set()
        if self._tasks:
            self._pending.set()


class JournalReplaced(sqlite3.DatabaseError):
    """The file is not the one that was written before."""


def commit(db: sqlite3.Connection, jobs: Sequence[Job], opened: set[str], texts: TextWriter) -> int:
    """Write one batch of jobs in one transaction.

    Args:
        db: Connection from `core.journal.storage.prepare_writer`.
        jobs: Jobs in order.
        opened: Ids of groups that are not closed; updated. Invalid after an error.
        texts: Store of the long texts. Invalid after an error.

    Returns:
        The highest event number of the batch.
    """
    packer = Packer(opened, texts)
    others: list[Job] = []
    for job in jobs:
        if isinstance(job, Event):
            packer.add(job)
        elif not isinstance(job, Stop):
            others.append(job)
    if not others:
        packer.finish(db)
        return packer.last
    db.execute("begin")
    for job in others:
        if isinstance(job, Snapshot):
            db.execute("delete from snapshots")
            row = (job.seq, job.version, b"".join(job.parts))
            db.execute("insert into snapshots values(?,?,?)", row)
        elif isinstance(job, Meta):
            db.execute("insert or replace into meta values(?,?)", (job.key, job.value))
    packer.finish(db, alone=False)
    db.execute("commit")
    return packer.last


def is_damage(error: BaseException | None) -> bool:
    """Return whether `error` means that the file itself is damaged, not only locked or full."""
    if not isinstance(error, sqlite3.Error):
        return False
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    return code in _DAMAGED or "Could not decode" in str(error)  # text is not UTF-8


def is_disk_full(error: Exception) -> bool:
    """Return whether `error` may be caused by a full disk.

    SQLite reports an input or output error if it has no room for its index beside the file.
    """
    if isinstance(error, sqlite3.Error):
        code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
        return code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def remedy_for(error: Exception) -> str:
    """Return the operator's remedy for a journal that cannot be written."""
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    if is_damage(error):
        return "Restart the proxy: the start sets the file aside and keeps what can be read"
    if isinstance(error, JournalReplaced) or code in _HARMED:
        return "Put the file back as it was; or move it away and restart the proxy"
    if code in _HELD:
        return "End the process that locks it, such as a backup: the proxy retries by itself"
    return "Free some space or make it writable: the proxy retries by itself"


class Backlog:
    """Jobs that could not be written, in order; bounded by `BACKLOG_EVENTS` and `BACKLOG_BYTES`."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs: deque[tuple[Job, int]] = deque()
        self._bytes = 0
        self.stop = False
        """The writer must end after these jobs."""
        self.unwritable = ""
        """Why a job was dropped that can never be written; empty for none."""
        self.add(jobs)

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def overflows(self) -> bool:
        """Whether it exceeds its bounds."""
        return len(self._jobs) > BACKLOG_EVENTS or self._bytes > BACKLOG_BYTES

    def add(self, jobs: Sequence[Job]) -> None:
        """Append `jobs`."""
        for job in jobs:
            if isinstance(job, Stop):
                self.stop = True
                continue
            try:
                data = job.parts if isinstance(job, Snapshot) else (msgspec.json.encode(job),)
            except (UnicodeEncodeError, TypeError, msgspec.MsgspecError) as error:
                self.unwritable = f"{type(job).__name__} cannot be written: {error}"
                continue
            size = sum(map(len, data))
            self._jobs.append((job, size))
            self._bytes += size

    def oldest(self, most: int) -> list[Job]:
        """Return up to `most` of the oldest jobs; they stay until `drop`."""
        return [job for job, _ in islice(self._jobs, most)]

    def drop(self, count: int) -> None:
        """Remove the `count` oldest jobs, which are committed."""
        for _ in range(count):
            self._bytes -= self._jobs.popleft()[1]

    def resume_after(self, seq: int, written: int) -> None:
        """Drop the events up to `seq`: a commit that failed may be in the file nevertheless.

        Args:
            seq: Number of the newest event in the file.
            written: Number of the newest event known to be written.

        Raises:
            JournalReplaced: The backlog does not continue the events of the file.
        """
        if seq != written and all(getattr(job, "seq", 0) != seq for job, _ in self._jobs):
            raise JournalReplaced(f"it ends with event {seq}, and {written} was written")
        jobs = [job for job, _ in self._jobs if not isinstance(job, Event) or job.seq > seq]
        if len(jobs) < len(self._jobs):
            self._jobs.clear()
            self._bytes = 0
            self.add(jobs)


Waiter = tuple[int, asyncio.AbstractEventLoop, "asyncio.Future[None]"]
"""Number of the event that is waited for, and the future with its loop."""


def resolve_waiters(
    waiters: Sequence[Waiter], error: Callable[[], Exception] | None = None
) -> None:
    """Resolve the futures of `waiters`, waking each loop once.

    Args:
        waiters: Waiters whose wait ends.
        error: Makes the exception of each; None for success.
    """
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for _, loop, future in waiters:
        by_loop.setdefault(loop, []).append(future)
    for loop, futures in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed: it has no waiters left
            loop.call_soon_threadsafe(_set_all, futures, error)


def _set_all(futures: list["asyncio.Future[None]"], error: Callable[[], Exception] | None) -> None:
    for future in futures:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error())
