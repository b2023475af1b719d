"""What a run of the mock user has done, on disk: it goes on where it was after any end.

`<home>/mock/<fingerprint>.progress` holds one word a line: `run ID`, `start N`, a row's key
`PASS:LINE` as soon as it is answered, `finished`. Lines are only appended, each in one write; one
that is torn by a crash is cut off at the next start.
"""

import os
import secrets
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec


def key(number: int, line: int) -> str:
    """The key of a row in pass `number` (from 1)."""
    return f"{number}:{line}"


def number_of(row_key: str) -> int:
    """The pass a key belongs to."""
    number = row_key.partition(":")[0]
    return int(number) if number.isdigit() else 0


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
        run, start, done = self._read()
        fresh = not run
        self.done = done
        """Keys of the rows that earlier starts have done."""
        self.mock_id = f"{run or 'mock-' + secrets.token_hex(4)}-{start + 1}"
        """Name of this start: `<run>-<start>`."""
        self.results = folder / f"{self.mock_id}.jsonl"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._file = os.open(self.path, flags | (os.O_TRUNC if fresh else 0), 0o600)
        self._results = os.open(self.results, flags, 0o600)
        run = self.mock_id.rpartition("-")[0]
        self._write((f"run {run}\n" if fresh else "") + f"start {start + 1}\n")

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

    def mark(self, row_key: str, result: dict[str, Any]) -> None:
        """The row is done: it is not asked again, and `result` is one line of the results."""
        self._write(row_key + "\n")
        self.result(result)

    def result(self, result: dict[str, Any]) -> None:
        """Only the result; the row will be asked again by the next start."""
        _write(self._results, msgspec.json.encode(result) + b"\n")

    def finish(self) -> None:
        """The run is over; the next start begins anew."""
        self._write("finished\n")

    def _write(self, text: str) -> None:
        _write(self._file, text.encode())

    def _read(self) -> tuple[str, int, set[str]]:
        """Run, number of starts and done keys of the run that is not over; empty without one."""
        try:
            size = self.path.stat().st_size
            data = self.path.read_bytes()
        except FileNotFoundError:
            return "", 0, set()
        whole = data.rfind(b"\n") + 1
        if whole < size:
            os.truncate(self.path, whole)
        run, start = "", 0
        done: set[str] = set()
        for line in data[:whole].decode(errors="replace").splitlines():
            word, _, rest = line.partition(" ")
            if word == "run":
                run = rest
            elif word == "start":
                start = int(rest) if rest.isdigit() else start
            elif word == "finished":
                return "", 0, set()
            else:
                done.add(word)
        return run, start, done


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
