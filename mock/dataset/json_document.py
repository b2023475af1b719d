"""Datasets that are one JSON document: a list of objects, at the top level or in a field."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mock.dataset.columns import DatasetError, RowError
from mock.dataset.interface import TextReader
from mock.dataset.rows import decode_json

_CHUNK = 1 << 20
_MARK = re.compile(rb'["\\{}\[\],]')


class JsonList(TextReader):
    """Reader of the elements of the first list in a JSON document, without loading the document."""

    kind = "JSON"
    place = "element"

    def __init__(self, path: Path, scratch: Path | None = None) -> None:
        super().__init__(path, scratch)
        head = self._bytes(0, 4096).removeprefix(b"\xef\xbb\xbf").lstrip()
        if head[:1] not in (b"[", b"{"):
            self.close()
            raise DatasetError(
                "this is not a JSON list",
                f"{path}:1",
                "Name a file with a list of objects, or with one object per line",
            )

    def _find_records(self) -> Iterator[tuple[int, int, int]]:
        """Split the list at its commas; elements are parsed when they are read."""
        scanner = _ElementScanner()
        with self.path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                yield from scanner.feed(chunk)
        yield from scanner.end()

    def sample(self) -> bytes:
        return b"elements\0" + super().sample()

    def _decode(self, data: bytes) -> dict[str, Any]:
        return decode_json(data.strip())


class _ElementScanner:
    """Scanner for the offsets, lengths and numbers of the first list's elements.

    Elements are numbered from 1, since a line may contain several.
    """

    def __init__(self) -> None:
        self._offset = 0
        self._number = 0
        self._depth = 0
        self._list_depth = 0
        """Depth of the list; 0 before it starts."""
        self._finished = False
        self._quoted = False
        self._escaped = -1
        """Offset of the byte after a backslash, which is not interpreted."""
        self._start = -1
        """Offset after the bracket or comma before the element."""
        self._blank = True

    def feed(self, chunk: bytes) -> Iterator[tuple[int, int, int]]:
        """Scan the next bytes of the file."""
        last = 0
        for match in _MARK.finditer(chunk):
            at, sign = match.start(), match[0]
            self._note_content(chunk[last:at])
            last = at + 1
            offset = self._offset + at
            if offset == self._escaped:
                continue
            elif sign == b"\\":
                self._escaped = offset + 1 if self._quoted else -1
            elif sign == b'"':
                self._quoted = not self._quoted
                self._note_content(sign)
            elif not self._quoted:
                yield from self._bracket(offset, sign)
        self._note_content(chunk[last:])
        self._offset += len(chunk)

    def end(self) -> Iterator[tuple[int, int, int]]:
        """Finish at the end of the file; yield an unfinished element, which is invalid JSON."""
        if not self._finished and self._start >= 0 and not self._blank:
            yield self._element(self._offset)

    def _note_content(self, text: bytes) -> None:
        if self._blank and text.strip():
            self._blank = False

    def _element(self, end: int) -> tuple[int, int, int]:
        """Return offset, length and number of the element that ends before `end`."""
        self._number += 1
        return self._start, end - self._start, self._number

    def _bracket(self, offset: int, sign: bytes) -> Iterator[tuple[int, int, int]]:
        if self._finished:
            return
        inside = self._list_depth and self._depth == self._list_depth
        if inside and sign in (b",", b"]"):
            if not self._blank:
                yield self._element(offset)
            self._start, self._blank = offset + 1, True
        if sign in (b"{", b"["):
            self._depth += 1
            if sign == b"[" and not self._list_depth and self._depth <= 2:
                self._list_depth = self._depth
                self._start, self._blank = offset + 1, True
                return
            self._note_content(sign)
        elif sign in (b"}", b"]"):
            self._depth -= 1
            if self._list_depth and self._depth < self._list_depth:
                self._finished = True


def is_lines(head: bytes) -> bool:
    """Return whether a file named JSON starts with an object on its own line."""
    first, _, rest = head.removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")
    try:
        record = decode_json(first)
    except RowError:
        return False
    return bool(rest.strip()) or not any(isinstance(value, list) for value in record.values())
