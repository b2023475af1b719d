"""Handler of SIGTERM that gives back a script's episodes before the script ends.

Without a handler, SIGTERM ends Python at once: no `finally` block and no `atexit` function runs.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Final

WAIT: Final = 10.0
"""Largest number of seconds to wait for the episodes to be given back."""

Closers = Callable[[], Iterable[Callable[[], object]]]


def guard(closers: Closers) -> None:
    """Make a SIGTERM that would end the process call the closers first, in parallel.

    A handler that the script has set is kept, and an ignored SIGTERM stays ignored. This does
    nothing outside the main thread, where Python accepts no handler.
    """
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL and _in_main_thread():
        signal.signal(signal.SIGTERM, _Terminated(closers))


def release() -> None:
    """Remove the handler, unless the script has set its own since."""
    if isinstance(signal.getsignal(signal.SIGTERM), _Terminated) and _in_main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


class _Terminated:
    """The signal handler that runs the closers."""

    def __init__(self, closers: Closers) -> None:
        self._closers = closers

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Run the closers, then end the process by the signal; a second one ends it at once."""
        signal.signal(number, signal.SIG_DFL)
        # Use threads: the interrupted main thread may hold a lock that closing needs.
        threads = [threading.Thread(target=close, daemon=True) for close in self._closers()]
        until = time.monotonic() + WAIT
        with contextlib.suppress(RuntimeError):  # no thread can start during interpreter shutdown
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(max(0.0, until - time.monotonic()))
        os.kill(os.getpid(), number)
