"""What a run of the mock user has done, on disk: it goes on where it was after any end.

`<home>/mock/<fingerprint>.progress` holds one word a line: `run ID`, `start N`, `ask KEY JSON`
(its id, query and start) before a row is sent, its `KEY` once it is answered, `back KEY` when it
was given up before it had an answer, `weighted`, `finished`. A row that was asked and has none of
the others was in flight when the process was killed: it is lost, and not asked again unasked.
Lines are only appended, each in one write; one that is torn by a crash is cut off at the next
start.
"""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec


class Key(NamedTuple):
    """One asking of one row."""

    number: int
    """The pass, from 1."""
    line: int
    copy: int = 1
    """Which time in the pass, for rows that are asked several times."""

    def __str__(self) -> str:
        return f"{self.number}:{self.line}" + (f":{self.copy}" if self.copy > 1 else "")


def read_key(text: str) -> Key | None:
    """The key that `str` made; None for anything else."""
    parts = text.split(":")
    if len(parts) not in (2, 3) or not all(part.isascii() and part.isdecimal() for part in parts):
        return None
    return Key(*(int(part) for part in parts))


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a row in flight is known by."""

    row_id: str = ""
    query: str = ""
    mock_id: str = ""
    """The start that asked it."""


class Marks:
    """A set of keys, one bit for each line."""

    def __init__(self) -> None:
        self._bits: dict[tuple[int, int], bytearray] = {}
        self._counts: dict[int, int] = {}

    def add(self, one: Key) -> None:
        """Mark it."""
        bits = self._bits.setdefault((one.number, one.copy), bytearray())
        at, bit = one.line >> 3, 1 << (one.line & 7)
        if at >= len(bits):
            bits.extend(bytes(max(at + 1 - len(bits), 1024)))
        if not bits[at] & bit:
            bits[at] |= bit
            self._counts[one.number] = self._counts.get(one.number, 0) + 1

    def __contains__(self, one: Key) -> bool:
        bits = self._bits.get((one.number, one.copy), b"")
        at = one.line >> 3
        return at < len(bits) and bool(bits[at] >> (one.line & 7) & 1)

    def count(self, passes: int) -> int:
        """How many there are in the first `passes`."""
        return sum(count for number, count in self._counts.items() if number <= passes)


class Progress:
    """The run of one dataset against one target, and the results of this start.

    Args:
        folder: Made when missing.
        name: What tells one run's file from another's.
        restart: Forget what was done.
    """

    def __init__(self, folder: Path, name: str, restart: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{name}.progress"
        if restart:
            self.path.unlink(missing_ok=True)
        self.done = Marks()
        """What earlier starts have done."""
        self.lost: dict[Key, Asked] = {}
        """What was in flight when an earlier start was killed."""
        self.weighted = False
        """Rows of other weights than 1 were seen."""
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def ask(self, row_key: Key, row_id: str = "", query: str = "") -> None:
        """The row is about to be sent: on disk before it is."""
        asked = Asked(row_id=row_id, query=query, mock_id=self.mock_id)
        self._write(f"ask {row_key} {msgspec.json.encode(asked).decode()}\n")

    def back(self, row_key: Key) -> None:
        """The row was given up without an answer: the next start asks it again."""
        self._write(f"back {row_key}\n")

    def mark(self, row_key: Key, result: dict[str, Any]) -> None:
        """The row is done: it is not asked again, and `result` is one line of the results."""
        _write(self._results, msgspec.json.encode(result) + b"\n")
        self._write(f"{row_key}\n")

    def weigh(self) -> None:
        """Remember that rows have weights."""
        if not self.weighted:
            self.weighted = True
            self._write("weighted\n")

    def finish(self) -> None:
        """The run is over; the next start begins anew."""
        self._write("finished\n")

    def earlier(self) -> Iterator[dict[str, Any]]:
        """Results of the earlier starts of this run, one by one."""
        for number in range(1, int(self.mock_id.rpartition("-")[2])):
            try:
                with (self._folder / f"{self.run}-{number}.jsonl").open("rb") as file:
                    yield from _results(file)
            except FileNotFoundError:
                continue

    def _write(self, text: str) -> None:
        _write(self._file, text.encode())

    def _read(self) -> tuple[str, int]:
        """Run and number of starts of the run that is not over; empty without one."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return "", 0
        run, start, whole = "", 0, 0
        asked: dict[Key, Asked] = {}
        with file:
            for line in file:
                if not line.endswith(b"\n"):
                    os.truncate(self.path, whole)
                    break
                whole += len(line)
                word, _, rest = line[:-1].decode(errors="replace").partition(" ")
                if word == "run":
                    run = rest
                elif word == "start":
                    start = int(rest) if rest.isdecimal() else start
                elif word == "finished":
                    self.done = Marks()
                    self.weighted = False
                    return "", 0
                else:
                    self._take(word, rest, asked)
        self.lost = asked
        return run, start

    def _take(self, word: str, rest: str, asked: dict[Key, Asked]) -> None:
        if word == "weighted":
            self.weighted = True
        elif word in ("ask", "back"):
            key, _, known = rest.partition(" ")
            if found := read_key(key):
                asked.pop(found, None)
                if word == "ask":
                    asked[found] = _asked(known)
        elif found := read_key(word):
            asked.pop(found, None)
            self.done.add(found)


def _asked(text: str) -> Asked:
    try:
        return msgspec.json.decode(text, type=Asked)
    except msgspec.MsgspecError:
        return Asked()


def _results(file: Any) -> Iterator[dict[str, Any]]:
    for line in file:
        try:
            found = msgspec.json.decode(line)
        except msgspec.MsgspecError:
            continue  # torn by a crash
        if isinstance(found, dict):
            yield found


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
