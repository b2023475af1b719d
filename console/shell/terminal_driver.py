"""Textual's Linux driver with job control: stop, continue, and never more than one input thread."""

import contextlib
import os
import signal
import termios
from types import FrameType

from textual.drivers import linux_driver

from console.shell.paste_parser import PasteParser


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
