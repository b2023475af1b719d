"""Waiting for a condition."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], seconds: float = 60.0) -> float:
    """Wait for a condition, at most `seconds`; gives the time it took, on the loop's clock."""
    clock = asyncio.get_running_loop().time
    started = clock()
    while not condition():
        assert clock() - started < seconds, "the condition did not come true"
        await asyncio.sleep(0.005)
    return clock() - started
