"""The journal's file by its path: created for its owner alone, and kept at its path.

A proxy holds the file open. When somebody deletes it or puts another file in its place, the open
file still has every row: it is copied back to its path, and what lies there is set aside by name.
"""

import contextlib
import logging
import os
import sqlite3
import time
from pathlib import Path

log = logging.getLogger(__name__)

SIBLINGS = ("-wal", "-shm")
"""Ends of the names of the files that SQLite keeps beside a database."""

Identity = tuple[int, int]
"""Device and inode of a file."""


def create(path: Path) -> None:
    """Make an empty file where there is none, and let nobody but its owner read it.

    SQLite gives the files beside it the same mode.

    Raises:
        OSError: it cannot be made.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    for name in (path, *(Path(f"{path}{end}") for end in SIBLINGS)):
        with contextlib.suppress(OSError):  # not there, or another owner's: nothing to tighten
            if name.stat().st_mode & 0o077:
                name.chmod(0o600)
                log.warning("%s was open to others, now only you can read it", name)


def mark_of(path: Path) -> Path:
    """The file beside a journal that has the next start check it."""
    return path.with_name(f"{path.name}.damage")


def mark(path: Path, damage: str) -> None:
    """Have the next start check the journal for damage; what was found goes into the mark."""
    try:
        mark_of(path).write_text(damage + "\n", encoding="utf-8")
    except OSError as error:
        log.warning("%s cannot be written: %s", mark_of(path), error)


def identity(path: Path) -> Identity | None:
    """Which file lies at `path`; None when there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def set_aside(path: Path, why: str) -> Path | None:
    """Rename a journal and the files beside it.

    Args:
        path: The journal.
        why: One word for the new name: `journal.db.WHY-20260131-235959`.

    Returns:
        The new path of the journal; None when there was none.

    Raises:
        OSError: it cannot be renamed.
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
    """Copy an open journal, with what is in its log, to a new file beside `path`.

    Raises:
        sqlite3.Error: it cannot be read, or there is no room for the copy.
        OSError: the new file cannot be made.
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
    """Move `copy` to `path`; what lies there is set aside as `replaced`, and its path returned.

    The log at `path` is the old file's, whose rows the copy has: it is deleted, else it would be
    read as the copy's. Nobody may have the old file open.

    Raises:
        OSError: it cannot be moved.
    """
    for end in SIBLINGS:
        Path(f"{path}{end}").unlink(missing_ok=True)
    aside = set_aside(path, "replaced")
    copy.replace(path)
    return aside


def remove(path: Path) -> None:
    """Delete a file and the files beside it, where they are there."""
    for end in ("", *SIBLINGS):
        Path(f"{path}{end}").unlink(missing_ok=True)
