"""Progress of a run on disk, so that a run continues after any kind of end.

`<home>/mock/<fingerprint>.progress` has one entry per line: `run ID`, `start N`, `ask KEY JSON`
(its id, query and start) before a row is sent, its `KEY` once it is answered, `back KEY` when it
was given up without an answer, `weighted`, `finished`. A row with `ask` and none of the others was
in flight when the process was killed: it is lost, and not asked again. Lines are only appended,
each in one write; a line torn by a crash is removed by the next start.
"""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec


class Key(NamedTuple):
    """Identity of one asking of one row."""

    number: int
    """The pass, from 1."""
    line: int
    copy: int = 1
    """Number of the asking within the pass, for rows that are asked several times."""

    def __str__(self) -> str:
        return f"{self.number}:{self.line}" + (f":{self.copy}" if self.copy > 1 else "")


def read_key(text: str) -> Key | None:
    """Parse the text of a key; None for any other text."""
    parts = text.split(":")
    if len(parts) not in (2, 3) or not all(part.isascii() and part.isdecimal() for part in parts):
        return None
    return Key(*(int(part) for part in parts))


class InFlightRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row in flight, as recorded before it was sent."""

    row_id: str = ""
    query: str = ""
    mock_id: str = ""
    """The start that sent it."""


class KeySet:
    """A set of keys, one bit per line."""

    def __init__(self) -> None:
        self._bits: dict[tuple[int, int], bytearray] = {}
        self._counts: dict[int, int] = {}

    def add(self, key: Key) -> None:
        """Add a key."""
        bits = self._bits.setdefault((key.number, key.copy), bytearray())
        at, bit = key.line >> 3, 1 << (key.line & 7)
        if at >= len(bits):
            bits.extend(bytes(max(at + 1 - len(bits), 1024)))
        if not bits[at] & bit:
            bits[at] |= bit
            self._counts[key.number] = self._counts.get(key.number, 0) + 1

    def __contains__(self, key: Key) -> bool:
        bits = self._bits.get((key.number, key.copy), b"")
        at = key.line >> 3
        return at < len(bits) and bool(bits[at] >> (key.line & 7) & 1)

    def count(self, passes: int) -> int:
        """Return the number of keys in the first `passes`."""
        return sum(count for number, count in self._counts.items() if number <= passes)


class Progress:
    """Progress of one dataset against one target, and the results of this start.

    Args:
        folder: Created when missing.
        name: Distinguishes the files of different runs.
        restart: Discard earlier progress.
    """

    def __init__(self, folder: Path, name: str, restart: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{name}.progress"
        if restart:
            self.path.unlink(missing_ok=True)
        self.done = KeySet()
        """Keys that earlier starts have finished."""
        self.lost: dict[Key, InFlightRow] = {}
        """Rows that were in flight when an earlier start was killed."""
        self.weighted = False
        """True once a row with a weight other than 1 was read."""
        run, start = self._read()
        fresh = not run
        self.run = run or "mock-" + secrets.token_hex(4)
        self.mock_id = f"{self.run}-{start + 1}"
        """Name of this start: `<run>-<start>`."""
        self._folder = folder
        self.results = folder / f"{self.mock_id}.jsonl"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._file = os.open(self.path, flags | (os.O_TRUNC if fresh else 0), 0o600)
        self._results = os.open(self.results, flags, 0o600)
        self._write((f"run {self.run}\n" if fresh else "") + f"start {start + 1}\n")

    def close(self) -> None:
        """Close both files."""
        for descriptor in (self._file, self._results):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._results = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def ask(self, row_key: Key, row_id: str = "", query: str = "") -> None:
        """Record that a row is about to be sent."""
        in_flight = InFlightRow(row_id=row_id, query=query, mock_id=self.mock_id)
        self._write(f"ask {row_key} {msgspec.json.encode(in_flight).decode()}\n")

    def back(self, row_key: Key) -> None:
        """Record that a row was given up without an answer: the next start asks it again."""
        self._write(f"back {row_key}\n")

    def mark(self, row_key: Key, result: dict[str, Any]) -> None:
        """Record a finished row and append its `result` to the results of this start."""
        write_whole(self._results, msgspec.json.encode(result) + b"\n")
        self._write(f"{row_key}\n")

    def weigh(self) -> None:
        """Record that rows have weights."""
        if not self.weighted:
            self.weighted = True
            self._write("weighted\n")

    def finish(self) -> None:
        """Record the end of the run; the next start begins a new run."""
        self._write("finished\n")

    def earlier(self) -> Iterator[dict[str, Any]]:
        """Yield the results of the earlier starts of this run."""
        for number in range(1, int(self.mock_id.rpartition("-")[2])):
            yield from results_in(self._folder / f"{self.run}-{number}.jsonl")

    def _write(self, text: str) -> None:
        write_whole(self._file, text.encode())

    def _read(self) -> tuple[str, int]:
        """Return id and number of starts of the unfinished run; empty without one."""
        run, start = "", 0
        in_flight: dict[Key, InFlightRow] = {}
        for line in whole_lines(self.path):
            word, _, rest = line[:-1].decode(errors="replace").partition(" ")
            if word == "run":
                run = rest
            elif word == "start":
                start = int(rest) if rest.isdecimal() else start
            elif word == "finished":
                self.done = KeySet()
                self.weighted = False
                return "", 0
            else:
                self._apply(word, rest, in_flight)
        self.lost = in_flight
        return run, start

    def _apply(self, word: str, rest: str, in_flight: dict[Key, InFlightRow]) -> None:
        if word == "weighted":
            self.weighted = True
        elif word in ("ask", "back"):
            key, _, details = rest.partition(" ")
            if row_key := read_key(key):
                in_flight.pop(row_key, None)
                if word == "ask":
                    in_flight[row_key] = _parse_row(details)
        elif row_key := read_key(word):
            in_flight.pop(row_key, None)
            self.done.add(row_key)


def _parse_row(text: str) -> InFlightRow:
    try:
        return msgspec.json.decode(text, type=InFlightRow)
    except msgspec.MsgspecError:
        return InFlightRow()


def whole_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, none without one; a last line torn by a crash is removed."""
    whole = 0
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                os.truncate(path, whole)
                return
            whole += len(line)
            yield line


def results_in(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file of results."""
    for line in whole_lines(path):
        with contextlib.suppress(msgspec.MsgspecError):
            if isinstance(result := msgspec.json.decode(line), dict):
                yield result


def write_whole(descriptor: int, data: bytes) -> None:
    """Write all of `data`."""
    while data:
        data = data[os.write(descriptor, data) :]
