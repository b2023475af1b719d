"""Dataset lookup: the home's datasets folder, the working folder, the shipped questions."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import closest
from core.runtime.home import Home

FOLDER = "datasets"
"""The folder of a home for datasets."""
SHIPPED = "shipped"
"""Name of the shipped questions."""
MAX_DATASETS = 500
"""Most datasets that are listed."""
_MARKS = ("dataset_dict.json", "state.json", "train.jsonl")


@dataclass(frozen=True, slots=True)
class DatasetChoice:
    """A dataset that can be picked."""

    path: str
    """Text for the field; empty for the shipped one."""
    name: str
    where: str
    """`home`, `here` or `shipped`."""
    size: int = 0
    """Bytes; 0 for a folder."""
    folder: bool = False


def find_dataset(home: Home, text: str) -> Path:
    """Return the file or folder of `text`: a path, else a name in the home's datasets folder.

    Raises:
        UsageError: there is no such dataset in either place.
    """
    from mock.dataset import shipped

    if text in ("", SHIPPED) and not (text and Path(text).exists()):
        return shipped()
    path = Path(text).expanduser()
    if path.exists() or path.is_absolute():
        return path
    own = home.root / FOLDER / text
    if own.exists():
        return own
    suggestion = _suggestion(home, text)
    raise UsageError(
        f"there is no dataset `{text}`, neither here nor in {home.root / FOLDER}",
        todo=f"Did you mean {suggestion}?" if suggestion else "Name a file, or put it there",
    )


def field_text(path: str) -> str:
    """Return the text of the field for a dataset: empty for the shipped one."""
    from mock.dataset import shipped

    return "" if path == str(shipped()) else path


def datasets(root: Path, here: Path) -> list[DatasetChoice]:
    """Return all datasets, newest first within each place. Reads folders: call it in a thread.

    Args:
        root: The home's folder.
        here: The working folder.
    """
    choices = [DatasetChoice("", "the shipped questions", "shipped")]
    seen: set[Path] = set()
    for folder, where in ((root / FOLDER, "home"), (here, "here")):
        inside = sorted(
            _candidates(folder), key=lambda candidate: (-candidate[1].st_mtime, candidate[0].name)
        )
        for path, stat in inside[:MAX_DATASETS]:
            real = path.resolve()
            if real in seen:
                continue
            seen.add(real)
            name = path.name if where == "here" else str(path)
            folded = path.is_dir()
            choices.append(
                DatasetChoice(name, path.name, where, 0 if folded else stat.st_size, folded)
            )
    return choices[:MAX_DATASETS]


def _candidates(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    from mock.dataset import SUFFIXES

    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        path = Path(entry.path)
        try:
            if entry.is_dir():
                is_dataset = any((path / mark).exists() for mark in _MARKS)
                is_dataset = is_dataset or any(path.glob("*.parquet"))
            else:
                is_dataset = path.suffix.lower() in SUFFIXES and not entry.name.startswith(".")
            if is_dataset:
                yield path, entry.stat()
        except OSError:
            continue


def _suggestion(home: Home, text: str) -> str:
    names = [dataset.name for dataset in datasets(home.root, Path.cwd()) if dataset.path]
    matches = closest(text, names, cutoff=0.5)
    return f"`{matches[0]}`" if matches else ""


def one_question() -> str:
    """Return the path of the dataset with one question, for rating by hand."""

    from mock.dataset import shipped

    return str(shipped().with_name("one_question.jsonl"))
