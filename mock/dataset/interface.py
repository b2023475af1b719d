"""Interface of all dataset formats: records by position, found while the file is scanned.

A reader never loads the dataset: text files keep 16 bytes per record (beyond a megabyte on disk),
and a record is read when it is needed.
"""

import hashlib
import struct
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from mock.dataset.columns import Columns, DatasetError, RowError
from mock.dataset.rows import BadRow, BadRows, Row, parse_record
from mock.dataset.shuffle import order

HEAD = 200
"""Number of records checked before a dataset counts as usable."""
LINE_LIMIT = 16 * 1024 * 1024
"""Maximum length of a record in bytes."""
TEXT_SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv")
"""Suffixes of text files that are offered as datasets."""
_SPOT = struct.Struct("<QII")
_SPILL = 1 << 20


class Dataset(AbstractContextManager["Dataset"], ABC):
    """An opened dataset: positions 0 to `row_count` - 1 are the rows found so far, broken or not.

    A subclass is the reader of a format: it finds the records and reads them.
    """

    kind: str = ""
    """Display name of the format, for example "CSV"."""
    place: Literal["line", "row", "element"] = "line"
    """Unit that a record's number counts."""
    whole = False
    """True when all records were found."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns = Columns()
        """Column names; the usual ones by default."""

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    @abstractmethod
    def row_count(self) -> int:
        """Number of records found so far, usable or not."""

    @abstractmethod
    def scan(self, records: int = 50_000) -> bool:
        """Find about `records` further records; return False when there are none. Blocks on the
        disk."""

    @abstractmethod
    def line(self, position: int) -> int:
        """Return the number of a record's line, row or element, from 1."""

    @abstractmethod
    def record(self, position: int) -> dict[str, Any]:
        """Read a record: column -> value.

        Raises:
            RowError: it is broken; gives the reason.
        """

    @abstractmethod
    def sample(self) -> bytes:
        """Return bytes that identify the dataset's content."""

    @abstractmethod
    def close(self) -> None:
        """Close the files."""

    def names(self) -> tuple[str, ...]:
        """Return the columns known without reading a record; none where each record has its own."""
        return ()

    def blocks(self) -> Sequence[int]:
        """Return the lengths of the blocks that are shuffled separately."""
        return (self.row_count,)

    def row(self, position: int) -> Row | BadRow:
        """Read one row."""
        line = self.line(position)
        try:
            row = parse_record(line, self.record(position), self.columns)
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
        return order(self.blocks(), f"{seed}:{salt}")

    def fingerprint(self) -> str:
        """Return a digest of path, size, head, tail and columns, stable while the file is
        unchanged."""
        identity = f"{self.path.absolute()}\0{sorted(self.columns.named.items())}\0".encode()
        return hashlib.sha256(identity + self.sample()).hexdigest()[:16]

    def values(self, position: int) -> dict[str, Any]:
        """Return a record as it is; empty when it is broken."""
        try:
            return dict(self.record(position))
        except RowError:
            return {}


def no_usable_row(path: Path, bad: BadRows) -> DatasetError:
    """Return the error for a dataset without a usable row."""
    cause = f": {'; '.join(bad.lines(3))}" if bad.firsts else ", it is empty"
    return DatasetError(
        f"the dataset has no usable row{cause}", str(path), "Name a file with one question per row"
    )


class TextReader(Dataset):
    """A file of text whose records lie between two offsets.

    A subclass finds the records with `_find_records` and parses them with `_decode`.

    Args:
        path: The file.
        scratch: Folder for the index of a large file; the system's own by default.
    """

    def __init__(self, path: Path, scratch: Path | None = None) -> None:
        super().__init__(path)
        self._file = path.open("rb", buffering=0)
        self._size = path.stat().st_size
        self._count = 0
        self._index = tempfile.SpooledTemporaryFile(_SPILL, dir=str(scratch) if scratch else None)  # noqa: SIM115 - closed by close
        self._lock = threading.Lock()
        self._scanning = threading.Lock()
        self._scanner = self._find_records()

    @abstractmethod
    def _find_records(self) -> Iterator[tuple[int, int, int]]:
        """Yield offset, length and line of each record; records longer than `LINE_LIMIT` are never
        read.
        """

    @abstractmethod
    def _decode(self, data: bytes) -> dict[str, Any]:
        """Return a record's bytes as column -> value; raise RowError."""

    @property
    def row_count(self) -> int:
        return self._count

    def scan(self, records: int = 50_000) -> bool:
        with self._scanning:
            found = [
                _SPOT.pack(offset, min(length, LINE_LIMIT + 1), line)
                for offset, length, line in islice(self._scanner, records)
            ]
            with self._lock:
                self._index.seek(0, 2)
                self._index.write(b"".join(found))
            self._count += len(found)
            self.whole = len(found) < records
            return not self.whole

    def _locate(self, position: int) -> tuple[int, int, int]:
        with self._lock:
            self._index.seek(position * _SPOT.size)
            offset, length, line = _SPOT.unpack(self._index.read(_SPOT.size))
        return offset, length, line

    def line(self, position: int) -> int:
        return self._locate(position)[2]

    def record(self, position: int) -> dict[str, Any]:
        offset, length, _ = self._locate(position)
        if length > LINE_LIMIT:
            raise RowError(f"longer than {LINE_LIMIT // 1024 // 1024} MB")
        return self._decode(self._bytes(offset, length))

    def _bytes(self, offset: int, length: int) -> bytes:
        with self._lock:
            self._file.seek(offset)
            parts: list[bytes] = []
            while length > 0 and (part := self._file.read(length)):
                parts.append(part)
                length -= len(part)
        return b"".join(parts)

    def sample(self) -> bytes:
        head = self._bytes(0, 65_536)
        return b"%d\0" % self._size + head + self._bytes(max(0, self._size - 65_536), 65_536)

    def close(self) -> None:
        self._scanner = iter(())
        self._file.close()
        self._index.close()
