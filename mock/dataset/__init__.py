"""Datasets of any kind: opened, looked through in the background, read row by row.

Nothing is loaded: the file is walked once to find where its rows are (16 bytes a row, on disk when
there are many), and a row is read when it is its turn. A broken row is reported with its line and
passed over.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from mock.dataset.columns import Columns, DatasetError
from mock.dataset.interface import LINE_LIMIT, Reader
from mock.dataset.json_document import JsonList, is_lines
from mock.dataset.rows import BadRow, Row, RowError, chance, decode_json, parse, parse_record
from mock.dataset.shuffle import order
from mock.dataset.text_lines import Csv, JsonLines

__all__ = [
    "LINE_LIMIT",
    "BadRow",
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
"""Records looked at before a dataset counts as usable."""
KINDS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
"""Names of files that are offered as datasets."""


def shipped() -> Path:
    """The questions that come with the program."""
    return Path(__file__).parents[1] / "data" / "questions.jsonl"


def open_reader(path: Path, scratch: Path | None = None) -> Reader:
    """The reader for a file or folder, by its name and its first bytes.

    Raises:
        DatasetError: it is missing, unreadable, or of no kind that is known; names it.
    """
    try:
        if path.is_dir():
            from mock.dataset.tables import open_folder

            return open_folder(path)
        if not path.is_file() and path.exists():
            raise DatasetError("this is neither a file nor a folder", str(path))
        with path.open("rb") as file:
            head = file.read(65_536)
        if head.startswith(b"PAR1"):
            from mock.dataset.tables import Parquet

            return Parquet(path, [path])
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
        raise DatasetError("this is no Parquet file", str(path))
    if ending in (".csv", ".tsv"):
        return Csv(path, scratch)
    first = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    whole = ending == ".json" or (first == b"[" and ending not in (".jsonl", ".ndjson"))
    if whole and first and not is_lines(head):
        return JsonList(path, scratch)
    return JsonLines(path, scratch)


class Dataset:
    """An opened dataset: positions 0 to `found` - 1 are the rows known so far, broken or not.

    Args:
        reader: Finds and reads the records; closed with the dataset.
        columns: What the columns are called.
    """

    def __init__(self, reader: Reader, columns: Columns | None = None) -> None:
        self.reader = reader
        self.columns = columns or Columns()

    @classmethod
    def open(cls, path: Path, columns: Columns | None = None, scratch: Path | None = None) -> Self:
        """Open and look at the first rows; reads the disk, so call it off the event loop.

        Args:
            path: A file or a folder.
            columns: What its columns are called; the usual names when left out.
            scratch: Folder for the index of a large file.

        Raises:
            DatasetError: it is missing, unreadable, lacks a column, or has no usable row.
        """
        dataset = cls(open_reader(path, scratch), columns)
        try:
            dataset._look()
        except BaseException:
            dataset.close()
            raise
        return dataset

    def close(self) -> None:
        """Close the file."""
        self.reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def path(self) -> Path:
        return self.reader.path

    @property
    def found(self) -> int:
        """Rows known so far."""
        return self.reader.found

    @property
    def whole(self) -> bool:
        """No further rows will be found."""
        return self.reader.whole

    def scan(self, records: int = 50_000) -> bool:
        """Find further rows; False when there are none. Blocks on the disk."""
        return self.reader.scan(records)

    def line(self, position: int) -> int:
        """Number of the row at `position`: of its line, row or element."""
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
        """Positions in the order of a pass; all rows must have been found.

        Args:
            salt: What tells one pass from another: each has its own order.
            seed: None keeps the dataset's order.
        """
        if seed is None:
            return iter(range(self.found))
        return order(self.reader.blocks(), f"{seed}:{salt}")

    def fingerprint(self) -> str:
        """Stays the same as long as the file is: its path, size, head and tail, its columns."""
        told = f"{self.path.absolute()}\0{sorted(self.columns.named.items())}\0".encode()
        return hashlib.sha256(told + self.reader.sample()).hexdigest()[:16]

    def _look(self) -> None:
        self.reader.scan(HEAD)
        known = self.reader.columns()
        if known:
            self.columns.check(known, str(self.path))
        first: BadRow | None = None
        names: dict[str, None] = {}
        for position in range(min(self.found, HEAD)):
            row = self.row(position)
            if isinstance(row, Row):
                return
            first = first or row
            names |= dict.fromkeys(self._names(position))
        if names and not known:
            self.columns.check(names, str(self.path))
        if self.whole and self.found <= HEAD:
            raise no_usable_row(self, first)

    def _names(self, position: int) -> tuple[str, ...]:
        try:
            return tuple(self.reader.record(position))
        except RowError:
            return ()


def no_usable_row(dataset: Dataset, first: BadRow | None) -> DatasetError:
    """What to say of a dataset of which nothing can be asked."""
    cause = f": {dataset.reader.place} {first.line}: {first.cause}" if first else ", it is empty"
    return DatasetError(
        f"the dataset has no usable row{cause}",
        str(dataset.path),
        "Name a file with one question a row",
    )


def unique(row: Row, seen: "Seen") -> Row:
    """The row under an id that no row before it had."""
    return (
        row
        if seen.first(row.row_id, row.line)
        else msgspec.structs.replace(row, row_id=f"{row.row_id}@{row.line}")
    )


class Seen:
    """Which ids were there before, in a fixed amount of memory: now and then a new one counts as
    known, never the other way round.
    """

    BITS = 1 << 23

    def __init__(self) -> None:
        self._bits = bytearray(self.BITS // 8)

    def first(self, name: str, line: int) -> bool:
        """Whether `name` was not there yet."""
        known = True
        for number in range(3):
            bit = int(chance(f"{number}:{name}") * self.BITS)
            if not self._bits[bit >> 3] >> (bit & 7) & 1:
                known = False
                self._bits[bit >> 3] |= 1 << (bit & 7)
        return not known
