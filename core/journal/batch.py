"""What the journal's writer has to do, how it commits that, and what it keeps while it cannot."""

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
"""What could not be written is kept up to so many events, and"""
BACKLOG_BYTES = 256 << 20
"""up to so many bytes of it as JSON; past either it is lost."""

_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
"""Primary codes of a file with damaged pages."""
_HARMED = frozenset({sqlite3.SQLITE_ERROR})
"""The same of a file that lacks a table."""
_HELD = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


class Stop:
    """Tells the writer to end."""


class Snapshot(msgspec.Struct, frozen=True):
    """The state as it was after event `seq`."""

    seq: int
    version: int
    state: bytes


class Meta(msgspec.Struct, frozen=True):
    """A small fact that is no event."""

    key: str
    value: str


Job = Event | Snapshot | Meta | Stop


class TaskFailed(Exception):
    """A step was not done; nothing of it is in the file."""


TaskAction = Callable[[sqlite3.Connection, TextWriter], None]


class WriterTask:
    """A short piece of work for the writer."""

    def __init__(self, work: TaskAction) -> None:
        self.work = work
        self.done = threading.Event()
        self.error: Exception | None = None
        self.seconds = 0.0


class WriterTasks:
    """Pieces of work that the writer does while no event waits, each in a transaction of its own.

    Args:
        some: Set when there is one.
        writer: The thread that does them.
    """

    def __init__(self, some: threading.Event, writer: threading.Thread) -> None:
        self._some = some
        self._writer = writer
        self._steps: deque[WriterTask] = deque()

    def carry_out(self, work: TaskAction, ends: threading.Event) -> float:
        """Have the writer do a piece of work; blocks until it is done.

        Args:
            work: What to do, in a transaction.
            ends: Waiting ends when it is set.

        Returns:
            Seconds that it took.

        Raises:
            StepFailed: it was not done; the journal cannot be written now, or is closed.
        """
        step = WriterTask(work)
        self._steps.append(step)
        self._some.set()
        while not step.done.wait(0.1):
            if ends.is_set() or not self._writer.is_alive():
                raise TaskFailed("the journal is closed")
        if step.error is not None:
            raise TaskFailed(str(step.error)) from step.error
        return step.seconds

    def carry_out_one(self, db: sqlite3.Connection | None, texts: TextWriter | None) -> None:
        """Do the oldest one, if there is one; from the writer's thread.

        Of one that fails nothing is in the file.
        """
        if not self._steps or db is None or texts is None:
            return
        step = self._steps.popleft()
        began = time.monotonic()
        try:
            db.execute("begin immediate")
            step.work(db, texts)
            db.execute("commit")
        except Exception as error:  # noqa: BLE001  boundary of the writer thread: its waiter raises it
            step.error = error
            if db.in_transaction:
                db.execute("rollback")
        finally:
            step.seconds = time.monotonic() - began
            step.done.set()
        if self._steps:
            self._some.set()


class JournalReplaced(sqlite3.DatabaseError):
    """The file is not the one that was written to before."""


def commit(db: sqlite3.Connection, jobs: Sequence[Job], opened: set[str], texts: TextWriter) -> int:
    """Write one batch, all of it or nothing.

    Args:
        db: One of `journal_rows.open_intake`.
        jobs: In order.
        opened: Ids of groups that are not closed; kept up to date. Of no use after an error.
        texts: Stores the long texts. Of no use after an error.

    Returns:
        The highest event number in it.
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
            row = (job.seq, job.version, job.state)
            db.execute("insert into snapshots values(?,?,?)", row)
        elif isinstance(job, Meta):
            db.execute("insert or replace into meta values(?,?)", (job.key, job.value))
    packer.finish(db, alone=False)
    db.execute("commit")
    return packer.last


def is_damage(error: BaseException | None) -> bool:
    """Whether an error says that the file itself is broken, not only locked or out of room."""
    if not isinstance(error, sqlite3.Error):
        return False
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    return code in _DAMAGED or "Could not decode" in str(error)  # a text that is no text any more


def is_disk_full(error: Exception) -> bool:
    """Whether an error may come from a disk without room.

    SQLite calls it an input or output error where it has no room for its index beside the file.
    """
    if isinstance(error, sqlite3.Error):
        code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
        return code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def remedy_for(error: Exception) -> str:
    """What the operator can do so that the journal can be written again."""
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    if is_damage(error):
        return "Restart the proxy: the start sets the file aside and keeps what can be read"
    if isinstance(error, JournalReplaced) or code in _HARMED:
        return "Put the file back as it was; or move it away and restart the proxy"
    if code in _HELD:
        return "End what holds it, as a backup: it is tried again by itself"
    return "Free some space or make it writable: it is tried again by itself"


class Backlog:
    """Jobs that could not be written, in order, up to `BACKLOG_EVENTS` and `BACKLOG_BYTES`."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs: deque[tuple[Job, int]] = deque()
        self._bytes = 0
        self.stop = False
        """The writer is to end after them."""
        self.spoilt = ""
        """Why one was left out: it can never be written."""
        self.add(jobs)

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def too_many(self) -> bool:
        """More than is kept."""
        return len(self._jobs) > BACKLOG_EVENTS or self._bytes > BACKLOG_BYTES

    def add(self, jobs: Sequence[Job]) -> None:
        """Keep these behind the others."""
        for job in jobs:
            if isinstance(job, Stop):
                self.stop = True
                continue
            try:
                size = len(job.state if isinstance(job, Snapshot) else msgspec.json.encode(job))
            except (UnicodeEncodeError, TypeError, msgspec.MsgspecError) as error:
                self.spoilt = f"{type(job).__name__} cannot be written: {error}"
                continue
            self._jobs.append((job, size))
            self._bytes += size

    def oldest(self, most: int) -> list[Job]:
        """The first ones, which stay until `written`."""
        return [job for job, _ in islice(self._jobs, most)]

    def written(self, count: int) -> None:
        """The first `count` are committed."""
        for _ in range(count):
            self._bytes -= self._jobs.popleft()[1]

    def go_on_from(self, seq: int, written: int) -> None:
        """A failed commit may be in the file all the same: what is in it is not written again.

        Args:
            seq: The newest event in the file.
            written: The newest that is known to be.

        Raises:
            OtherFile: these events do not go on from there.
        """
        if seq != written and all(getattr(job, "seq", 0) != seq for job, _ in self._jobs):
            raise JournalReplaced(f"it ends with event {seq}, and {written} was written")
        jobs = [job for job, _ in self._jobs if not isinstance(job, Event) or job.seq > seq]
        if len(jobs) < len(self._jobs):
            self._jobs.clear()
            self._bytes = 0
            self.add(jobs)


Waiter = tuple[int, asyncio.AbstractEventLoop, "asyncio.Future[None]"]
"""Up to which event somebody waits, and where."""


def resolve_waiters(
    waiters: Sequence[Waiter], error: Callable[[], Exception] | None = None
) -> None:
    """Wake those who wait, each loop once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for _, loop, future in waiters:
        by_loop.setdefault(loop, []).append(future)
    for loop, futures in by_loop.items():
        with contextlib.suppress(RuntimeError):  # it is closed: nobody waits there any more
            loop.call_soon_threadsafe(_set_all, futures, error)


def _set_all(futures: list["asyncio.Future[None]"], error: Callable[[], Exception] | None) -> None:
    for future in futures:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error())
