"""Which files of a folder have changed, but for those that a run writes itself."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

MOST: Final = 5_000
"""Files that are looked at."""
LEFT_OUT: Final = frozenset({"__pycache__", "node_modules", "venv", "site-packages"})
"""Folders nobody edits in; hidden ones are left out as well."""
_PASSING: Final = ("~", ".pyc", ".pyo", ".swp", ".swx", ".tmp")

Stamps = Mapping[str, tuple[int, int]]
"""Path below the folder -> time of its change in ns, bytes."""


def stamps(folder: Path, most: int = MOST) -> Stamps:
    """All files that somebody may edit; at most so many, those near the top first."""
    found: dict[str, tuple[int, int]] = {}
    for path in _files(folder):
        if len(found) >= most:
            break
        try:
            seen = path.stat()
        except OSError:  # being replaced at this moment
            continue
        found[str(path.relative_to(folder))] = (seen.st_mtime_ns, seen.st_size)
    return found


def _files(folder: Path) -> Iterator[Path]:
    waiting = [folder]
    while waiting:
        here = waiting.pop(0)
        try:
            inside = sorted(os.scandir(here), key=lambda one: one.name)
        except OSError:
            continue
        for one in inside:
            if one.name.startswith(".") or one.name.endswith(_PASSING):
                continue
            if one.is_dir(follow_symlinks=False):
                if one.name not in LEFT_OUT:
                    waiting.append(Path(one.path))
            elif one.is_file():
                yield Path(one.path)


class Watch:
    """Tells when a folder asks for another run.

    A file that is new after a run was written by it. One that was changed during a run asks for
    another; when that run changes it too, it is the run's own, and is looked at no more.
    """

    def __init__(self, folder: Path, most: int = MOST) -> None:
        self._folder, self._most = folder, most
        self._before: Stamps = {}
        self._known: Stamps = {}
        self._touched: set[str] = set()
        self._own: set[str] = set()

    @property
    def full(self) -> bool:
        """There are more files than are looked at."""
        return len(self._before) >= self._most

    def begins(self) -> None:
        """A run begins."""
        self._before = stamps(self._folder, self._most)

    def ended(self) -> None:
        """It is over."""
        after = stamps(self._folder, self._most)
        touched = {name for name, seen in self._before.items() if after.get(name) != seen}
        self._own |= touched & self._touched
        self._touched = touched
        self._known = {**after, **self._before}

    def changed(self) -> bool:
        """Something was edited since the run began."""
        return self._without(stamps(self._folder, self._most)) != self._without(self._known)

    def _without(self, seen: Stamps) -> dict[str, tuple[int, int]]:
        return {name: one for name, one in seen.items() if name not in self._own}
