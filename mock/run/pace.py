"""How a run of the mock user goes on and how it ends."""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

How = Literal["finished", "stopped", "failed"]

MOST_IN_FLIGHT = 1_000
"""Questions in flight when they arrive at a rate; further ones wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast and how patiently."""

    concurrency: int = 3
    """Closed loop: questions in flight, each followed by the next."""
    seconds: float = 0.0
    """Between two questions of one worker."""
    rate: float = 0.0
    """Open loop: questions a second, whatever is in flight, as a Poisson process; 0 for none."""
    updates: int = 0
    """Stop after so many policy updates; 0 for never."""
    pause_sync: bool = False
    """Ask nothing while no engine takes work."""
    patience: float = 900.0
    """Seconds a row is tried again while the target is busy or away; groups that wait for a rating
    may keep a server busy for ten minutes."""
    stop_wait: float = 120.0
    """Seconds that rows in flight get after a stop was ordered."""
    poll: float = 1.0
    """Seconds between two looks at the directive."""

    def gaps(self, seed: int | None) -> Iterator[float]:
        """Seconds between two arrivals of the open loop, the same for the same seed."""
        chance = random.Random(None if seed is None else f"{seed}:arrivals")
        while True:
            yield chance.expovariate(self.rate)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    how: How
    cause: str = ""


@dataclass(slots=True)
class Gate:
    """Whether rows may go out now."""

    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    open: asyncio.Event = field(default_factory=asyncio.Event)

    async def rest(self, seconds: float) -> bool:
        """Wait `seconds`, less when a stop comes; True when it came."""
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self.stopping.wait()
        except TimeoutError:
            return self.stopping.is_set()
        return True
