"""Records of a file by position: the interface of all readers, and that of files of text.

    with open_records(path) as records:
        while records.scan():
            pass
        print(records.record(records.count - 1))

No file is loaded: a scan notes where the records lie (16 bytes for each), and a record is read when
it is needed.
"""

import json
import os
import re
import threading
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import msgspec

LINE_LIMIT = 16 * 1024 * 1024
"""Largest accepted record in bytes."""
Spot = tuple[int, int, int]
"""Offset and length of a record in bytes, and its number from 1."""
_NOT_NUMBER = re.compile(r"\bNaN\b|\bInfinity\b")
"""Values that Python and pandas write for a missing number; they are read as null."""


class RowError(ValueError):
    """A row cannot be used; the text is the reason."""


class Records(AbstractContextManager["Records"], ABC):
    """The records of one file or folder at positions 0 to `count` - 1, broken or not."""

    kind: str = ""
    """Display name of the format, for example "CSV"."""
    place: Literal["line", "row", "element"] = "line"
    """Unit that a record's number counts."""
    names: tuple[str, ...] = ()
    """The columns known without reading a record; none where each record has its own."""
    whole = False
    """True when all records were found."""
    count = 0
    """Number of records found so far."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __exit__(self, *error: object) -> None:
        self.close()

    @abstractmethod
    def scan(self, records: int = 50_000) -> bool:
        """Find about `records` further records; return False when there are none."""

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
        """Return bytes that identify the content."""

    @abstractmethod
    def close(self) -> None:
        """Close the files."""

    def blocks(self) -> Sequence[int]:
        """Return the lengths of the parts that are quick to read in any order."""
        return (self.count,)


class TextRecords(Records):
    """A file of text whose records lie between two offsets.

    A subclass finds the records with `_find` and parses them with `_decode`.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._file = path.open("rb", buffering=0)
        self._offsets, self._lengths, self._lines = array("Q"), array("I"), array("I")
        self._scanning = threading.Lock()
        self._scanner = self._find()

    @abstractmethod
    def _find(self) -> Iterator[Spot]:
        """Yield the place of each record; one longer than `LINE_LIMIT` is never read."""

    @abstractmethod
    def _decode(self, data: bytes) -> dict[str, Any]:
        """Return a record's bytes as column -> value; raise RowError."""

    def scan(self, records: int = 50_000) -> bool:
        with self._scanning:
            before = len(self._offsets)
            for offset, length, line in islice(self._scanner, records):
                self._offsets.append(offset)
                self._lengths.append(min(length, LINE_LIMIT + 1))
                self._lines.append(line)
            self.count = len(self._offsets)
            self.whole = self.count < before + records
            return not self.whole

    def line(self, position: int) -> int:
        return self._lines[position]

    def record(self, position: int) -> dict[str, Any]:
        length = self._lengths[position]
        if length > LINE_LIMIT:
            raise RowError(f"longer than {LINE_LIMIT // 1024 // 1024} MB")
        return self._decode(self._bytes(self._offsets[position], length))

    def _bytes(self, offset: int, length: int) -> bytes:
        return os.pread(self._file.fileno(), length, offset)

    def sample(self) -> bytes:
        size, part = os.fstat(self._file.fileno()).st_size, 65_536
        return b"%d\0" % size + self._bytes(0, part) + self._bytes(max(0, size - part), part)

    def close(self) -> None:
        self._scanner = iter(())
        self._file.close()


def text_of(data: bytes) -> str:
    """Decode the text of a record.

    Raises:
        RowError: the data is not text.
    """
    if b"\x00" in data:
        raise RowError(f"not text: a NUL byte at byte {data.index(0) + 1}")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise RowError(f"not UTF-8 at byte {error.start + 1}") from error


def decode_json(data: bytes) -> dict[str, Any]:
    """Parse JSON text as a record.

    Raises:
        RowError: the data is not text, not JSON or not an object.
    """
    text = text_of(data.removeprefix(b"\xef\xbb\xbf"))
    try:
        try:
            record = msgspec.json.decode(text)
        except msgspec.MsgspecError:
            if not _NOT_NUMBER.search(text):
                raise
            record = json.loads(text, parse_constant=lambda _: None)
            msgspec.json.encode(record)  # half a surrogate pair is no text
    except (msgspec.MsgspecError, ValueError) as error:
        raise RowError(f"not JSON: {error}") from error
    except RecursionError as error:
        raise RowError("nested too deeply") from error
    if not isinstance(record, dict):
        raise RowError(f"a {type(record).__name__}, not an object")
    return record
