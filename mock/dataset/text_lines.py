"""Datasets with one record per line: JSON lines and CSV."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from mock.dataset.columns import DatasetError, RowError
from mock.dataset.interface import LINE_LIMIT, TextReader
from mock.dataset.rows import decode_json

_BOM = b"\xef\xbb\xbf"
_CELL_LINES = 10_000
"""Maximum number of lines of a quoted cell."""
_DELIMITERS = (",", "\t", ";", "|")


class JsonLines(TextReader):
    """One JSON object per line."""

    kind = "JSONL"

    def _find_records(self) -> Iterator[tuple[int, int, int]]:
        with self.path.open("rb") as file:
            for offset, data, number in _lines(file):
                self._at = offset + len(data)
                if data.strip():
                    yield offset, _length(data), number

    def _decode(self, data: bytes) -> dict[str, Any]:
        return decode_json(data)


class Csv(TextReader):
    """Values separated by commas, semicolons, bars or tabs; the first line names the columns."""

    kind = "CSV"

    def __init__(self, path: Path, scratch: Path | None = None) -> None:
        super().__init__(path, scratch)
        try:
            self._delimiter, self._names = self._head()
        except BaseException:
            self.close()
            raise

    def columns(self) -> tuple[str, ...]:
        return self._names

    def _head(self) -> tuple[str, tuple[str, ...]]:
        data = self._bytes(0, 65_536).removeprefix(_BOM)
        first = data.lstrip(b"\r\n").split(b"\n", 1)[0]
        if b"\x00" in first:
            raise DatasetError(
                "this is not CSV: its first line contains NUL bytes"
                + (" (UTF-16?)" if first[:2] in (b"\xff\xfe", b"\xfe\xff") else ""),
                f"{self.path}:1",
                "Save it as UTF-8",
            )
        try:
            text = first.decode()
        except UnicodeDecodeError as error:
            raise DatasetError(
                f"not UTF-8 at byte {error.start + 1}", f"{self.path}:1", "Save it as UTF-8"
            ) from error
        delimiter = max(_DELIMITERS, key=lambda one: (text.count(one), one == ","))
        if self.path.suffix.lower() == ".tsv":
            delimiter = "\t"
        names = tuple(name.strip() for name in next(csv.reader([text], delimiter=delimiter), []))
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DatasetError(f"two columns are called `{twice}`", f"{self.path}:1")
        return delimiter, names

    def _find_records(self) -> Iterator[tuple[int, int, int]]:
        delimiter = self._delimiter.encode()
        with self.path.open("rb") as file:
            header = True
            lines = _lines(file)
            while (entry := next(lines, None)) is not None:
                offset, data, number = entry
                self._at = offset + len(data)
                if header or not data.strip():
                    header = header and not data.strip()
                    continue
                length = _length(data)
                if b'"' in data and length <= LINE_LIMIT and _quote_open(data, False, delimiter):
                    whole = _rest(lines, length, delimiter)
                    if whole and self._is_readable(offset, whole):
                        length = whole
                    else:  # a stray quote must not swallow the following lines
                        file.seek(offset + length)
                        lines = _lines(file, offset + length, number)
                yield offset, length, number

    def _is_readable(self, offset: int, length: int) -> bool:
        try:
            self._decode(self._bytes(offset, length))
        except RowError:
            return False
        return True

    def _decode(self, data: bytes) -> dict[str, Any]:
        if b"\x00" in data:
            raise RowError(f"a NUL byte at byte {data.index(0) + 1}")
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise RowError(f"not UTF-8 at byte {error.start + 1}") from error
        csv.field_size_limit(LINE_LIMIT)
        try:
            source = io.StringIO(text, newline="")
            cells = next(csv.reader(source, delimiter=self._delimiter, strict=True), [])
        except csv.Error as error:
            raise RowError(f"not CSV: {error}; a quote that is never closed?") from error
        if len(cells) != len(self._names):
            raise RowError(f"{len(cells)} values for {len(self._names)} columns")
        return {name: cell for name, cell in zip(self._names, cells, strict=True) if cell}


def _lines(file: BinaryIO, offset: int = 0, number: int = 0) -> Iterator[tuple[int, bytes, int]]:
    """Yield offset, bytes and number of each line; only the start of a line over the limit."""
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


def _length(data: bytes) -> int:
    return len(data) if len(data) <= LINE_LIMIT or data.endswith(b"\n") else LINE_LIMIT + 1


def _rest(lines: Iterator[tuple[int, bytes, int]], length: int, delimiter: bytes) -> int:
    """Return the length of a record whose first line leaves a quote open; 0 when it is never
    closed."""
    for _, (_, data, _) in zip(range(_CELL_LINES), lines, strict=False):
        length += _length(data)
        if length > LINE_LIMIT:
            return 0
        if not _quote_open(data, True, delimiter):
            return length
    return 0


def _quote_open(data: bytes, inside: bool, delimiter: bytes) -> bool:
    """Return whether a quoted cell continues on the next line."""
    at = 0
    while True:
        if inside:
            at = data.find(b'"', at)
            if at < 0:
                return True
            if data[at + 1 : at + 2] == b'"':
                at += 2
                continue
            inside, at = False, at + 1
        else:
            fresh = at == 0 or data[at - 1 : at] == delimiter
            if fresh and data[at : at + 1] == b'"':
                inside, at = True, at + 1
                continue
            following = data.find(delimiter, at)
            if following < 0:
                return False
            at = following + 1
