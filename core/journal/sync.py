"""Waits for events, and the thread that syncs commits to the disk.

A commit survives a kill of the process at once; it survives a loss of power only after a sync. A
sync may take half a second, so callers that need only the first do not wait for the second. The
thread also empties SQLite's log, which takes syncs too: no commit ever has to do that.
"""

import asyncio
import contextlib
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from core.journal.storage import JournalStorage

log = logging.getLogger(__name__)

RETRY = 0.5
"""Seconds until a failed sync is retried."""
SLOW = 2.0
"""Seconds after which an unfinished sync or commit counts as a failure."""
HOPELESS = 10.0
"""Seconds after which the waiters of an unfinished sync get an error."""
CHANGES = 1_000
"""Changed rows after which the log is copied into the file."""

to_disk: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
"""Syncs a file descriptor; not all systems have `fdatasync`."""


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
            if not done:
                return
            self._waiting = [waiter for waiter in self._waiting if not ends(waiter[0])]
        by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
        for _, loop, future in done:
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


class SyncThread:
    """Thread that syncs one journal.

    Args:
        storage: The journal. Committed events are in its write-ahead log, which is synced here.
        waits: Waits for events to be on the disk.
        failed: Makes the error of such a wait.
        on_change: Called with the error when syncs begin to fail or one stalls; with None and the
            seconds in between once everything is on the disk again.
    """

    def __init__(
        self,
        storage: JournalStorage,
        waits: Waits,
        failed: Callable[[Exception], Exception],
        on_change: Callable[[Exception | None, float], None],
    ) -> None:
        self._storage = storage
        self._path = Path(os.path.realpath(storage.path))  # SQLite's name of the log
        self._waits = waits
        self._failed = failed
        self._on_change = on_change
        self._committed = 0
        self._copied = 0
        """Changes of which the log was copied into the file."""
        self._pending = threading.Event()
        self._ends = threading.Event()
        self.writing = 0.0
        """Monotonic time since which the writer commits, which may wait for the disk too; 0 while
        it does not."""
        self._syncing = 0.0
        """The same for a sync."""
        self._refused = False
        """The disk refused a sync, and may have dropped what it was to write."""
        self._reported: Exception | None = None
        self._reported_at = 0.0
        self._reporting = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="journal-sync", daemon=True)
        self._thread.start()

    def committed(self, seq: int) -> None:
        """Note that all events up to `seq` are committed; called by the writer's thread."""
        self._committed = seq
        if not self._pending.is_set():
            self._pending.set()

    def close(self) -> None:
        """Sync the rest and end the thread; the writer has ended before."""
        self._ends.set()
        self._pending.set()
        self._thread.join(timeout=10)

    def check_stall(self) -> None:
        """Report a sync or commit that takes too long; may be called by any thread."""
        began = min(filter(None, (self.writing, self._syncing)), default=0.0)
        took = time.monotonic() - began
        if not began or took < SLOW:
            return
        error = TimeoutError(f"it has not answered for {took:.0f} s")
        with self._reporting:
            if began in (self.writing, self._syncing):  # it has not finished meanwhile
                self._report(error, began)
        if took >= HOPELESS:
            self._waits.fail(lambda: self._failed(error))

    def _run(self) -> None:
        ends = False
        while not ends:
            self._pending.wait()
            if self._refused:
                self._ends.wait(RETRY)
            self._pending.clear()
            seq, ends = self._committed, self._ends.is_set()
            fault: Exception | None = None
            self._syncing = time.monotonic()
            try:
                self._sync()
            except Exception as error:  # noqa: BLE001  without this thread all waiters would hang
                fault = error
                self._pending.set()  # retry
            self._refused, self._syncing = fault is not None, 0.0
            with self._reporting:  # first: waiters may read the reported error at once
                self._report(fault, time.monotonic())
            if fault is None:
                self._waits.reach(seq)
            else:
                self._waits.fail(partial(self._failed, fault))
        self._waits.fail(partial(self._failed, ValueError("it is closed")))

    def _sync(self) -> None:
        if self._refused:  # a disk may drop what it refused, and report success from then on
            self._copy_log("truncate")
        try:
            with open(f"{self._path}-wal", "r+b") as file:
                to_disk(file.fileno())
        except FileNotFoundError:
            if self._storage.is_open or self._refused:
                raise
        changes = self._storage.changes
        if not 0 <= changes - self._copied < CHANGES:
            self._copied = changes
            self._copy_log("passive")

    def _copy_log(self, mode: str) -> None:
        """Copy the log into the file: `passive` beside commits, `truncate` all of it."""
        uri = f"{self._path.as_uri()}?mode=rw"  # does not create a missing file
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as db:
            db.execute("pragma synchronous=full")
            busy, _, _ = db.execute(f"pragma wal_checkpoint({mode})").fetchone()
        if busy and mode == "truncate":
            raise sqlite3.OperationalError("what the disk refused cannot be written again yet")

    def _report(self, error: Exception | None, since: float) -> None:
        """Report that syncs begin to fail, fail after they stalled, or succeed again."""
        before, began = self._reported, self._reported_at
        if error is None:
            self._reported = None
            if before is not None:
                self._on_change(None, time.monotonic() - began)
        elif before is None or (isinstance(before, TimeoutError) and self._refused):
            self._reported, self._reported_at = error, began if before else since
            log.error("the journal is not on the disk: %s", error)
            self._on_change(error, 0.0)
