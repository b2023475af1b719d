"""A console whose terminal is gone leaves, as on SIGHUP, also where no SIGHUP comes.

Only the controlling terminal of a process sends that signal. Without it (a program that opened the
terminal for the console, some containers) the far end of the line goes silently: every read gives
nothing at once, and the console would spin for nobody.
"""

import os
import select
import signal
import threading

LEFT = 128 + signal.SIGHUP
"""Exit code where SIGHUP itself is ignored, as below `nohup`."""
PATIENCE = 2.0


def watch_terminal(terminal: int) -> threading.Thread | None:
    """Leave as soon as nobody is at the other end of a terminal; costs nothing until then.

    Args:
        terminal: File descriptor of the terminal that is read from.

    Returns:
        The thread that waits; None where a terminal cannot be waited for.
    """
    if not hasattr(select, "poll"):
        return None
    thread = threading.Thread(target=_wait, args=(terminal,), name="hangup", daemon=True)
    thread.start()
    return thread


def _wait(terminal: int) -> None:
    poller = select.poll()
    poller.register(terminal, 0)  # a hangup is told unasked
    told = [mask for _, mask in poller.poll()]
    if any(mask & (select.POLLHUP | select.POLLERR) for mask in told):
        os.kill(os.getpid(), signal.SIGHUP)
        threading.Event().wait(PATIENCE)
        os._exit(LEFT)
