"""Settings of glibc's allocator for a server process."""

import ctypes
import sys

LARGE = 1 << 20
"""Bytes from which a block is memory of its own, which is returned when it is freed."""
ARENAS = 2
"""Maximum heaps: glibc gives each thread its own, and each keeps its largest use."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def return_large_blocks() -> bool:
    """Have large blocks returned to the system; call it before the first thread starts.

    By default glibc keeps blocks of a size that was freed once, up to 32 MB, in the heap of their
    thread, and small blocks between them keep the heap large.

    Returns:
        False on a system without glibc, which is left as it is.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    options = ((_M_MMAP_THRESHOLD, LARGE), (_M_TRIM_THRESHOLD, LARGE), (_M_ARENA_MAX, ARENAS))
    return all([mallopt(name, value) for name, value in options])
