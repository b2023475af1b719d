"""Datasets of any format: opened, scanned in the background, read row by row.

Nothing is loaded into memory: one scan finds the positions of the rows (16 bytes per row, on disk
for large files), and a row is read when it is needed. A broken row is reported with its line and
skipped.
"""

from pathlib import Path
from typing import Any

from mock.dataset.columns import Columns, DatasetError, RowError
from mock.dataset.interface import HEAD, LINE_LIMIT, TEXT_SUFFIXES, Dataset, no_usable_row
from mock.dataset.json_document import JsonList, is_lines
from mock.dataset.rows import BadRow, BadRows, Row, decode_json, parse
from mock.dataset.text_lines import Csv, JsonLines

__all__ = [
    "LINE_LIMIT",
    "BadRow",
    "BadRows",
    "Columns",
    "Dataset",
    "DatasetError",
    "Row",
    "RowError",
    "decode_json",
    "no_usable_row",
    "open_dataset",
    "open_reader",
    "parse",
    "shipped",
]

SUFFIXES = (*TEXT_SUFFIXES, ".parquet")
"""Suffixes of files that are offered as datasets."""

_COMPRESSED = {
    b"\x1f\x8b": ("gzip", "gunzip"),
    b"PK\x03\x04": ("ZIP", "unzip"),
    b"\x28\xb5\x2f\xfd": ("Zstandard", "unzstd"),
    b"\xfd7zXZ": ("xz", "unxz"),
    b"BZh": ("bzip2", "bunzip2"),
}
"""First bytes of compressed files -> their kind and the program that unpacks them."""


def shipped() -> Path:
    """Return the path of the questions shipped with the program."""
    return Path(__file__).parents[1] / "data" / "questions.jsonl"


def open_reader(path: Path, scratch: Path | None = None) -> Dataset:
    """Return the reader for a file or folder, chosen by its name and first bytes.

    Raises:
        DatasetError: it is missing, unreadable, or of an unknown format; names it.
    """
    try:
        if path.is_dir():
            from mock.dataset.tables import open_folder

            found = open_folder(path)
            return open_reader(found, scratch) if isinstance(found, Path) else found
        if not path.is_file() and path.exists():
            raise DatasetError("this is neither a file nor a folder", str(path))
        with path.open("rb") as file:
            head = file.read(65_536)
        if head.startswith(b"PAR1"):
            from mock.dataset.tables import Parquet

            return Parquet(path, [path])
        if path.suffix.lower() == ".arrow":
            from mock.dataset.tables import ArrowFolder

            return ArrowFolder(path, [path])
        for magic, (kind, program) in _COMPRESSED.items():
            if head.startswith(magic):
                raise DatasetError(f"this is {kind}-compressed", str(path), f"Run {program} first")
        return _text_reader(path, head, scratch)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise DatasetError(
            f"the dataset cannot be read: {reason or error}",
            str(path),
            "Name a JSONL, JSON, CSV or Parquet file, or a Hugging Face folder",
        ) from error


def _text_reader(path: Path, head: bytes, scratch: Path | None) -> Dataset:
    ending = path.suffix.lower()
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DatasetError("this is UTF-16 text", f"{path}:1", "Save it as UTF-8")
    if ending == ".parquet":
        raise DatasetError("this is not a Parquet file", str(path))
    if ending in (".csv", ".tsv"):
        return Csv(path, scratch)
    first = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    whole = ending == ".json" or (first == b"[" and ending not in (".jsonl", ".ndjson"))
    if whole and first and not is_lines(head):
        return JsonList(path, scratch)
    return JsonLines(path, scratch)


def open_dataset(
    path: Path, columns: Columns | None = None, scratch: Path | None = None
) -> Dataset:
    """Open a dataset and check its first rows; reads the disk, so call it off the event loop.

    Args:
        path: A file or a folder.
        columns: Column names; the usual ones by default.
        scratch: Folder for the index of a large file.

    Raises:
        DatasetError: it is missing, unreadable, lacks a column, or has no usable row.
    """
    dataset = open_reader(path, scratch)
    try:
        dataset.columns = columns or dataset.columns
        _check_head(dataset)
    except BaseException:
        dataset.close()
        raise
    return dataset


def _check_head(dataset: Dataset) -> None:
    """Check the first rows.

    Raises:
        DatasetError: a column is missing, or there is no usable row.
    """
    dataset.scan(HEAD)
    columns: dict[str, Any] = dict.fromkeys(dataset.names())
    if dataset.row_count:
        columns |= dataset.values(0)
    if dataset.names():
        dataset.columns.check(columns, str(dataset.path))
    bad = BadRows(dataset.place)
    for position in range(min(dataset.row_count, HEAD)):
        row = dataset.row(position)
        if isinstance(row, Row):
            return
        bad.add(row)
        columns |= {n: v for n, v in dataset.values(position).items() if n not in columns}
    if columns:
        dataset.columns.check(columns, str(dataset.path))
    if dataset.whole and dataset.row_count <= HEAD:
        raise no_usable_row(dataset.path, bad)
