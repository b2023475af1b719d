"""The call that has the hooks' thread, recorded in memory that outlives their process.

A process that ends at once, through a bad pointer or lack of memory, cannot report anything. The
call it was running is recorded here, so that the other calls are known not to be the cause.
"""

import contextlib
import mmap
import os
import struct
import sys
import tempfile
from collections.abc import Iterator

_FORM = struct.Struct("=q")


@contextlib.contextmanager
def shared_page() -> Iterator[int]:
    """Yield the descriptor of a new shared page, to pass to a process that starts meanwhile."""
    if sys.platform == "linux":
        page = os.memfd_create("hooks")
    else:
        with tempfile.TemporaryFile() as file:
            page = os.dup(file.fileno())
    try:
        os.ftruncate(page, mmap.PAGESIZE)
        yield page
    finally:
        os.close(page)


class ThreadOwner:
    """One process's mapping of the shared page, until `close`."""

    def __init__(self, page: int) -> None:
        self._page = mmap.mmap(page, mmap.PAGESIZE)

    def put(self, call: int) -> None:
        """Record the call that has the thread; 0 for none."""
        _FORM.pack_into(self._page, 0, call)

    def get(self) -> int:
        """Return the call that has the thread; 0 for none."""
        return int(_FORM.unpack_from(self._page, 0)[0])

    def close(self) -> None:
        """Unmap the page."""
        self._page.close()
