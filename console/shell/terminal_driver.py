"""Textual's Linux driver with job control: stop, continue, and never more than one input thread."""

import contextlib
import os
import signal
import termios
import time
from collections.abc import Callable, Iterable
from types import FrameType

from textual import events
from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.drivers import linux_driver
from textual.message import Message


class JobControlDriver(linux_driver.LinuxDriver):
    """Restarts application mode after a stop, and suspends the whole process group.

    Textual's own driver starts its threads on every SIGCONT. After a SIGSTOP the first threads are
    still running, so two threads read the keys, and the program never exits because it stops only
    one of them.

    Both signal handlers only schedule a call on the event loop: while a handler runs, the main
    thread may hold the lock of the output queue, which the calls need.
    """

    _resumes_itself = False
    """Whether `_suspend` runs, which restarts application mode without the SIGCONT handler."""

    def run_input_thread(self) -> None:
        """Read the input with a parser whose pastes end; Textual has no way to choose one."""
        linux_driver.XTermParser = PasteParser  # type: ignore[attr-defined]
        super().run_input_thread()

    def _sigtstp_application(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._suspend)

    def _sigcont_application(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        if not self._resumes_itself and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._restart)

    def _suspend(self) -> None:
        """Restore the terminal and stop the process group, including a `make` that started it.

        The kernel does not stop a process group that no shell can continue; then the screen
        returns immediately.
        """
        if not self._auto_restart:  # an editor uses the terminal and stops itself
            os.kill(os.getpid(), signal.SIGSTOP)
            return
        self.suspend_application_mode()
        self._resumes_itself = True
        handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(0, signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, handler)
        self._resumes_itself = False
        self._restart()

    def _restart(self) -> None:
        """Set up the terminal again, because a shell may have changed its mode meanwhile."""
        if not self._auto_restart:
            return
        # This stops the process again while it is in the background, until `fg`.
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self.fileno, termios.TCSANOW, termios.tcgetattr(self.fileno))
        if self._key_thread is not None and self._key_thread.is_alive():
            self.suspend_application_mode()
        self._must_signal_resume = True
        self.resume_application_mode()
        self._app.refresh(layout=True)


LIMIT = 2.0
"""Seconds without pasted text after which a paste ends. A single character is a key, not pasted
text, so that keys do not keep a paste without an end open."""


class PasteParser(XTermParser):
    """Collects each paste itself, and passes everything else on.

    Args:
        debug: As for `XTermParser`.
        clock: Returns seconds that never go back.
    """

    def __init__(self, debug: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(debug)
        self._clock = clock
        self._pasted: str | None = None
        """Text of the present paste; None outside of one."""
        self._until = 0.0
        self._tail = ""
        """End of what was passed on, which may be the first piece of a start mark."""
        self._late = ""
        """The rest of an end mark whose first piece was dropped at the limit."""

    def feed(self, data: str) -> Iterable[Message]:
        """Return the events of some input."""
        if not data:  # the end of the input
            yield from super().feed(data)
            return
        while data and data[0] == self._late[:1]:
            data, self._late = data[1:], self._late[1:]
        self._late = "" if data else self._late
        while data:
            if self._pasted is None:
                before, start, after = (self._tail + data).partition(BRACKETED_PASTE_START)
                torn = len(self._tail) - len(before)
                if start and torn > 0:  # the base has the first piece: end the paste that it begins
                    for message in super().feed(start[torn:] + BRACKETED_PASTE_END):
                        if not isinstance(message, events.Paste):
                            yield message
                elif before := before[len(self._tail) :]:
                    yield from super().feed(before)
                self._tail = "" if start else (self._tail + data)[1 - len(BRACKETED_PASTE_START) :]
                if not start:
                    return
                data = after
                self._pasted, self._until = "", self._clock() + LIMIT
            if len(data) > 1:
                self._until = self._clock() + LIMIT
            text, end, rest = (self._pasted + data).partition(BRACKETED_PASTE_END)
            if not end:
                self._pasted = text
                return
            self._pasted, data = None, rest
            yield _paste(text)

    def tick(self) -> Iterable[Message]:
        """Return the events of timeouts; called at regular intervals."""
        waits = self._timeout_time is not None
        yield from super().tick()
        if waits and self._timeout_time is None:  # the first piece of a sequence became keys
            self._tail = ""
        if self._pasted is None or self._clock() < self._until:
            return
        text, self._pasted = self._pasted, None
        for size in range(len(BRACKETED_PASTE_END) - 1, 0, -1):
            if text.endswith(BRACKETED_PASTE_END[:size]):
                text, self._late = text[:-size], BRACKETED_PASTE_END[size:]
                break
        yield _paste(text)


def _paste(text: str) -> events.Paste:
    return events.Paste(text.replace("\x00", ""))
