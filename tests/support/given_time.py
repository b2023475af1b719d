"""Event loops whose clock counts only the time that the loop was given.

All timers of asyncio go by the clock of their loop: timeouts, budgets, keepalives, sleeps. On a
busy or slow machine the clock on the wall runs on while a loop does not get to its work, and a
budget of 0.3 s is over before anybody has begun. Here each turn counts for little, however long it
took, and a wait for as long as was asked for, however late it ended.

What a loop waits for in other processes and threads counts in full: limits on that are generous.
"""

import asyncio
import selectors
import time
from typing import Any

TURN = 0.002
"""Seconds that one turn of a loop counts for at most."""


class _Selector(selectors.DefaultSelector):
    """Tells how long it waited, and what is left of the turn after it."""

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


class GivenTimeLoop(asyncio.SelectorEventLoop):
    """Its `time()` is that of the wall at first, and falls behind where the machine does."""

    def __init__(self, selector: selectors.BaseSelector | None = None) -> None:
        self._waits = _Selector()
        self._wall = self._given = time.monotonic()
        super().__init__(self._waits)

    def time(self) -> float:
        """Seconds, see the class."""
        now, waits = time.monotonic(), self._waits
        worked = min(max(now - self._wall - waits.waited, 0.0), waits.left)
        self._given += waits.waited + worked
        self._wall, waits.waited, waits.left = now, 0.0, waits.left - worked
        return self._given

    def skip(self, seconds: float) -> None:
        """Let so many seconds pass at once, as for one who holds up the loop."""
        self._given += max(seconds, 0.0)


class GivenTimePolicy(asyncio.DefaultEventLoopPolicy):
    """Loops of this process are of that kind."""

    wall = False
    """Ordinary ones instead: what paints a screen goes by the clock on the wall, too."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """One of them."""
        return super().new_event_loop() if GivenTimePolicy.wall else GivenTimeLoop()
