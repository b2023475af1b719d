"""What the writer writes, and its connection to the file, which may fail or be replaced."""

import contextlib
import errno
import logging
import sqlite3
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from core.events import Event
from core.journal import file as journal_file
from core.journal.file import add_snapshot, check_version, last_seq
from core.journal.reader import STATE_VERSION
from core.journal.rows import Row, RowWriter

log = logging.getLogger(__name__)

ROWS = 200
"""Maximum number of rows of one statement: each statement waits for the interpreter's lock."""
BUSY = 2.0
"""Seconds to wait for another program's lock on the file; `Journal.close` waits for it too."""
BACKLOG_EVENTS = 200_000
"""Maximum number of events in memory while nothing can be written."""
BACKLOG_BYTES = 256 << 20
"""Maximum bytes of their JSON; beyond either limit they are lost."""

_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
"""Primary error codes of a file with damaged pages."""
_HELD = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_UNWRITABLE = (UnicodeEncodeError, TypeError, msgspec.MsgspecError)
"""Errors of an event that has no JSON."""


class Snapshot(NamedTuple):
    """The state as it was after event `seq`, as JSON."""

    seq: int
    state: bytes


class Meta(NamedTuple):
    """A key and value that are not an event."""

    key: str
    value: str


Job = Event | Snapshot | Meta


class TaskFailed(Exception):
    """A task was not carried out; nothing of it is in the file."""


class JournalReplaced(sqlite3.DatabaseError):
    """The file is not the one that was written before."""


class Backlog(list[Job]):
    """Jobs that the writer has taken and not committed, in order."""

    _measured = _bytes = 0
    """Number of jobs whose JSON was measured, and its bytes."""

    def drop(self, count: int) -> None:
        """Remove the `count` oldest jobs."""
        del self[:count]
        self._measured = self._bytes = 0

    def overflows(self) -> bool:
        """Return whether it exceeds its bounds."""
        for job in self[self._measured :]:
            with contextlib.suppress(*_UNWRITABLE):
                self._bytes += len(msgspec.json.encode(job))
        self._measured = len(self)
        return self._measured > BACKLOG_EVENTS or self._bytes > BACKLOG_BYTES

    def drop_unwritable(self) -> str:
        """Drop jobs that can never be written; return why, empty if there is none."""
        reason = ""
        for job in list(self):
            try:
                msgspec.json.encode(job)
            except _UNWRITABLE as error:
                reason = f"{type(job).__name__} cannot be written: {error}; it is lost"
                self.remove(job)
        self.drop(0)
        return reason


