"""Ends the console when its terminal is closed, also where no SIGHUP arrives.

Only the controlling terminal of a process sends SIGHUP. When the console runs without one (another
program opened the terminal for it, or in some containers), the terminal closes silently: every
read returns nothing at once, and the console would loop forever.
"""

import os
import select
import signal
import threading

EXIT_CODE = 128 + signal.SIGHUP
"""Exit code when SIGHUP is ignored, as under `nohup`."""
EXIT_SECONDS = 2.0
"""Time that the SIGHUP handler gets before the process exits with `EXIT_CODE`."""


def watch_terminal(terminal: int) -> threading.Thread | None:
    """End the process as soon as a terminal is closed at its other end; costs nothing until then.

    Args:
        terminal: File descriptor of the input terminal.

    Returns:
        The waiting thread; None on a system without `poll`.
    """
    if not hasattr(select, "poll"):
        return None
    thread = threading.Thread(target=_wait, args=(terminal,), name="hangup", daemon=True)
    thread.start()
    return thread


def _wait(terminal: int) -> None:
    poller = select.poll()
    poller.register(terminal, 0)  # a hangup is reported without being requested
    masks = [mask for _, mask in poller.poll()]
    if any(mask & (select.POLLHUP | select.POLLERR) for mask in masks):
        os.kill(os.getpid(), signal.SIGHUP)
        threading.Event().wait(EXIT_SECONDS)
        os._exit(EXIT_CODE)
