"""Lazy readers of dataset files: JSON lines, JSON, and Parquet with pyarrow."""

import json
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from ajet_swarm.protocol.errors import SwarmError

Row = Mapping[str, Any]
LocatedRow = tuple[str, Row]
"""Location of a row (`path:line`), and the row."""

LINE_LIMIT: Final = 16 * 1024 * 1024
"""Largest accepted line in bytes."""
BATCH: Final = 256
"""Rows of a Parquet file that are in memory at once."""


class DatasetError(SwarmError):
    """A dataset cannot be read; the error names the file, the line and the field."""


def rows_of(path: Path) -> Iterator[LocatedRow]:
    """Read the rows of one file; its suffix determines the format.

    Raises:
        DatasetError: no reader has this suffix, or a row is unusable.
    """
    kind = READERS.get(path.suffix.lower())
    if kind is None:
        raise DatasetError(
            f"no reader for `{path.suffix}`", str(path), f"There is one for {', '.join(READERS)}"
        )
    yield from kind(path)


def json_lines(path: Path) -> Iterator[LocatedRow]:
    """Read a file with one JSON object a line; skip empty lines.

    Raises:
        DatasetError: it cannot be read, or a line is no object or too long.
    """
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(LINE_LIMIT + 1):
                number += 1
                where = f"{path}:{number}"
                if len(line) > LINE_LIMIT:
                    raise DatasetError("a line longer than 16 MB", where, "Is this JSON lines?")
                if text := line.lstrip(b"\xef\xbb\xbf").strip():
                    yield where, _object(text, where)
    except OSError as error:
        raise DatasetError(f"cannot be read: {error.strerror or error}", str(path)) from error


def _object(text: bytes, where: str) -> Row:
    try:
        row = json.loads(text)
    except UnicodeDecodeError as error:
        raise DatasetError(f"not UTF-8: {error.reason}", where) from error
    except ValueError as error:
        raise DatasetError(f"not JSON: {error}", where, "One JSON object a line") from error
    except RecursionError as error:
        raise DatasetError("nested too deeply", where) from error
    if not isinstance(row, dict):
        raise DatasetError(f"a {type(row).__name__}, not an object", where, "One object a line")
    return row


def json_whole(path: Path) -> Iterator[LocatedRow]:
    """Read a JSON file: a list of objects, or JSON lines despite its suffix.

    Raises:
        DatasetError: it cannot be read, or an item is no object.
    """
    try:
        with path.open("rb") as file:
            first = file.read(1024).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
            if first != b"[":
                yield from json_lines(path)
                return
            file.seek(0)
            rows = json.loads(file.read().decode("utf-8-sig"))
    except OSError as error:
        raise DatasetError(f"cannot be read: {error.strerror or error}", str(path)) from error
    except ValueError as error:
        raise DatasetError(f"not JSON: {error}", str(path)) from error
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise DatasetError(f"a {type(row).__name__}, not an object", f"{path}, item {number}")
        yield f"{path}, item {number}", row


def parquet(path: Path) -> Iterator[LocatedRow]:
    """Read a Parquet file in batches of `BATCH` rows.

    Raises:
        DatasetError: it cannot be read, or pyarrow is missing.
    """
    try:
        arrow: Any = import_module("pyarrow")  # an optional dependency that is slow to import
        files: Any = import_module("pyarrow.parquet")
    except ImportError as error:
        raise DatasetError(
            "Parquet needs pyarrow", str(path), "Install it: pip install pyarrow"
        ) from error
    number = 0
    try:
        with files.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=BATCH):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path}, row {number}", row
    except (OSError, arrow.ArrowException) as error:
        raise DatasetError(f"cannot be read: {error}", f"{path}, row {number + 1}") from error


READERS: Final[dict[str, Callable[[Path], Iterator[LocatedRow]]]] = {
    ".jsonl": json_lines,
    ".ndjson": json_lines,
    ".json": json_whole,
    ".parquet": parquet,
}


def split_files(folder: Path, name: str | None, split: str) -> list[Path]:
    """Return the files of one split of a Hugging Face directory.

    Layouts: `[name/][data/]split-00000-of-00001.parquet`, `split.jsonl`, and a folder `split/`.

    Args:
        folder: The dataset's directory.
        name: Its configuration: a folder in it.
        split: `train`, `test`, ...

    Raises:
        DatasetError: there are none; the text lists the existing splits.
    """
    base = folder / name if name else folder
    data = [path for path in sorted(base.rglob("*")) if _is_data(path, base)]
    found: dict[str, list[Path]] = {}
    for path in data:
        if split in (_split_of(path), path.parent.name):
            *above, _ = path.relative_to(base).parts
            configuration = "" if not above or above[0] in ("data", split) else above[0]
            found.setdefault(configuration, []).append(path)
    if "" in found or len(found) == 1:  # the name may be omitted if there is a single configuration
        return found.get("") or next(iter(found.values()))
    splits = sorted({_split_of(path) for path in data})
    existing = f"splits {', '.join(splits)}" if splits else "no data file"
    folders = sorted(path.name for path in folder.iterdir() if path.is_dir())
    if folders and not name:
        existing += f"; dataset_name may be one of {', '.join(folders[:8])}"
    raise DatasetError(f"no split `{split}`; there is {existing}", str(folder))


def _is_data(path: Path, base: Path) -> bool:
    hidden = any(part[0] in "._" for part in path.relative_to(base).parts)
    return path.suffix.lower() in READERS and not hidden and path.is_file()


def _split_of(path: Path) -> str:
    """Return the split of a file: `train` of `train-00000-of-00002.parquet` and `train.jsonl`."""
    stem = path.name.removesuffix(path.suffix)
    head, dash, tail = stem.partition("-")
    return head if dash and tail[:1].isdigit() else stem
