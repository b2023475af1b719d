"""Sync of committed events to the disk, in a separate thread.

A commit survives a kill of the process at once; it survives a loss of power only after a sync. A
sync may take half a second, so callers that need only the first do not wait for the second.
"""

import asyncio
import contextlib
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

from core.journal.batch import Waiter, resolve_waiters

log = logging.getLogger(__name__)

RETRY = 0.5
"""Seconds until a failed sync is retried."""
SLOW = 2.0
"""Seconds after which an unfinished sync counts as a failure."""
HOPELESS = 10.0
"""Seconds after which the waiters of an unfinished sync get an error."""

to_disk: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
"""Syncs a file descriptor; not all systems have `fdatasync`."""


class FsyncThread:
    """Thread that syncs one journal.

    Args:
        path: The journal. Committed events are in its write-ahead log, which is synced here;
            SQLite syncs what it copies from there into the file.
        committed: Number of the newest committed event.
        failed: Makes the error for waiters.
        on_change: Called with the error when syncing begins to fail or stalls; with None and the
            seconds in between once everything is on the disk again.
    """

    def __init__(
        self,
        path: Path,
        committed: int,
        *,
        failed: Callable[[Exception], Exception],
        on_change: Callable[[Exception | None, float], None],
    ) -> None:
        self._path = Path(os.path.realpath(path))  # SQLite's name of the log
        self._failed = failed
        self._on_change = on_change
        self._lock = threading.Lock()
        self._waiters: list[Waiter] = []
        self._pending = threading.Event()
        self._committed = committed
        self._durable = 0
        self._file: int | None = None
        self._stale = False
        """The open log may be another file than the journal's."""
        self._logged = False
        """The writer has the journal open and has committed to its log."""
        self._faulty = 0.0
        """Monotonic time since which syncs fail; 0 if they do not."""
        self.writing = 0.0
        """Monotonic time since which the writer commits, which may wait for the disk too; 0 while
        it does not."""
        self._under_way = 0.0
        """Monotonic time since which a sync runs; 0 while none does."""
        self._stalled = 0.0
        """The same, once the stall was reported."""
        self._notifying = threading.Lock()
        self._ends = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="journal-sync", daemon=True)
        self._thread.start()

    def opened(self) -> None:
        """Note that the writer has reopened the journal: its log may be another file."""
        self._stale = True

    def closed(self) -> None:
        """Note that the writer has closed the journal, which may delete its log."""
        self._logged = False

    def committed(self, seq: int) -> None:
        """Note that all events up to `seq` are committed; called by the writer's thread."""
        self._committed = seq
        self._logged = True
        if not self._pending.is_set():
            self._pending.set()

    def waits_for(self, seq: int, committed: int) -> "asyncio.Future[None] | None":
        """Return a future that resolves once all events up to `seq` are on the disk, else None.

        A failed sync gives it the exception made by `failed`; later commits sync again.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._lock:
            if self._durable >= seq:
                return None
            if self._ended:
                raise self._failed(ValueError("it is closed"))
            self._waiters.append((seq, loop, future))
        if committed >= seq:
            self._pending.set()
        return future

    @property
    def awaited(self) -> bool:
        """Whether a caller waits for events to be on the disk."""
        return bool(self._waiters)

    def given_up(self, committed: int) -> list[Waiter]:
        """Remove and return the waiters for events that are not committed."""
        with self._lock:
            gone = [waiter for waiter in self._waiters if waiter[0] > committed]
            if gone:
                self._waiters = [one for one in self._waiters if one[0] <= committed]
        return gone

    def check_stall(self) -> None:
        """Report a sync that takes too long; may be called by any thread."""
        began = min(filter(None, (self.writing, self._under_way)), default=0.0)
        took = time.monotonic() - began
        if not began or took < SLOW:
            return
        error = TimeoutError(f"it has not answered for {took:.0f} s")
        with self._notifying:
            if began not in (self.writing, self._under_way):  # it has finished
                return
            if not self._stalled:
                self._stalled = began
                log.error("the journal is not on the disk yet: %s", error)
                self._on_change(error, 0.0)
        if took >= HOPELESS:
            with self._lock:
                waiters, self._waiters = self._waiters, []
            resolve_waiters(waiters, lambda: self._failed(error))

    def close(self) -> None:
        """Sync the rest and end the thread; the writer has ended before."""
        self._ends.set()
        self._pending.set()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        ends = False
        while not ends:
            self._pending.wait()
            if self._faulty:
                self._ends.wait(RETRY)
            self._pending.clear()
            seq, ends = self._committed, self._ends.is_set()
            error: Exception | None = None
            self._under_way = time.monotonic()
            try:
                self._sync()
            except Exception as fault:  # noqa: BLE001  without this thread all waiters would hang
                error = fault
            self._under_way = 0.0
            self._notify(error)  # first: waiters may read the reported error at once
            self._resolve(seq, error)
        with self._lock:
            self._ended = True
            left, self._waiters = self._waiters, []
        resolve_waiters(left, lambda: self._failed(ValueError("it is closed")))
        self._close()

    def _sync(self) -> None:
        if self._faulty:
            self._rewrite()
            return
        try:
            to_disk(self._log_file())
        except FileNotFoundError:
            if self._logged:
                raise

    def _rewrite(self) -> None:
        """Write everything again: a disk may drop what a failed sync refused and report success."""
        uri = f"{self._path.as_uri()}?mode=rw"  # does not create a missing file
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as db:
            db.execute("pragma synchronous=full")
            busy, _, _ = db.execute("pragma wal_checkpoint(truncate)").fetchone()
        if busy:
            raise sqlite3.OperationalError("what the disk refused cannot be written again yet")
        to_disk(self._log_file())  # a log with a gap would be applied over what was rewritten

    def _resolve(self, seq: int, error: Exception | None) -> None:
        with self._lock:
            if error is None:
                self._durable = max(self._durable, seq)
            done = [waiter for waiter in self._waiters if waiter[0] <= seq]
            if done:
                self._waiters = [one for one in self._waiters if one[0] > seq]
        if error is None:
            resolve_waiters(done)
        else:
            resolve_waiters(done, lambda: self._failed(error))

    def _notify(self, error: Exception | None) -> None:
        if error is not None:
            self._pending.set()  # retry
        if error is None and not (self._faulty or self._stalled):
            return
        now = time.monotonic()
        with self._notifying:
            began, self._stalled = self._faulty or self._stalled or now, 0.0
            if error is None:
                self._faulty = 0.0
                self._on_change(None, now - began)
            elif not self._faulty:
                self._faulty = began
                log.error("the journal could not be written to the disk: %s", error)
                self._on_change(error, 0.0)

    def _log_file(self) -> int:
        if self._stale or self._file is None:
            self._stale = False
            self._close()
            self._file = os.open(f"{self._path}-wal", os.O_RDWR)
        return self._file

    def _close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = None
