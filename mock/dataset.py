"""JSONL datasets: one pass finds the usable rows, then each is read when it is its turn.

A row is an AgentJet task (`task_id`, `main_query`, `metadata`, `init_messages`) or
`{"query", "answer", "system", "id"}`; only the query is needed. A broken row is reported with its
line and passed over. Memory: about 20 bytes a row, whatever the rows hold.
"""

import hashlib
import os
import random
from array import array
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import msgspec

from core.errors import UsageError
from core.text import content_text

LINE_LIMIT = 16 * 1024 * 1024
"""Bytes of the longest line that is read."""
PROBLEM_CAP = 1_000
"""Broken rows that are kept by line and cause; further ones are only counted."""
ID_LIMIT = 120
_HEAD = 65_536
_KNOWN = frozenset(("id", "task_id", "query", "main_query", "system", "metadata", "init_messages"))
_SAFE = "!$&'()*+,-./:;=?@_~|[]{}"
"""Characters of a row's id that may stand in a header; `#` is the proxy's separator."""


class DatasetError(UsageError):
    """A dataset cannot be used at all."""


class RowError(ValueError):
    """One row cannot be used; the text is the cause."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One usable row."""

    row_id: str
    """Unique in the dataset and fit for a header."""
    line: int
    """From 1."""
    query: str
    messages: tuple[dict[str, Any], ...]
    """The conversation to send, ending with the user's query."""
    task_id: str = ""
    """The dataset's own id, as it stands there; empty when it has none."""
    reference: str | None = None
    """The answer to compare with; never part of `messages`."""
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)


class BadRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row that cannot be used."""

    line: int
    cause: str


def shipped() -> Path:
    """The questions that come with the program."""
    return Path(__file__).parent / "data" / "questions.jsonl"


class Dataset:
    """An opened dataset: positions 0 to `len` - 1 are its usable rows."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.problems: list[BadRow] = []
        self.broken = 0
        """All broken rows, kept in `problems` or not."""
        self._descriptor = descriptor
        self._offsets = array("Q")
        self._lengths = array("I")
        self._lines = array("I")
        self._repeated: frozenset[int] = frozenset()

    @classmethod
    def open(cls, path: Path) -> Self:
        """Find the usable rows; reads the whole file once, so call it off the event loop.

        Raises:
            DatasetError: the file is missing, unreadable, or has no usable row; names it.
        """
        where = str(path)
        todo = "Name a JSONL file with one row a line"
        try:
            dataset = cls(path, os.open(path, os.O_RDONLY))
        except OSError as error:
            raise DatasetError(
                f"the dataset cannot be read: {error.strerror or error}", where, todo
            ) from error
        try:
            dataset._scan()
            if not len(dataset):
                first = dataset.problems[0] if dataset.problems else None
                cause = f": line {first.line}: {first.cause}" if first else ", it is empty"
                raise DatasetError(f"the dataset has no usable row{cause}", where, todo)
        except OSError as error:
            dataset.close()
            raise DatasetError(
                f"the dataset cannot be read: {error.strerror or error}", where, todo
            ) from error
        except BaseException:
            dataset.close()
            raise
        return dataset

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._offsets)

    def line(self, position: int) -> int:
        """Line number of the row at `position`."""
        return self._lines[position]

    def row(self, position: int) -> Row | BadRow:
        """Read one row; broken when the file was changed since it was opened."""
        line = self._lines[position]
        data = os.pread(self._descriptor, self._lengths[position], self._offsets[position])
        try:
            row = parse(line, data)
        except RowError as error:
            return BadRow(line=line, cause=str(error))
        if _digest(row.row_id) in self._repeated:
            return msgspec.structs.replace(row, row_id=f"{row.row_id}@{line}")
        return row

    def order(self, number: int, seed: int | None) -> "array[int]":
        """Positions in the order of pass `number`; shuffled anew for each pass when seeded."""
        positions = array("I", range(len(self)))
        if seed is not None:
            random.Random(f"{seed}:{number}").shuffle(positions)
        return positions

    def fingerprint(self) -> str:
        """Stays the same as long as the file is: its path, size, head and tail."""
        size = os.fstat(self._descriptor).st_size
        digest = hashlib.sha256(f"{self.path.absolute()}\0{size}\0".encode())
        digest.update(os.pread(self._descriptor, _HEAD, 0))
        digest.update(os.pread(self._descriptor, _HEAD, max(0, size - _HEAD)))
        return digest.hexdigest()[:16]

    def _scan(self) -> None:
        digests = array("Q")
        for line, offset, data in _lines(self._descriptor):
            try:
                if data is None:
                    raise RowError(f"longer than {LINE_LIMIT // 1024 // 1024} MB")
                row = parse(line, data)
            except RowError as error:
                self.broken += 1
                if len(self.problems) < PROBLEM_CAP:
                    self.problems.append(BadRow(line=line, cause=str(error)))
                continue
            self._offsets.append(offset)
            self._lengths.append(len(data))
            self._lines.append(line)
            digests.append(_digest(row.row_id))
        ordered = sorted(digests)
        self._repeated = frozenset(one for one, after in pairwise(ordered) if one == after)


