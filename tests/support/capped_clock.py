"""Event loops whose clock counts a limited time for each of their turns.

All timers of asyncio use the clock of their loop: timeouts, budgets, keepalives, sleeps. On a busy
or slow machine the wall clock advances while a loop does not get to its work, and a budget of 0.3 s
ends before any work begins. This clock counts at most `TURN` seconds for each turn, however long
the turn took, and for a wait at most its timeout, however late it ended.

A wait without a timeout, for another process or thread, counts in full: its limits are generous.
"""

import asyncio
import selectors
import time
from typing import Any

TURN = 0.002
"""Seconds that one turn of a loop counts for at most."""


class _Selector(selectors.DefaultSelector):
    """A selector that measures its waits and what is left of the turn after them."""

    def __init__(self) -> None:
        super().__init__()
        self.waited = 0.0
        self.left = TURN

    def select(self, timeout: float | None = None) -> Any:
        began = time.monotonic()
        select = super().select(timeout)
        passed = time.monotonic() - began
        self.waited += passed if timeout is None else min(passed, max(timeout, 0.0))
        self.left = TURN
        return select


class CappedClockLoop(asyncio.SelectorEventLoop):
    """A loop whose `time()` starts at the wall clock and falls behind on a slow machine."""

    def __init__(self, selector: selectors.BaseSelector | None = None) -> None:
        self._waits = _Selector()
        self._wall = self._counted = time.monotonic()
        super().__init__(self._waits)

    def time(self) -> float:
        """Seconds, see the class."""
        now, waits = time.monotonic(), self._waits
        worked = min(max(now - self._wall - waits.waited, 0.0), waits.left)
        self._counted += waits.waited + worked
        self._wall, waits.waited, waits.left = now, 0.0, waits.left - worked
        return self._counted

    def skip(self, seconds: float) -> None:
        """Advance the clock at once, as for a turn that blocks the loop."""
        self._counted += max(seconds, 0.0)


def loop_time() -> float:
    """Seconds on the clock of the running loop, which does not count time it did not receive."""
    return asyncio.get_running_loop().time()


def skip(seconds: float) -> None:
    """Advance the clock of the running loop at once."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, CappedClockLoop)
    loop.skip(seconds)


class CappedClockPolicy(asyncio.DefaultEventLoopPolicy):
    """A policy whose loops have a capped clock."""

    wall = False
    """Make ordinary loops instead: the code that draws a screen also uses the wall clock."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """A new loop."""
        return super().new_event_loop() if CappedClockPolicy.wall else CappedClockLoop()
