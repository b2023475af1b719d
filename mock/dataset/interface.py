"""One small interface over all kinds of dataset: records by position, found as the file is read.

A reader never holds the dataset: text files keep 16 bytes a record (beyond a megabyte on disk), and
a record is read when it is its turn.
"""

import struct
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from mock.dataset.rows import RowError

LINE_LIMIT = 16 * 1024 * 1024
"""Bytes of the longest record that is read."""
_SPOT = struct.Struct("<QII")
_SPILL = 1 << 20
_SLICE = 4_000
"""Records found between two looks at the clock."""


class Reader(ABC):
    """The records of one dataset; positions count from 0."""

    kind: str = ""
    """As people call it: "CSV"."""
    place: Literal["line", "row", "element"] = "line"
    """What a record's number counts."""
    whole = False
    """All records are found."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    @abstractmethod
    def found(self) -> int:
        """Records found so far, usable or not."""

    @property
    def share(self) -> float:
        """How much of the dataset has been looked through, 0 to 1."""
        return 1.0

    @abstractmethod
    def scan(self, records: int = 50_000) -> bool:
        """Find about so many further records; False when there are none. Blocks on the disk."""

    @abstractmethod
    def line(self, position: int) -> int:
        """Number of the line, row or element of a record, from 1."""

    @abstractmethod
    def record(self, position: int) -> dict[str, Any]:
        """Read a record: column -> value.

        Raises:
            RowError: it is broken; says why.
        """

    @abstractmethod
    def sample(self) -> bytes:
        """What stays the same as long as the dataset does."""

    @abstractmethod
    def close(self) -> None:
        """Close the files."""

    def columns(self) -> tuple[str, ...]:
        """Columns that are known before any record is read; none where each has its own."""
        return ()

    def blocks(self) -> Sequence[int]:
        """Lengths of the stretches that are shuffled one by one."""
        return (self.found,)


class TextReader(Reader):
    """A file of text whose records lie between two offsets.

    A subclass says where with `_spots`, and what they hold with `_decode`.

    Args:
        path: The file.
        scratch: Folder for the index of a large file; the system's own when left out.
    """

    def __init__(self, path: Path, scratch: Path | None = None) -> None:
        super().__init__(path)
        self._file = path.open("rb", buffering=0)
        self._size = path.stat().st_size
        self._at = 0
        self._count = 0
        self._index = tempfile.SpooledTemporaryFile(_SPILL, dir=str(scratch) if scratch else None)  # noqa: SIM115 - closed by close
        self._lock = threading.Lock()
        self._scanning = threading.Lock()
        self._walk = self._spots()

    @abstractmethod
    def _spots(self) -> Iterator[tuple[int, int, int]]:
        """Offset, length and line of each record; a length beyond `LINE_LIMIT` is never read.

        Keeps `_at` at the offset it has come to.
        """

    @abstractmethod
    def _decode(self, data: bytes) -> dict[str, Any]:
        """A record's bytes as column -> value; raises RowError."""

    @property
    def found(self) -> int:
        return self._count

    @property
    def share(self) -> float:
        return 1.0 if self.whole else min(1.0, self._at / max(1, self._size))

    def scan(self, records: int = 50_000) -> bool:
        with self._scanning:
            return self._scan(records)

    def _scan(self, records: int) -> bool:
        packed: list[bytes] = []
        for offset, length, line in self._walk:
            packed.append(_SPOT.pack(offset, min(length, LINE_LIMIT + 1), line))
            if len(packed) >= records:
                self._keep(packed)
                return True
        self._keep(packed)
        self.whole = True
        return False

    def _keep(self, packed: list[bytes]) -> None:
        with self._lock:
            self._index.seek(0, 2)
            self._index.write(b"".join(packed))
        self._count += len(packed)

    def _spot(self, position: int) -> tuple[int, int, int]:
        with self._lock:
            self._index.seek(position * _SPOT.size)
            offset, length, line = _SPOT.unpack(self._index.read(_SPOT.size))
        return offset, length, line

    def line(self, position: int) -> int:
        return self._spot(position)[2]

    def record(self, position: int) -> dict[str, Any]:
        offset, length, _ = self._spot(position)
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
        self._walk = iter(())
        self._file.close()
        self._index.close()
