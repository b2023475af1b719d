"""How long something took, on a machine that others use too."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ajet_swarm.common.tasks import Tasks

TICK = 0.01
"""Seconds."""


@asynccontextmanager
async def own_time() -> AsyncIterator[Callable[[], float]]:
    """Seconds in which this loop ran: none pass while a busy machine does not run it.

    Waits for a timer or an answer count in full; waits for a processor do not.
    """
    ticks = 0

    async def count() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(TICK)
            ticks += 1

    async with Tasks("own time") as tasks:
        tasks.spawn(count(), "ticks")
        yield lambda: ticks * TICK
