"""How long something took, without what a busy machine kept this process from running."""

import contextlib
import time
from pathlib import Path

TASKS = Path("/proc/self/task")


def held_up() -> float:
    """Seconds in which threads of this process could have run and had no core; 0 where untold."""
    total = 0
    for file in TASKS.glob("*/schedstat"):
        with contextlib.suppress(OSError, IndexError, ValueError):  # a thread that has just ended
            total += int(file.read_text().split()[1])
    return total / 1e9


class Stopwatch:
    """Runs from the start.

    What is promised in fractions of a second is promised of the program: beside work of others the
    clock on the wall says more of them.
    """

    def __init__(self) -> None:
        self._held_up = held_up()
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds so far."""
        return time.monotonic() - self._began - max(held_up() - self._held_up, 0.0)
