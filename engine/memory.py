"""Memory that the C library keeps for the process."""

import ctypes
import gc
import sys
from typing import Any

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def keep() -> None:
    """Let glibc reuse large blocks: fresh pages for each temporary cost a third of a step."""
    if (libc := _libc()) is not None:
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(_M_TRIM_THRESHOLD, 64 << 20)
        libc.mallopt(_M_ARENA_MAX, 1)


def release() -> None:
    """Return the memory of a closed policy to the system: its objects refer to each other, and
    glibc keeps the free blocks."""
    gc.collect()
    if (libc := _libc()) is not None:
        libc.malloc_trim(0)


def _libc() -> Any:
    """Return glibc; None on other systems."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "malloc_trim") else None
