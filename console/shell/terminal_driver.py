"""Textual's Linux driver with job control: stop, continue, and one input thread throughout."""

import contextlib
import os
import signal
import termios
from types import FrameType

from textual.drivers.linux_driver import LinuxDriver


class JobControlDriver(LinuxDriver):
    """Restarts application mode after a stop, and suspends the whole process group.

    Textual's own driver starts its threads on every SIGCONT. After a SIGSTOP the first ones still
    run: two threads then read the keys, and the program never ends because only one is stopped.

    Both handlers only schedule a call on the event loop. Inside the handler the main thread may
    hold the lock of the output queue, which the calls here need.
    """

    _resumes_itself = False
    """A suspend is under way that restarts application mode without SIGCONT's handler."""

    def _sigtstp_application(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._suspend)

    def _sigcont_application(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        if not self._resumes_itself and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._restart)

    def _suspend(self) -> None:
        """Give the terminal back and stop, together with a `make` this process runs under.

        The kernel does not stop a process group that no shell could continue; then the screen
        comes back at once.
        """
        if not self._auto_restart:  # an editor has the terminal, and stops in its own way
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
        """Set up the terminal again; a shell may have changed its mode while this was stopped."""
        if not self._auto_restart:
            return
        # Stops this process again while it is in the background, until `fg`.
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self.fileno, termios.TCSANOW, termios.tcgetattr(self.fileno))
        if self._key_thread is not None and self._key_thread.is_alive():
            self.suspend_application_mode()
        self._must_signal_resume = True
        self.resume_application_mode()
        self._app.refresh(layout=True)
