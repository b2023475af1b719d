"""Pace and end of a run of the mock user."""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

EndKind = Literal["finished", "stopped", "failed"]

MAX_IN_FLIGHT = 1_000
"""Limit of questions in flight in an open loop; further ones wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Rate and patience of a run."""

    concurrency: int = 3
    """Closed loop: number of questions in flight."""
    seconds: float = 0.0
    """Pause between two questions of one worker."""
    rate: float = 0.0
    """Open loop: questions per second as a Poisson process, however many are in flight; 0 for a
    closed loop."""
    updates: int = 0
    """Stop after this many policy updates; 0 for never."""
    pause_sync: bool = False
    """Ask nothing while no engine accepts work."""
    patience: float = 900.0
    """Seconds during which a row is retried while the target is busy or unreachable; groups that
    wait for a rating may keep a server busy for ten minutes."""
    stop_wait: float = 120.0
    """Seconds that rows in flight get after a stop."""
    poll: float = 1.0
    """Seconds between two polls of the directive."""

    def gaps(self, seed: int | None) -> Iterator[float]:
        """Yield the seconds between arrivals of the open loop, reproducible by seed; 0 for a
        closed loop."""
        chance = random.Random(None if seed is None else f"{seed}:arrivals")
        while True:
            yield chance.expovariate(self.rate) if self.rate else 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How and why a run ended."""

    how: EndKind
    cause: str = ""


@dataclass(slots=True)
class Gate:
    """Permission to send rows."""

    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    open: asyncio.Event = field(default_factory=asyncio.Event)

    async def rest(self, seconds: float) -> bool:
        """Sleep for `seconds` or until a stop; return True on a stop."""
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self.stopping.wait()
        except TimeoutError:
            return self.stopping.is_set()
        return True
