"""Records of a file by position: the interface of all readers, and the readers of text: JSON lines,
CSV, and JSON documents that are a list of objects.

    with open_records(path) as records:
        while records.scan():
            pass
        print(records.record(records.count - 1))

No file is loaded: a scan notes where the records lie (16 bytes for each), and a record is read when
it is needed.
"""

import csv
import io
import json
import mmap
import os
import re
import threading
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal

import msgspec

from ajet_swarm.protocol.errors import DatasetError

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


# --- JSON and CSV ---------------------------------------------------------------------------------

_BOM = b"\xef\xbb\xbf"
_CELL_LINES = 10_000
"""Maximum number of lines of a quoted cell."""
_DELIMITERS = (",", "\t", ";", "|")
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{},]', re.DOTALL)
"""A text or a sign of JSON."""
_CONTENT = re.compile(rb"\S")
Line = tuple[int, bytes, int]
"""Offset, bytes and number of a line."""


def open_text(path: Path, head: bytes) -> TextRecords:
    """Return the reader of a file of text, chosen by its name and its first bytes.

    Raises:
        DatasetError: it is of no known format.
    """
    ending = path.suffix.lower()
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DatasetError("this is UTF-16 text", f"{path}:1", "Save it as UTF-8")
    if ending == ".parquet":
        raise DatasetError("this is not a Parquet file", str(path))
    if ending in (".csv", ".tsv"):
        return Csv(path, head)
    first = head.removeprefix(_BOM).lstrip()[:1]
    whole = ending == ".json" or (first == b"[" and ending not in (".jsonl", ".ndjson"))
    if not whole or not first or _is_lines(head):
        return JsonLines(path)
    if first not in b"[{":
        todo = "Name a file with a list of objects, or with one object per line"
        raise DatasetError("this is not a JSON list", f"{path}:1", todo)
    return JsonList(path)


def _is_lines(head: bytes) -> bool:
    """Return whether a file named JSON starts with an object on its own line."""
    first, _, rest = head.removeprefix(_BOM).lstrip().partition(b"\n")
    try:
        record = decode_json(first)
    except RowError:
        return False
    return bool(rest.strip()) or not any(isinstance(value, list) for value in record.values())


class JsonLines(TextRecords):
    """One JSON object per line."""

    kind = "JSONL"

    def _find(self) -> Iterator[Spot]:
        with self.path.open("rb") as file:
            for offset, data, number in _lines(file):
                if data.strip():
                    yield offset, len(data), number

    def _decode(self, data: bytes) -> dict[str, Any]:
        return decode_json(data)


class JsonList(TextRecords):
    """The elements of the first list in a JSON document, which is cut at its commas; an element is
    parsed when it is read. Elements are numbered, since a line may contain several."""

    kind = "JSON"
    place = "element"

    def _find(self) -> Iterator[Spot]:
        with self.path.open("rb") as file:
            text = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        depth = level = start = number = 0
        for token in _TOKEN.finditer(text):
            sign, at = text[token.start()], token.start()
            if level and depth == level and sign in b",]":
                if _CONTENT.search(text, start, at):
                    number += 1
                    yield start, at - start, number
                start = at + 1
            if sign in b"[{":
                depth += 1
                if sign == ord("[") and not level and depth <= 2:
                    level, start = depth, at + 1
            elif sign in b"]}":
                depth -= 1
                if depth < level:
                    return
        if level and _CONTENT.search(text, start):  # cut off: not JSON
            yield start, len(text) - start, number + 1

    def sample(self) -> bytes:
        return b"elements\0" + super().sample()

    def _decode(self, data: bytes) -> dict[str, Any]:
        return decode_json(data.strip())


class Csv(TextRecords):
    """Values separated by commas, semicolons, bars or tabs; the first line names the columns."""

    kind = "CSV"

    def __init__(self, path: Path, head: bytes) -> None:
        delimiter, self.names = _header(path, head)
        self._form: dict[str, Any] = {"delimiter": delimiter, "strict": True}
        super().__init__(path)

    def _find(self) -> Iterator[Spot]:
        """A record that cannot be read over several lines is one line: a stray quote must not
        swallow the following ones."""
        csv.field_size_limit(LINE_LIMIT)
        with self.path.open("rb") as file:
            lines, header = _lines(file), True
            while True:
                taken: list[Line] = []
                try:
                    cells = next(csv.reader(_texts(lines, taken), **self._form), None)
                except csv.Error:
                    cells = []
                if not taken:
                    return
                offset, data, number = taken[0]
                last = taken[-1]
                if len(taken) > 1 and len(cells or ()) != len(self.names):
                    last = taken[0]
                    file.seek(offset + len(data))
                    lines = _lines(file, offset + len(data), number)
                if header or not data.strip():
                    header = header and not data.strip()
                else:
                    yield offset, last[0] - offset + len(last[1]), number

    def _decode(self, data: bytes) -> dict[str, Any]:
        try:
            cells = next(csv.reader(io.StringIO(text_of(data), newline=""), **self._form), [])
        except csv.Error as error:
            raise RowError(f"not CSV: {error}; a quote that is never closed?") from error
        if len(cells) != len(self.names):
            raise RowError(f"{len(cells)} values for {len(self.names)} columns")
        return {name: cell for name, cell in zip(self.names, cells, strict=True) if cell}


def _header(path: Path, head: bytes) -> tuple[str, tuple[str, ...]]:
    """Return the delimiter and the columns."""
    first = head.removeprefix(_BOM).lstrip(b"\r\n").split(b"\n", 1)[0]
    try:
        text = text_of(first)
    except RowError as error:
        raise DatasetError(str(error), f"{path}:1", "Save it as UTF-8") from error
    delimiter = max(_DELIMITERS, key=lambda sign: (text.count(sign), sign == ","))
    if path.suffix.lower() == ".tsv":
        delimiter = "\t"
    names = tuple(name.strip() for name in next(csv.reader([text], delimiter=delimiter), []))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DatasetError(f"two columns are called `{twice}`", f"{path}:1")
    return delimiter, names


def _lines(file: BinaryIO, offset: int = 0, number: int = 0) -> Iterator[Line]:
    """Yield each line; only the start of one over the limit."""
    while data := file.readline(LINE_LIMIT + 1):
        number += 1
        start = offset
        offset += len(data)
        if len(data) > LINE_LIMIT and not data.endswith(b"\n"):
            while rest := file.readline(1 << 20):
                offset += len(rest)
                if rest.endswith(b"\n"):
                    break
        yield start, data, number


def _texts(lines: Iterator[Line], taken: list[Line]) -> Iterator[str]:
    """Yield the lines of one record as text for a CSV reader, and note them.

    Raises:
        csv.Error: the record is too long; a quote is probably never closed.
    """
    length = 0
    for line in lines:
        length += len(line[1])
        taken.append(line)
        if length > LINE_LIMIT or len(taken) > _CELL_LINES:
            raise csv.Error
        yield line[1].decode("latin-1")
