"""A program on a real pseudo terminal, and the cost of its keys and CPU."""

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from core.runtime.home import Home

BAND = "#26354a"
"""Background colour of the cursor's row in the dark theme."""
ROOT = Path(__file__).resolve().parents[2]
_BAND = b"48;2;%d;%d;%d" % tuple(bytes.fromhex(BAND[1:]))
_MARKS = re.compile(rb"\x1b\[(\d+);(\d+)H|" + re.escape(_BAND))
_ESCAPES = re.compile(rb"\x1b(\[[0-9;?<>=]*[a-zA-Z]|\][^\x07\x1b]*(\x07|\x1b\\))")
MOST = 400_000
"""Number of painted characters kept for searches."""


class TerminalProgram:
    """One program at a terminal; it reads the output during every call."""

    def __init__(
        self,
        args: Sequence[str],
        home: Home,
        width: int = 160,
        height: int = 48,
        more: Mapping[str, str] | None = None,
    ) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith("AJET")
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an operator's files are compiled once
        self.began = time.monotonic()
        self.child = subprocess.Popen(
            [sys.executable, *args],
            env={
                **environment,
                "AJET_CONSOLE_HOME": str(home.root),
                "PYTHONPATH": str(ROOT),
                "TERM": "xterm-256color",
                "COLORTERM": "truecolor",
                **(more or {}),
            },
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        os.set_blocking(self._master, False)
        self.process = psutil.Process(self.child.pid)
        self.seen = ""
        self.row = 0
        """Row at which the cursor was painted last."""
        self._y = 0
        self._rest = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            print(f"--- terminal\n{self.seen[-3000:]}")
        with contextlib.suppress(ProcessLookupError):
            self.child.kill()
        self.child.wait(10)
        os.close(self._master)

    # --- reading --------------------------------------------------------------------------------

    def read(self, seconds: float) -> bool:
        """Read output for up to `seconds`; return at the first bytes."""
        ready, _, _ = select.select([self._master], [], [], max(0.0, seconds))
        data_read = b""
        if ready:
            with contextlib.suppress(BlockingIOError, OSError):
                while data := os.read(self._master, 1 << 16):
                    data_read += data
        if data_read:
            data_read = self._rest + data_read
            cut = data_read.rfind(b"\x1b", len(data_read) - 40)  # it may not be whole
            cut = cut if cut > 0 else len(data_read)
            self._rest, data_read = data_read[cut:], data_read[:cut]
            self._look(data_read)
            text = _ESCAPES.sub(b" ", data_read).decode("utf-8", "replace")
            self.seen = (self.seen + text)[-MOST:]
        return bool(ready)

    def _look(self, data: bytes) -> None:
        for mark in _MARKS.finditer(data):
            if mark[1] is not None:
                self._y = int(mark[1])
            else:
                self.row = self._y

    def rest(self, seconds: float) -> None:
        """Read output for a time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.read(left)

    def expect(self, words: str, limit: float = 20.0) -> float:
        """Read until `words` are painted after this call; return the monotonic time."""
        self.seen = ""
        end = time.monotonic() + limit
        while words not in self.seen:
            assert time.monotonic() < end, f"not painted within {limit:g} s: {words!r}"
            assert self.child.poll() is None, f"the program ended with {self.child.returncode}"
            self.read(0.1)
        return time.monotonic()

    def number(self, pattern: str) -> int:
        """Return the last number on the screen that matches a pattern; 0 without a match."""
        matches = re.findall(pattern, self.seen)
        return int(matches[-1]) if matches else 0

    # --- measuring ------------------------------------------------------------------------------

    def type(self, keys: str) -> float:
        """Write keys; return the monotonic time."""
        at = time.monotonic()
        os.write(self._master, keys.encode())
        return at

    def key(self, key: str, to: int, limit: float) -> tuple[float, float]:
        """Return delays of a key in seconds: to the cursor's row at `to`, and the wait for a core.

        The first is `limit` if the row did not come.
        """
        while self.read(0.0):
            pass
        stood = self.stood()
        at = self.type(key)
        while (gone := time.monotonic() - at) < limit:
            self.read(limit - gone)
            if self.row == to:
                return time.monotonic() - at, self.stood() - stood
        return limit, 0.0

    def stood(self) -> float:
        """Return the seconds for which the program's main thread was ready but waited for a core.

        On a machine of one's own next to nothing; elsewhere it is not the program's. Linux tells
        it; 0 where nobody does.
        """
        try:
            return int(Path(f"/proc/{self.child.pid}/schedstat").read_text().split()[1]) / 1e9
        except (OSError, IndexError):
            return 0.0

    def cpu(self) -> float:
        """Return the seconds of CPU used so far."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def share(self, seconds: float) -> float:
        """Return the percentage of one core used within the next `seconds`."""
        began, used = time.monotonic(), self.cpu()
        self.rest(seconds)
        return 100 * (self.cpu() - used) / (time.monotonic() - began)

    def resident(self) -> float:
        """Return the memory in MB."""
        return float(self.process.memory_info().rss) / 1e6
