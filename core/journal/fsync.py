"""Has what was committed written to the disk itself, beside the commits.

A commit outlasts a kill of the process as soon as it is done; the loss of power it outlasts once
the disk has it. A disk may take half a second for that at times, and whoever needs no more than
the first does not wait for the second.
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
"""Seconds until a disk that refused is tried again."""
SLOW = 2.0
"""Seconds without an answer of the disk from which on it counts as one that refuses, and"""
HOPELESS = 10.0
"""from which on those that wait are told so: what they hold, others wait for."""

to_disk: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
"""Of a file's descriptor; not all systems have the first."""


class FsyncThread:
    """Of one journal; lives in a thread of its own.

    Args:
        path: The journal; what is committed lies in its write-ahead log, and SQLite itself takes
            care of what is brought from there into the file.
        committed: The newest event in it.
        failed: Makes the error that those who wait are told.
        on_change: Called with the error when the disk begins to refuse or stalls; with None when
            all is on the disk again, and the seconds in between.
    """

    def __init__(
        self,
        path: Path,
        committed: int,
        *,
        failed: Callable[[Exception], Exception],
        on_change: Callable[[Exception | None, float], None],
    ) -> None:
        self._path = Path(os.path.realpath(path))  # as SQLite names the log
        self._failed = failed
        self._on_change = on_change
        self._lock = threading.Lock()
        self._waiters: list[Waiter] = []
        self._some = threading.Event()
        self._committed = committed
        self._durable = 0
        self._file: int | None = None
        self._anew = False
        self._logged = False
        """The writer has the journal open and committed to its log."""
        self._faulty = 0.0
        """Since when the disk refuses, on the monotonic clock; 0 while it does not."""
        self.writing = 0.0
        """Since when the writer commits, which may have to wait for the disk, too; 0 while it does
        not."""
        self._under_way = 0.0
        """Since when the disk is waited for here; 0 while it is not."""
        self._slow = 0.0
        """The same, once it was told that it stalls."""
        self._telling = threading.Lock()
        self._ends = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="journal-sync", daemon=True)
        self._thread.start()

    def opened(self) -> None:
        """The writer has opened the journal anew: its log may be another file."""
        self._anew = True

    def closed(self) -> None:
        """The writer has closed it; with the last one who had it open the log is gone."""
        self._logged = False

    def committed(self, seq: int) -> None:
        """All up to `seq` is committed; from the writer's thread."""
        self._committed = seq
        self._logged = True
        if not self._some.is_set():
            self._some.set()

    def waits_for(self, seq: int, committed: int) -> "asyncio.Future[None] | None":
        """What is done once all up to `seq` is on the disk; None when it is.

        It raises what `failed` made of the disk's error; later commits try again.
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
            self._some.set()
        return future

    def given_up(self, committed: int) -> list[Waiter]:
        """Those that wait for what is not committed, and will not be for now."""
        with self._lock:
            gone = [waiter for waiter in self._waiters if waiter[0] > committed]
            if gone:
                self._waiters = [one for one in self._waiters if one[0] <= committed]
        return gone

    def look(self) -> None:
        """Tell when the disk stalls; from any thread."""
        began = min(filter(None, (self.writing, self._under_way)), default=0.0)
        took = time.monotonic() - began
        if not began or took < SLOW:
            return
        error = TimeoutError(f"it has not answered for {took:.0f} s")
        with self._telling:
            if began not in (self.writing, self._under_way):  # it has answered
                return
            if not self._slow:
                self._slow = began
                log.error("the journal is not on the disk yet: %s", error)
                self._on_change(error, 0.0)
        if took >= HOPELESS:
            with self._lock:
                waiters, self._waiters = self._waiters, []
            resolve_waiters(waiters, lambda: self._failed(error))

    def close(self) -> None:
        """Sync what is left and end; the writer has ended."""
        self._ends.set()
        self._some.set()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        ends = False
        while not ends:
            self._some.wait()
            if self._faulty:
                self._ends.wait(RETRY)
            self._some.clear()
            seq, ends = self._committed, self._ends.is_set()
            error: Exception | None = None
            self._under_way = time.monotonic()
            try:
                self._sync()
            except Exception as fault:  # noqa: BLE001  without this thread all who wait hang
                error = fault
            self._under_way = 0.0
            self._tell(error)  # first: who waits may look at once at what is told
            self._over(seq, error)
        with self._lock:
            self._ended = True
            left, self._waiters = self._waiters, []
        resolve_waiters(left, lambda: self._failed(ValueError("it is closed")))
        self._close()

    def _sync(self) -> None:
        if self._faulty:
            self._bring_home()
            return
        try:
            to_disk(self._opened())
        except FileNotFoundError:
            if self._logged:
                raise

    def _bring_home(self) -> None:
        """What a disk has refused once it may drop and call well: all of it is written anew."""
        uri = f"{self._path.as_uri()}?mode=rw"  # a file that is gone stays so
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as db:
            db.execute("pragma synchronous=full")
            busy, _, _ = db.execute("pragma wal_checkpoint(truncate)").fetchone()
        if busy:
            raise sqlite3.OperationalError("what the disk refused cannot be written again yet")
        to_disk(self._opened())  # a log with a gap would be laid over what was written anew

    def _over(self, seq: int, error: Exception | None) -> None:
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

    def _tell(self, error: Exception | None) -> None:
        if error is not None:
            self._some.set()  # it is tried again
        if error is None and not (self._faulty or self._slow):
            return
        now = time.monotonic()
        with self._telling:
            began, self._slow = self._faulty or self._slow or now, 0.0
            if error is None:
                self._faulty = 0.0
                self._on_change(None, now - began)
            elif not self._faulty:
                self._faulty = began
                log.error("the journal could not be written to the disk: %s", error)
                self._on_change(error, 0.0)

    def _opened(self) -> int:
        if self._anew or self._file is None:
            self._anew = False
            self._close()
            self._file = os.open(f"{self._path}-wal", os.O_RDWR)
        return self._file

    def _close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = None
