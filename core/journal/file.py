"""File of the journal: created for its owner only, and restored at its path if it is replaced.

A proxy holds the file open. If it is deleted or replaced, the open file still has every row: it is
copied back to its path, and any file that is now there is renamed.
"""

import contextlib
import logging
import os
import sqlite3
import time
from pathlib import Path

from core.whole_file import make_private

log = logging.getLogger(__name__)

SIBLINGS = ("-wal", "-shm")
"""Suffixes of the files that SQLite keeps beside a database."""

Identity = tuple[int, int]
"""Device and inode of a file."""


def create(path: Path) -> None:
    """Create an empty file if there is none, and make it readable for its owner only.

    SQLite gives the files beside it the same mode.

    Raises:
        OSError: The file cannot be created.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    for name in (path, *(Path(f"{path}{end}") for end in SIBLINGS)):
        with contextlib.suppress(OSError):  # missing, or of another owner
            if name.stat().st_mode & 0o077 and not name.is_symlink():
                make_private(name, 0o600)
                log.warning("%s was open to others, now only you can read it", name)


def mark_of(path: Path) -> Path:
    """Return the path of the mark that makes the next start check the journal."""
    return path.with_name(f"{path.name}.damage")


def mark(path: Path, damage: str) -> None:
    """Mark the journal so that the next start checks it; the mark contains `damage`."""
    try:
        mark_of(path).write_text(damage + "\n", encoding="utf-8")
    except OSError as error:
        log.warning("%s cannot be written: %s", mark_of(path), error)


def identity(path: Path) -> Identity | None:
    """Return the identity of the file at `path`; None if there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def set_aside(path: Path, why: str) -> Path | None:
    """Rename a journal and the files beside it.

    Args:
        path: The journal.
        why: One word for the new name: `journal.db.WHY-20260131-235959`.

    Returns:
        The new path of the journal; None if there was none.

    Raises:
        OSError: It cannot be renamed.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S")
    aside = path.with_name(f"{path.name}.{why}-{stamp}")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.{why}-{stamp}-{number}")
    for end in ("", *SIBLINGS):
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{path}{end}", f"{aside}{end}")
    return aside if aside.exists() else None


def copy_of(db: sqlite3.Connection, path: Path) -> Path:
    """Copy an open journal, including its log, to a new file beside `path`.

    Raises:
        sqlite3.Error: It cannot be read, or there is no room for the copy.
        OSError: The new file cannot be created.
    """
    copy = path.with_name(f"{path.name}.copy-{os.getpid()}")
    remove(copy)
    create(copy)
    try:
        with contextlib.closing(sqlite3.connect(copy)) as new:
            db.backup(new)
    except BaseException:
        remove(copy)
        raise
    return copy


def put_at(copy: Path, path: Path) -> Path | None:
    """Move `copy` to `path`; rename the file at that path as `replaced` and return its new path.

    The log at `path` belongs to the old file, whose rows are in the copy: it is deleted, else
    SQLite would apply it to the copy. No process may have the old file open.

    Raises:
        OSError: It cannot be moved.
    """
    for end in SIBLINGS:
        Path(f"{path}{end}").unlink(missing_ok=True)
    aside = set_aside(path, "replaced")
    copy.replace(path)
    return aside


def remove(path: Path) -> None:
    """Delete a database and the files beside it, if they exist."""
    for end in ("", *SIBLINGS):
        Path(f"{path}{end}").unlink(missing_ok=True)
