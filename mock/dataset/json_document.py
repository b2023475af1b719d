"""Datasets that are one JSON document: a list of objects, at the top or in a field of it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mock.dataset.columns import DatasetError
from mock.dataset.interface import TextReader
from mock.dataset.rows import RowError, decode_json

_CHUNK = 1 << 20
_MARK = re.compile(rb'["\\{}\[\],]')


class JsonList(TextReader):
    """The elements of the first list in a JSON document, found without reading it as a whole."""

    kind = "JSON"
    place = "element"

    def __init__(self, path: Path, scratch: Path | None = None) -> None:
        super().__init__(path, scratch)
        head = self._bytes(0, 4096).removeprefix(b"\xef\xbb\xbf").lstrip()
        if head[:1] not in (b"[", b"{"):
            self.close()
            raise DatasetError(
                "this is no JSON list" + _guess(head),
                f"{path}:1",
                "Name a file with a list of objects, or one object a line",
            )

    def _spots(self) -> Iterator[tuple[int, int, int]]:
        """Elements are cut at the commas of the list; what is in them is read in its turn."""
        walk = _Walk()
        with self.path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                yield from walk.feed(chunk)
                self._at = file.tell()
        yield from walk.end()

    def sample(self) -> bytes:
        return b"elements\0" + super().sample()

    def _decode(self, data: bytes) -> dict[str, Any]:
        return decode_json(data.strip())


class _Walk:
    """Where the elements of the first list begin and end, and their numbers from 1.

    A line may hold many elements: only the number tells one from another.
    """

    def __init__(self) -> None:
        self._offset = 0
        self._number = 0
        self._depth = 0
        self._list_depth = 0
        """Depth within the list; 0 before it has begun."""
        self._over = False
        self._quoted = False
        self._escaped = -1
        """Offset of a byte behind a backslash: it means nothing."""
        self._start = -1
        """Just behind the bracket or comma before the element."""
        self._blank = True

    def feed(self, chunk: bytes) -> Iterator[tuple[int, int, int]]:
        """Go on with the next bytes of the file."""
        last = 0
        for match in _MARK.finditer(chunk):
            at, sign = match.start(), match[0]
            self._words(chunk[last:at])
            last = at + 1
            offset = self._offset + at
            if offset == self._escaped:
                continue
            elif sign == b"\\":
                self._escaped = offset + 1 if self._quoted else -1
            elif sign == b'"':
                self._quoted = not self._quoted
                self._words(sign)
            elif not self._quoted:
                yield from self._bracket(offset, sign)
        self._words(chunk[last:])
        self._offset += len(chunk)

    def end(self) -> Iterator[tuple[int, int, int]]:
        """The file is over; an element that is not is broken."""
        if not self._over and self._start >= 0 and not self._blank:
            yield self._element(self._offset)

    def _words(self, text: bytes) -> None:
        if self._blank and text.strip():
            self._blank = False

    def _element(self, end: int) -> tuple[int, int, int]:
        """Offset, length and number of the element that ends before `end`."""
        self._number += 1
        return self._start, end - self._start, self._number

    def _bracket(self, offset: int, sign: bytes) -> Iterator[tuple[int, int, int]]:
        if self._over:
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
            self._words(sign)
        elif sign in (b"}", b"]"):
            self._depth -= 1
            if self._list_depth and self._depth < self._list_depth:
                self._over = True


def is_lines(head: bytes) -> bool:
    """Whether a file that is called JSON begins with an object on a line of its own."""
    first, _, rest = head.removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")
    try:
        found = decode_json(first)
    except RowError:
        return False
    return bool(rest.strip()) or not any(isinstance(one, list) for one in found.values())


def _guess(head: bytes) -> str:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\x00" in head[:64]:
        return ": it looks like UTF-16, save it as UTF-8"
    return ""
