"""Fingerprints of files that rewards are loaded from."""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

SETTLE = 0.04
"""Seconds between two checks that must agree, so that a half-written save is not loaded."""

Stamp = tuple[tuple[str, int, int], ...]
"""Path, modification time (ns) and size of each file; -1 for a missing file."""


def stamp(files: Iterable[Path]) -> Stamp:
    """Return a cheap fingerprint of files."""
    fingerprint = []
    for file in files:
        try:
            status = file.stat()
            fingerprint.append((str(file), status.st_mtime_ns, status.st_size))
        except OSError:
            fingerprint.append((str(file), -1, -1))
    return tuple(fingerprint)


async def settled(check: Callable[[], Stamp], current: Stamp) -> Stamp:
    """Return the fingerprint once two checks of it agree: an editor may be within its save."""
    for _ in range(20):
        await asyncio.sleep(SETTLE)
        later = await asyncio.to_thread(check)
        if later == current:
            break
        current = later
    return current
