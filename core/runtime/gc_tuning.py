"""Tuning of Python's garbage collector for server processes."""

import asyncio
import gc
from collections.abc import Callable
from itertools import count

from ajet_swarm.runtime import SYSTEM

YOUNG = 50_000
"""Allocations before a collection of the youngest generation. Python's default of 700 is less than
one request allocates, and cost a fifth of the proxy's CPU time."""
MIDDLE, OLD = 20, 20
STEP = 0.25
"""Seconds between two collections of new objects."""
MIDDLE_EVERY = 80
"""Steps between two collections of the objects that survived one. Each makes the connections that
are open then old: they are freed by a collection of all objects."""
QUIET = 5.0
"""Seconds without a user before all objects are collected."""
FULL_EVERY = 60.0
"""Minimum seconds between two collections of all objects."""
OVERDUE = 300.0
"""Seconds after which all objects are collected at any time."""
NEVER = 1 << 30


def tune_gc() -> None:
    """Exclude all existing objects from collection, and collect the others less often.

    Memory stays bounded: cycles (an exception and its frames) are freed a little later.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)


async def collect_in_steps(
    busy: Callable[[], bool], clock: Callable[[], float] = SYSTEM.clock.monotonic
) -> None:
    """Collect new objects every `STEP` seconds, and all objects when no user is served.

    A collection scans every live object of its generations and blocks the event loop meanwhile.
    Python counts allocations less deallocations, so the youngest generation of a busy server grows
    to all its live objects before it is collected: 12 ms.

    Args:
        busy: Whether users are served.
        clock: Current time in seconds.
    """
    gc.set_threshold(YOUNG, MIDDLE, NEVER)
    full_at = busy_at = clock()
    for step in count(1):
        await asyncio.sleep(STEP)
        now = clock()
        if busy():
            busy_at = now
        elapsed = now - full_at
        if elapsed >= OVERDUE or (elapsed >= FULL_EVERY and now - busy_at >= QUIET):
            gc.collect()
            full_at = now
        else:
            gc.collect(0 if step % MIDDLE_EVERY else 1)
