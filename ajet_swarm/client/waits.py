"""Waits of a main thread that Ctrl-C and SIGTERM always end.

Python runs a signal's handler when the main thread runs. A signal that comes just before that
thread blocks on a lock does not wake it: it would sleep through its own end. Waits here wake up
now and then.
"""

import threading
from collections.abc import Iterable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

BEAT = 0.5
"""Seconds a signal may be noticed late, at most."""


def join(threads: Iterable[threading.Thread]) -> None:
    """Wait until they have ended."""
    for thread in threads:
        while thread.is_alive():
            thread.join(BEAT)


def acquire(room: threading.Semaphore) -> None:
    """Wait for a place in `room`."""
    while not room.acquire(timeout=BEAT):
        pass


def result(future: "Future[T]") -> T:
    """As `future.result()`.

    Raises:
        CancelledError: it was cancelled; and whatever its work raised.
    """
    while True:
        try:
            return future.result(BEAT)
        except TimeoutError:
            if future.done():  # its own
                return future.result()
