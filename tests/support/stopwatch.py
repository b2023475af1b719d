"""How long something took, without what a busy or slow machine added to it."""

import contextlib
import os
import time
from pathlib import Path

TASKS = Path("/proc/self/task")
MACHINE = Path("/proc/stat")
STOLEN = 8
"""The word of its first line with the time that other machines used the processors."""
WORK = 20_000
ORDINARY = 0.002
"""Seconds that an ordinary machine takes for the work."""


def held_up() -> float:
    """Seconds in which threads of this process could have run and had no core; 0 where untold."""
    total = 0
    for file in TASKS.glob("*/schedstat"):
        with contextlib.suppress(OSError, IndexError, ValueError):  # a thread that has just ended
            total += int(file.read_text().split()[1])
    return total / 1e9 + _stolen()


def _stolen() -> float:
    """Seconds in which the machine itself did not run; 0 where untold."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(MACHINE.read_text().split(maxsplit=STOLEN + 1)[STOLEN]) / os.sysconf(
            "SC_CLK_TCK"
        )
    return 0.0


def slowness() -> float:
    """How many times as long as an ordinary machine this one takes to compute; at least 1."""
    best = ORDINARY * 1000
    for _ in range(3):
        began, total = time.thread_time(), 0
        for number in range(WORK):
            total += number
        best = min(best, time.thread_time() - began)
    return max(best / ORDINARY, 1.0)


class Stopwatch:
    """Runs from the start.

    Limits in fractions of a second are limits of the program: beside other work or on a slow
    machine the wall clock measures more. Waits count in full, computation counts as on an ordinary
    machine.
    """

    def __init__(self) -> None:
        self._slowness = slowness()
        self._held_up = held_up()
        self._computed = time.process_time()
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds so far."""
        passed = time.monotonic() - self._began
        computed = time.process_time() - self._computed
        waited = max(held_up() - self._held_up, 0.0)
        return passed - waited - computed * (1 - 1 / self._slowness)