class JournalStorage:
    """One journal file, written by one thread of this process.

    Other threads use only `is_open` and `changes`.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_open = False
        """Whether the file is open for writing, so that it has a log."""
        self.changes = 0
        """Number of rows that were changed since the file was opened."""
        self._db: sqlite3.Connection | None = None
        self._rows: RowWriter
        self._identity: journal_file.Identity | None = None
        """Identity of the file that `_db` has open."""
        self._detached = False
        """Whether the path names another file than `_db` has open, or none: only `_db` has the
        rows."""

    # --- opening --------------------------------------------------------------------------------

    def open(self) -> int:
        """Open the file; return the number of its newest event.

        Raises:
            JournalError: It is of another version.
            sqlite3.Error: It cannot be opened.
        """
        with contextlib.ExitStack() as on_error:
            db = journal_file.connect(self.path, BUSY, "rw")
            on_error.callback(db.close)
            journal_file.prepare(db, self.path)
            db.execute("pragma synchronous=normal")
            db.execute("pragma wal_autocheckpoint=0")  # the other thread copies the log
            self._rows = RowWriter(db)
            self._identity = journal_file.identity(self.path)
            last = last_seq(db)
            on_error.pop_all()
        self._db, self.is_open = db, True
        return last

    def read_only(self) -> int | None:
        """Go on with a file that can only be read because the disk is full.

        Returns:
            The number of its newest event; None if it cannot be read either.

        Raises:
            JournalError: It is of another version.
        """
        try:
            with contextlib.closing(journal_file.connect(self.path, BUSY)) as db:
                check_version(db, self.path)
                return last_seq(db)
        except sqlite3.Error as error:
            log.error("the journal cannot be read without writing beside it: %s", error)
            return None

    def reopen(self, written: int, backlog: Backlog) -> int:
        """Open the file again after a fault; return the number of its newest event.

        Args:
            written: Number of the event that was written last.
            backlog: Jobs to write.

        Raises:
            JournalReplaced: It is gone, or does not end with an event that was written.
            sqlite3.Error: It cannot be opened.
        """
        if not self.path.exists():
            raise JournalReplaced("the file is gone")
        last = self.open()
        held = (job.seq for job in backlog if isinstance(job, Event))
        if last != written and last not in held:  # a failed commit may be in the file
            self.close()
            raise JournalReplaced(f"it ends with event {last}, and {written} was written")
        return last

    def close(self) -> None:
        """Close the file, unless it is the only one with the rows."""
        if self._db is not None and not self._detached:
            self.is_open = False  # first: closing may delete the log
            with contextlib.suppress(sqlite3.Error):
                self._db.close()  # rolls an open transaction back
            self._db = None

    def restore_path(self) -> str:
        """Copy the open file back to its path if it was deleted or replaced.

        Returns:
            A message for the operator; empty if the file is at its path.

        Raises:
            sqlite3.Error: The copy cannot be made now; the open file stays open until it can.
            OSError: The same.
        """
        if not self._detached and journal_file.identity(self.path) == self._identity:
            return ""
        assert self._db is not None
        self._detached = True
        copy = journal_file.copy_of(self._db, self.path)
        self._detached = False
        self.close()  # before the copy gets the name: SQLite deletes the log by name
        aside = journal_file.put_at(copy, self.path)
        self.open()
        what = (
            "deleted" if aside is None else f"replaced by another file, which is now {aside.name}"
        )
        return f"the journal was {what}: it is written again from the open file, nothing is missing"

    # --- writing --------------------------------------------------------------------------------

    def commit(self, jobs: Sequence[Job], written: int) -> int:
        """Write jobs in one transaction; return the number of the newest event.

        Args:
            jobs: The jobs, in order.
            written: Number of the newest event in the file: up to it, events are left out.

        Raises:
            sqlite3.Error: Nothing of them is written, or all; close the file.
        """
        assert self._db is not None
        db = self._db
        db.execute("begin immediate")
        rows: list[Row] = []
        for job in jobs:
            if isinstance(job, Snapshot):
                add_snapshot(db, job.seq, STATE_VERSION, zlib.compress(job.state, 1))
            elif isinstance(job, Meta):
                db.execute("insert or replace into meta values (?,?)", job)
            elif job.seq > written:
                rows.append(self._rows.row(job))
        for first in range(0, len(rows), ROWS):
            some = rows[first : first + ROWS]
            marks = ",".join(["(?,?,?,?,?,?)"] * len(some))
            values = [field for row in some for field in row]
            db.execute(f"insert into rows values {marks}", values)
        db.execute("commit")
        self.changes = db.total_changes
        return rows[-1][0] if rows else written

    def run(self, action: Callable[[sqlite3.Connection], None]) -> int:
        """Carry out an action of the pruner in one transaction; return the newest event's number.

        Raises:
            Exception: That of the action, of which nothing is left.
        """
        assert self._db is not None
        db = self._db
        try:
            db.execute("begin immediate")
            action(db)
            db.execute("commit")
        finally:
            if db.in_transaction:
                db.execute("rollback")
            self._rows.refresh()
            self.changes = db.total_changes
        return last_seq(db)


# --- errors -------------------------------------------------------------------------------------


def is_temporary(error: Exception) -> bool:
    """Return whether a write may succeed later."""
    return isinstance(error, (sqlite3.Error, OSError))


def is_damage(error: BaseException | None) -> bool:
    """Return whether `error` means that the file itself is damaged, not only locked or full."""
    return _code(error) in _DAMAGED or (
        isinstance(error, sqlite3.Error) and "Could not decode" in str(error)  # not UTF-8
    )


def is_disk_full(error: Exception) -> bool:
    """Return whether `error` may be caused by a full disk.

    SQLite reports an input or output error if it has no room for its index beside the file.
    """
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return _code(error) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


def remedy_for(error: Exception) -> str:
    """Return the operator's remedy for a journal that cannot be written."""
    if is_damage(error):
        return "Restart the proxy: the start sets the file aside and keeps what can be read"
    if isinstance(error, JournalReplaced) or _code(error) == sqlite3.SQLITE_ERROR:
        return "Put the file back as it was; or move it away and restart the proxy"
    if _code(error) in _HELD:
        return "End the process that locks it, such as a backup: the proxy retries by itself"
    return "Free some space or make it writable: the proxy retries by itself"


def _code(error: BaseException | None) -> int:
    """Return the primary code of SQLite's error; 0 for another one."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
