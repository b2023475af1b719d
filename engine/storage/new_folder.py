"""Folders that appear complete or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.whole_file import sync_folder

SUFFIX = ".tmp"
"""Ending of an incomplete folder; its name begins with a dot."""


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `target`; it is synced and renamed to `target` at the end.

    A folder at `target` is replaced. After an error `target` is as before.

    Raises:
        OSError: a file cannot be written, or `target` is no folder.
    """
    folder = _beside(target)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(parents=True)
        yield folder
        _sync(folder)
        if target.exists():
            remove_folder(target)
        folder.rename(target)
        sync_folder(target.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_folder(folder: Path) -> None:
    """Delete a folder, which is never seen incomplete under its name.

    Raises:
        OSError: it cannot be renamed.
    """
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is no folder")
    old = _beside(folder, "-old")
    shutil.rmtree(old, ignore_errors=True)
    folder.rename(old)
    shutil.rmtree(old, ignore_errors=True)


def remove_incomplete(parent: Path) -> None:
    """Delete the incomplete folders that a killed process left in a folder."""
    for folder in parent.glob(f".*{SUFFIX}"):
        shutil.rmtree(folder, ignore_errors=True)


def _beside(target: Path, mark: str = "") -> Path:
    return target.with_name(f".{target.name}{mark}.{os.getpid()}{SUFFIX}")


def _sync(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
    sync_folder(folder)
