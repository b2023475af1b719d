"""Tuning of Python's garbage collector for server processes."""

import asyncio
import gc
import time
from collections.abc import Callable

YOUNG = 50_000
"""Allocations before a collection of the youngest generation. Python's default of 700 is less than
one request allocates, and cost a fifth of the proxy's CPU time."""
MIDDLE, OLD = 20, 20
STEP = 0.25
"""Seconds between two collections of new objects."""
QUIET = 5.0
"""Seconds without a user before all objects are collected."""
FULL_EVERY = 600.0
"""Minimum seconds between two collections of all objects."""
OVERDUE = 3_600.0
"""Seconds after which all objects are collected at any time."""


def tune_gc() -> None:
    """Exclude all existing objects from collection, and collect the others less often.

    Memory stays bounded: cycles (an exception and its frames) are freed a little later.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)


async def collect_in_steps(
    busy: Callable[[], bool], clock: Callable[[], float] = time.monotonic
) -> None:
    """Collect new objects every `STEP` seconds and exclude those that remain.

    A collection scans every live object of its generations and blocks the event loop meanwhile.
    Python counts allocations less deallocations, so the generation of a busy server grows to all
    its live objects before the first collection: 12 ms. Cycles among excluded objects are freed
    by a collection of all objects, in a quiet time.

    Args:
        busy: Whether users are served.
        clock: Current time in seconds.
    """
    full_at = busy_at = clock()
    while True:
        await asyncio.sleep(STEP)
        now = clock()
        if busy():
            busy_at = now
        elapsed = now - full_at
        if elapsed >= OVERDUE or (elapsed >= FULL_EVERY and now - busy_at >= QUIET):
            gc.unfreeze()
            gc.collect()
            full_at = now
        else:
            gc.collect(1)
        gc.freeze()
