"""Who has the hooks' thread, in memory that outlives their process.

A process that dies at once, by a bad pointer or for want of memory, can say nothing any more. The
call it was at stands here, so that its neighbours are known to be none of the cause.
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
def shared() -> Iterator[int]:
    """The descriptor of a fresh page, to be handed to a process meanwhile."""
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


class Mark:
    """One side of the page; it is this side's own until `close`."""

    def __init__(self, page: int) -> None:
        self._page = mmap.mmap(page, mmap.PAGESIZE)

    def put(self, call: int) -> None:
        """This call has the thread now; 0 for none."""
        _FORM.pack_into(self._page, 0, call)

    def get(self) -> int:
        """The call that has the thread; 0 when none has."""
        return int(_FORM.unpack_from(self._page, 0)[0])

    def close(self) -> None:
        """Give the memory back."""
        self._page.close()
