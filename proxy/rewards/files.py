"""Files that rewards are loaded from: their fingerprints, hook folders, and the hooks' log."""

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

SETTLE = 0.04
"""Seconds between two checks that must agree, so that a half-written save is not loaded."""

SKIPPED = {"__pycache__", "node_modules", "site-packages"}
MAX_DEPTH = 3
MAX_FILES = 500
"""Limits of a hook folder's modules: names of folders that are skipped, depth, and number."""

Stamp = tuple[tuple[str, int, int], ...]
"""Path, modification time (ns) and size of each file; -1 for a missing file."""


def stamp(files: Iterable[Path]) -> Stamp:
    """Return a cheap fingerprint of files, and of the Python files of folders."""
    fingerprint: list[tuple[str, int, int]] = []
    for file in files:
        if file.is_dir():
            fingerprint += folder_stamp(file)
            continue
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


def folder_stamp(folder: Path) -> Stamp:
    """Return a cheap fingerprint of the Python files; empty without any."""
    return tuple(sorted(_files(folder)))


def digest(folder: Path) -> str:
    """Return the hash of the names and contents of its Python files, as 12 hexadecimal digits."""
    total = hashlib.sha256()
    for name, _, _ in folder_stamp(folder):
        total.update(name.encode() + b"\0")
        with contextlib.suppress(OSError):  # deleted meanwhile: the next check detects that
            total.update((folder / name).read_bytes())
        total.update(b"\0")
    return total.hexdigest()[:12]


def _files(folder: Path) -> Iterator[tuple[str, int, int]]:
    count = 0
    for root, folders, names in os.walk(folder):
        relative = Path(root).relative_to(folder)
        at_limit = len(relative.parts) >= MAX_DEPTH
        folders[:] = [] if at_limit else sorted(n for n in folders if _is_included(Path(root) / n))
        for name in sorted(names):
            if not name.endswith(".py"):
                continue
            with contextlib.suppress(OSError):
                status = os.stat(os.path.join(root, name))
                yield (relative / name).as_posix(), status.st_mtime_ns, status.st_size
            count += 1
            if count >= MAX_FILES:
                return


def _is_included(folder: Path) -> bool:
    if folder.name.startswith(".") or folder.name in SKIPPED:
        return False
    return not (folder / "pyvenv.cfg").exists()


def trim_log(file: Path, largest: int) -> None:
    """Keep the last quarter of `largest` bytes of a log that has grown beyond that size.

    Writers have the file open for appending, so they continue at its new end.
    """
    with contextlib.suppress(OSError):
        if file.stat().st_size <= largest:
            return
        with file.open("r+b") as log:
            log.seek(-(largest // 4), os.SEEK_END)
            tail = log.read()
            log.seek(0)
            log.truncate()
            log.write(tail)
