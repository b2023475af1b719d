"""Tuning of Python's garbage collector for server processes."""

import gc

YOUNG = 50_000
"""Allocations before a collection of the youngest generation. Python's default of 700 is less than
one request allocates, and cost a fifth of the proxy's CPU time."""
MIDDLE, OLD = 20, 20


def tune_gc() -> None:
    """Exclude all existing objects from collection, and collect the others less often.

    Memory stays bounded: cycles (an exception and its frames) are freed a little later.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
