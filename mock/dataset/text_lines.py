"""Datasets with one record per line: JSON lines and CSV."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from mock.dataset.columns import DatasetError, RowError
from mock.dataset.interface import LINE_LIMIT, TextReader
from mock.dataset.rows import decode_json, text_of

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
            delimiter, self._names = _head(path, self._bytes(0, 65_536))
        except BaseException:
            self.close()
            raise
        self._form: dict[str, Any] = {"delimiter": delimiter, "strict": True}

    def names(self) -> tuple[str, ...]:
        return self._names

    def _find_records(self) -> Iterator[tuple[int, int, int]]:
        """A record that cannot be read over several lines is one line: a stray quote must not
        swallow the following ones."""
        csv.field_size_limit(LINE_LIMIT)
        with self.path.open("rb") as file:
            lines, header = _lines(file), True
            while True:
                taken: list[tuple[int, bytes, int]] = []
                try:
                    cells = next(csv.reader(_texts(lines, taken), **self._form), None)
                except csv.Error:
                    cells = []
                if not taken:
                    return
                offset, data, number = taken[0]
                last = taken[-1]
                if len(taken) > 1 and len(cells or ()) != len(self._names):
                    last = taken[0]
                    file.seek(offset + len(data))
                    lines = _lines(file, offset + len(data), number)
                if header or not data.strip():
                    header = header and not data.strip()
                else:
                    yield offset, last[0] - offset + _length(last[1]), number

    def _decode(self, data: bytes) -> dict[str, Any]:
        try:
            cells = next(csv.reader(io.StringIO(text_of(data), newline=""), **self._form), [])
        except csv.Error as error:
            raise RowError(f"not CSV: {error}; a quote that is never closed?") from error
        if len(cells) != len(self._names):
            raise RowError(f"{len(cells)} values for {len(self._names)} columns")
        return {name: cell for name, cell in zip(self._names, cells, strict=True) if cell}


def _head(path: Path, data: bytes) -> tuple[str, tuple[str, ...]]:
    data = data.removeprefix(_BOM)
    first = data.lstrip(b"\r\n").split(b"\n", 1)[0]
    try:
        text = text_of(first)
    except RowError as error:
        raise DatasetError(str(error), f"{path}:1", "Save it as UTF-8") from error
    delimiter = max(_DELIMITERS, key=lambda one: (text.count(one), one == ","))
    if path.suffix.lower() == ".tsv":
        delimiter = "\t"
    names = tuple(name.strip() for name in next(csv.reader([text], delimiter=delimiter), []))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DatasetError(f"two columns are called `{twice}`", f"{path}:1")
    return delimiter, names


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


def _texts(
    lines: Iterator[tuple[int, bytes, int]], taken: list[tuple[int, bytes, int]]
) -> Iterator[str]:
    """Yield the lines of one record as text for a CSV reader, and note them.

    Raises:
        csv.Error: the record is too long; a quote is probably never closed.
    """
    length = 0
    for line in lines:
        length += _length(line[1])
        taken.append(line)
        if length > LINE_LIMIT or len(taken) > _CELL_LINES:
            raise csv.Error
        yield line[1].decode("latin-1")
