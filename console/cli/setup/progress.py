"""A line that shows what the program waits for, and for how many seconds."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ajet_swarm.common.tasks import Tasks
from ajet_swarm.common.text import one_line

QUIET = 0.7
"""Seconds without a line: most work is done by then."""
EVERY = 0.5


@asynccontextmanager
async def progress(text: str) -> AsyncIterator[None]:
    """Show a line on standard error while the block runs, and erase it; only on a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    async with Tasks("progress") as tasks:
        line = _Line(one_line(text, 90))
        tasks.spawn(line.tick(), "line")
        try:
            yield
        finally:
            line.erase()


class _Line:
    def __init__(self, text: str) -> None:
        self._text = text
        self._began = time.monotonic()
        self._width = 0

    async def tick(self) -> None:
        await asyncio.sleep(QUIET)
        while True:
            shown = f"  … {self._text} {time.monotonic() - self._began:.0f} s"
            self._width = len(shown)
            sys.stderr.write(f"\r{shown}")
            sys.stderr.flush()
            await asyncio.sleep(EVERY)

    def erase(self) -> None:
        if self._width:
            sys.stderr.write(f"\r{' ' * self._width}\r")
            sys.stderr.flush()
