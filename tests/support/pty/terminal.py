"""The console on a real pseudo terminal: started, typed at, read, killed."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

_ESCAPES = re.compile(
    r"\x1b(\[[0-9;?<>=]*[a-zA-Z]|\][^\x07\x1b]*(\x07|\x1b\\)|[=>()][0-9A-B]?|P.*?\x1b\\)"
)


class Terminal:
    """`ajet-console ARGS` with a terminal of its own."""

    def __init__(
        self, args: list[str], environment: Mapping[str, str], width: int = 100, height: int = 30
    ) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self.began = time.monotonic()
        self.child = subprocess.Popen(
            [sys.executable, "-m", "console", *args],
            env={**environment, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        os.set_blocking(self._master, False)
        self.output = ""
        """Everything that was painted so far, without escape sequences."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            print(f"--- terminal\n{self.output[-3000:]}")
        self.kill()
        self.hang_up()

    def read(self, seconds: float) -> str:
        """The output within `seconds`; returns at the first bytes."""
        ready, _, _ = select.select([self._master], [], [], seconds)
        result = b""
        if ready:
            with contextlib.suppress(BlockingIOError, OSError):
                while data := os.read(self._master, 65536):
                    result += data
        self.painted(result)
        text = _ESCAPES.sub(" ", result.decode("utf-8", "replace"))
        self.output += text
        return text

    def painted(self, data: bytes) -> None:
        """For those who read the screen itself: bytes the console has just written."""

    def expect(self, *texts: str, limit: float = 90.0) -> None:
        """Read until all `texts` were painted, in any order, after this call began."""
        mark = len(self.output)
        end = time.monotonic() + limit
        while missing := [text for text in texts if text not in self.output[mark:]]:
            assert time.monotonic() < end, f"not painted within {limit:g} s: {missing}"
            assert self.child.poll() is None, f"the console ended with {self.child.returncode}"
            self.read(0.2)

    def type(self, keys: str) -> None:
        """Write keys as a terminal would."""
        os.write(self._master, keys.encode())

    def hang_up(self) -> None:
        """Close the far end, without a SIGHUP: this terminal controls no process."""
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

    def wait(self, limit: float = 90.0) -> int:
        """The exit code; reads on meanwhile so that the console is never stuck on its output."""
        end = time.monotonic() + limit
        while self.child.poll() is None:
            assert time.monotonic() < end, "the console does not end"
            self.read(0.1)
        return self.child.returncode

    def kill(self) -> None:
        """kill -9."""
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGKILL)
        self.child.wait(60)
