"""Blocking waits that Ctrl-C and SIGTERM always end.

Python runs signal handlers in the main thread. A signal just before that thread blocks on a lock
does not wake it, so these waits wake up periodically.
"""

import threading
from collections.abc import Iterable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

BEAT = 0.5
"""Seconds between two wake-ups: the longest delay of a signal handler."""


def join(threads: Iterable[threading.Thread]) -> None:
    """Wait until all threads have ended."""
    for thread in threads:
        while thread.is_alive():
            thread.join(BEAT)


def acquire(room: threading.Semaphore) -> None:
    """Acquire a semaphore."""
    while not room.acquire(timeout=BEAT):
        pass


def result(future: "Future[T]") -> T:
    """Return `future.result()`.

    Raises:
        CancelledError: the future was cancelled.
        BaseException: the exception of the future.
    """
    while True:
        try:
            return future.result(BEAT)
        except TimeoutError:
            if future.done():  # the TimeoutError is the exception of the future itself
                return future.result()
