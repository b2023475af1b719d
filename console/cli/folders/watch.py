"""Detects edited files of a folder, ignoring files that a run writes itself."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

MOST: Final = 5_000
"""Maximum number of files that are watched."""
SKIPPED: Final = frozenset({"__pycache__", "node_modules", "venv", "site-packages"})
"""Folders without files to edit; hidden folders are skipped as well."""
_TEMPORARY: Final = ("~", ".pyc", ".pyo", ".swp", ".swx", ".tmp")

Stamps = Mapping[str, tuple[int, int]]
"""Path below the folder -> modification time in ns, size in bytes."""


def stamps(folder: Path, most: int = MOST) -> Stamps:
    """Return the stamps of all files that may be edited; at most `most`, top folders first."""
    result: dict[str, tuple[int, int]] = {}
    for path in _files(folder):
        if len(result) >= most:
            break
        try:
            stat = path.stat()
        except OSError:  # it is being replaced at this moment
            continue
        result[str(path.relative_to(folder))] = (stat.st_mtime_ns, stat.st_size)
    return result


def _files(folder: Path) -> Iterator[Path]:
    waiting = [folder]
    while waiting:
        here = waiting.pop(0)
        try:
            inside = sorted(os.scandir(here), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in inside:
            if entry.name.startswith(".") or entry.name.endswith(_TEMPORARY):
                continue
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in SKIPPED:
                    waiting.append(Path(entry.path))
            elif entry.is_file():
                yield Path(entry.path)


class FolderWatch:
    """Decides when an edit in a folder requires another run.

    A file that appears during a run was written by that run. A file that changes during a run
    causes another run; if it changes again during that one, the run writes it, and it is ignored
    from then on.
    """

    def __init__(self, folder: Path, most: int = MOST) -> None:
        self._folder, self._most = folder, most
        self._before: Stamps = {}
        self._known: Stamps = {}
        self._touched: set[str] = set()
        self._own: set[str] = set()

    @property
    def full(self) -> bool:
        """Whether the folder has more files than are watched."""
        return len(self._before) >= self._most

    def run_started(self) -> None:
        """Record the files at the start of a run."""
        self._before = stamps(self._folder, self._most)

    def run_ended(self) -> None:
        """Record the files at the end of a run."""
        after = stamps(self._folder, self._most)
        touched = {name for name, stamp in self._before.items() if after.get(name) != stamp}
        self._own |= touched & self._touched
        self._touched = touched
        self._known = {**after, **self._before}

    def changed(self) -> bool:
        """Return whether a file was edited since the run started."""
        current = stamps(self._folder, self._most)
        return self._without_own(current) != self._without_own(self._known)

    def _without_own(self, files: Stamps) -> dict[str, tuple[int, int]]:
        return {name: file for name, file in files.items() if name not in self._own}
