"""Datasets of any format: opened, scanned in the background, read row by row.

Nothing is loaded into memory: one scan finds the positions of the rows (16 bytes per row, on disk
for large files), and a row is read when it is needed. A broken row is reported with its line and
skipped.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import msgspec

from mock.dataset.columns import Columns, DatasetError, RowError
from mock.dataset.interface import LINE_LIMIT, TEXT_SUFFIXES, Reader
from mock.dataset.json_document import JsonList, is_lines
from mock.dataset.rows import (
    BadRow,
    BadRows,
    Row,
    chance,
    decode_json,
    parse,
    parse_record,
)
from mock.dataset.shuffle import order
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
    "open_reader",
    "parse",
    "shipped",
]

HEAD = 200
"""Number of records checked before a dataset counts as usable."""
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


def open_reader(path: Path, scratch: Path | None = None) -> Reader:
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


def _text_reader(path: Path, head: bytes, scratch: Path | None) -> Reader:
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


class Dataset:
    """An opened dataset: positions 0 to `row_count` - 1 are the rows found so far, broken or not.

    Args:
        reader: Finds and reads the records; closed with the dataset.
        columns: Column names.
    """

    def __init__(self, reader: Reader, columns: Columns | None = None) -> None:
        self.reader = reader
        self.columns = columns or Columns()

    @classmethod
    def open(cls, path: Path, columns: Columns | None = None, scratch: Path | None = None) -> Self:
        """Open a dataset and check its first rows; reads the disk, so call it off the event loop.

        Args:
            path: A file or a folder.
            columns: Column names; the usual ones by default.
            scratch: Folder for the index of a large file.

        Raises:
            DatasetError: it is missing, unreadable, lacks a column, or has no usable row.
        """
        dataset = cls(open_reader(path, scratch), columns)
        try:
            dataset._check_head()
        except BaseException:
            dataset.close()
            raise
        return dataset

    def close(self) -> None:
        """Close the file."""
        self.reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def path(self) -> Path:
        return self.reader.path

    @property
    def row_count(self) -> int:
        """Number of rows found so far."""
        return self.reader.row_count

    @property
    def whole(self) -> bool:
        """True when all rows were found."""
        return self.reader.whole

    def scan(self, records: int = 50_000) -> bool:
        """Find further rows; return False when there are none. Blocks on the disk."""
        return self.reader.scan(records)

    def line(self, position: int) -> int:
        """Return the number of the line, row or element at `position`."""
        return self.reader.line(position)

    def row(self, position: int) -> Row | BadRow:
        """Read one row."""
        line = self.line(position)
        try:
            row = parse_record(line, self.reader.record(position), self.columns)
        except RowError as error:
            return BadRow(line=line, cause=str(error))
        return row

    def order(self, salt: str, seed: int | None) -> Iterator[int]:
        """Return the positions in the order of a pass; all rows must have been found.

        Args:
            salt: Distinguishes the passes: each has its own order.
            seed: None keeps the dataset's order.
        """
        if seed is None:
            return iter(range(self.row_count))
        return order(self.reader.blocks(), f"{seed}:{salt}")

    def fingerprint(self) -> str:
        """Return a digest of path, size, head, tail and columns, stable while the file is
        unchanged."""
        identity = f"{self.path.absolute()}\0{sorted(self.columns.named.items())}\0".encode()
        return hashlib.sha256(identity + self.reader.sample()).hexdigest()[:16]

    def _check_head(self) -> None:
        self.reader.scan(HEAD)
        columns: dict[str, Any] = dict.fromkeys(self.reader.columns())
        if self.row_count:
            columns |= self.values(0)
        if self.reader.columns():
            self.columns.check(columns, str(self.path))
        bad = BadRows(self.reader.place)
        for position in range(min(self.row_count, HEAD)):
            row = self.row(position)
            if isinstance(row, Row):
                return
            bad.add(row)
            columns |= {n: v for n, v in self.values(position).items() if n not in columns}
        if columns:
            self.columns.check(columns, str(self.path))
        if self.whole and self.row_count <= HEAD:
            raise no_usable_row(self.path, bad)

    def values(self, position: int) -> dict[str, Any]:
        """Return a record as it is; empty when it is broken."""
        try:
            return dict(self.reader.record(position))
        except RowError:
            return {}


def no_usable_row(path: Path, bad: BadRows) -> DatasetError:
    """Return the error for a dataset without a usable row."""
    cause = f": {'; '.join(bad.lines(3))}" if bad.firsts else ", it is empty"
    return DatasetError(
        f"the dataset has no usable row{cause}", str(path), "Name a file with one question per row"
    )


def with_unique_id(row: Row, seen: "SeenIds") -> Row:
    """Return the row, with a changed id when an earlier row had the same one."""
    return (
        row
        if seen.first(row.row_id, row.line)
        else msgspec.structs.replace(row, row_id=f"{row.row_id}@{row.line}")
    )


class SeenIds:
    """Bloom filter of ids: fixed memory; it may report a new id as seen, never the reverse."""

    BITS = 1 << 23

    def __init__(self) -> None:
        self._bits = bytearray(self.BITS // 8)

    def first(self, name: str, line: int) -> bool:
        """Add an id; return whether it is new."""
        known = True
        for number in range(3):
            bit = int(chance(f"{number}:{name}") * self.BITS)
            if not self._bits[bit >> 3] >> (bit & 7) & 1:
                known = False
                self._bits[bit >> 3] |= 1 << (bit & 7)
        return not known
