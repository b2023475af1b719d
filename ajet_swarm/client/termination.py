"""Handler of SIGTERM that gives back a script's episodes before the script ends.

Python runs nothing of a script at a SIGTERM without a handler: no `finally`, no `atexit`.
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
"""Seconds that giving back may take."""

Closers = Callable[[], Iterable[Callable[[], object]]]


def guard(closers: Closers) -> None:
    """Make a SIGTERM that would end the process call the closers first, in parallel.

    A handler of the script stays, and an ignored SIGTERM stays ignored. Outside the main thread,
    where Python accepts no handler, this does nothing.
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
    """The handler."""

    def __init__(self, closers: Closers) -> None:
        self._closers = closers

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Close, then end the process as the signal does; a second signal ends it at once."""
        signal.signal(number, signal.SIG_DFL)
        # In threads: the main thread may have been interrupted with a lock that closing needs.
        threads = [threading.Thread(target=close, daemon=True) for close in self._closers()]
        until = time.monotonic() + WAIT
        with contextlib.suppress(RuntimeError):  # no thread begins once the interpreter ends
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(max(0.0, until - time.monotonic()))
        os.kill(os.getpid(), number)
