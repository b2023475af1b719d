"""How often Python looks for cycles in a process that serves."""

import gc

YOUNG = 50_000
"""Objects made and not freed before the youngest are looked at. Python's own 700 is less than one
request makes while it lives, and took a fifth of the proxy's CPU."""
MIDDLE, OLD = 20, 20


def tune_gc() -> None:
    """Leave out what is there for good, and look at the rest less often.

    Memory stays bounded: cycles (an exception and its frames) wait a little longer to be freed.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