def parse(line: int, data: bytes) -> Row:
    """One line as a row.

    Raises:
        RowError: it cannot be used; says why.
    """
    found = _decode(data)
    history = _messages(found.get("init_messages"))
    query = _query(found, history)
    messages = list(history)
    if system := found.get("system"):
        if not isinstance(system, str):
            raise RowError("`system` is not text")
        messages.insert(0, {"role": "system", "content": system})
    if not (messages and messages[-1] == {"role": "user", "content": query}):
        messages.append({"role": "user", "content": query})
    own = _own_id(found)
    return Row(
        row_id=quote(own, safe=_SAFE)[:ID_LIMIT] if own else f"row-{line}",
        line=line,
        query=query,
        messages=tuple(messages),
        task_id=own,
        reference=_reference(found),
        metadata=_metadata(found),
    )


def _decode(data: bytes) -> dict[str, Any]:
    try:
        text = data.removeprefix(b"\xef\xbb\xbf").decode()
        found = msgspec.json.decode(text)
    except UnicodeDecodeError as error:
        raise RowError(f"not UTF-8 at byte {error.start + 1}") from error
    except msgspec.MsgspecError as error:
        raise RowError(f"not JSON: {error}") from error
    except RecursionError as error:
        raise RowError("nested too deeply") from error
    if not isinstance(found, dict):
        raise RowError("not an object")
    return found


def _messages(told: Any) -> list[dict[str, Any]]:
    if told is None:
        return []
    if not isinstance(told, list):
        raise RowError("`init_messages` is not a list")
    for message in told:
        if not (isinstance(message, dict) and isinstance(message.get("role"), str)):
            raise RowError("`init_messages` holds something that is not a message")
    return told


def _query(found: Mapping[str, Any], history: list[dict[str, Any]]) -> str:
    for key in ("main_query", "query"):
        value = found.get(key)
        if value is None:
            continue
        if not isinstance(value, str):
            raise RowError(f"`{key}` is not text")
        if value.strip():
            return value
    if history and history[-1]["role"] == "user":
        text = content_text(history[-1].get("content"))
        if text.strip():
            history[-1] = {"role": "user", "content": text}
            return text
    raise RowError("no query: `query` or `main_query` is missing or empty")


def _own_id(found: Mapping[str, Any]) -> str:
    for key in ("id", "task_id"):
        value = found.get(key)
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
            return str(value).strip()
    return ""


def _reference(found: Mapping[str, Any]) -> str | None:
    nested = found.get("metadata")
    for place in (found, nested if isinstance(nested, dict) else {}):
        for key in ("answer", "reference"):
            value = place.get(key)
            if isinstance(value, str | int | float) and not isinstance(value, bool):
                return str(value)
    return None


def _metadata(found: Mapping[str, Any]) -> dict[str, Any]:
    """The row's own metadata, else whatever else the row holds."""
    told = found.get("metadata")
    if isinstance(told, dict):
        return told
    return {key: value for key, value in found.items() if key not in _KNOWN}


def _digest(row_id: str) -> int:
    return int.from_bytes(hashlib.blake2b(row_id.encode(), digest_size=8).digest(), "big")


def _lines(descriptor: int) -> Iterator[tuple[int, int, bytes | None]]:
    """Number, offset and bytes of each line that is not blank; None for one beyond the limit."""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        offset = number = 0
        while data := file.readline(LINE_LIMIT + 1):
            number += 1
            start = offset
            offset += len(data)
            if len(data) > LINE_LIMIT and not data.endswith(b"\n"):
                while rest := file.readline(1 << 20):
                    offset += len(rest)
                    if rest.endswith(b"\n"):
                        break
                yield number, start, None
            elif data.strip():
                yield number, start, data
