"""Which repeats of which tasks are done, in a file: a run that is killed goes on there."""

import json
import logging
import os
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ajet_swarm.common.renamed import renamed
from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.plain import JSON_ERRORS, to_plain

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UnstoredValue:
    """In the place of a value that could not be kept: what was of no JSON form."""

    kind: str
    """Name of its type."""


class RunRecord:
    """A file of finished episodes, a JSON object a line, each on disk before `add` returns.

    A last line that a kill has cut is dropped; any other that is none is an error. Values come back
    as JSON has them: numpy's numbers as numbers, a model as the dict of its fields.

    Args:
        path: The file; made, with the folders on the way, when it is not there.

    Raises:
        SwarmError: it cannot be used, or is no record.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._done: defaultdict[str, list[Any]] = defaultdict(list)
        self._warned: set[str] = set()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise SwarmError(f"the record cannot be used: {error}", str(path)) from error
        try:
            self._load()
        except BaseException:
            os.close(self._file)
            raise

    def _load(self) -> None:
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.truncate(self._file, whole)
        for number, line in enumerate(data[:whole].splitlines(), 1):
            try:
                told = json.loads(line)
                kind = told.get("lost")
                value = told["value"] if kind is None else UnstoredValue(str(kind))
                self._done[str(told["task"])].append(value)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise SwarmError(
                    f"not a line of a run's record: {error}",
                    f"{self.path}:{number}",
                    "Take the line out, or begin with another file",
                ) from error

    def done(self, task_id: str) -> list[Any]:
        """Return the values of a task's finished repeats, in the order in which they ended.

        `UnstoredValue` stands for a value without a JSON form.
        """
        with self._lock:
            return list(self._done.get(task_id, ()))

    @property
    def count(self) -> int:
        """Finished repeats of all tasks."""
        with self._lock:
            return sum(map(len, self._done.values()))

    def add(self, task_id: str, value: Any = None) -> None:
        """One repeat more is done; a value that has no JSON form is only told of, in the log.

        Raises:
            SwarmError: it cannot be written.
        """
        line: dict[str, Any] = {"task": task_id, "value": None, "at": round(time.time(), 3)}
        try:
            told = json.dumps({**line, "value": to_plain(value)})
        except JSON_ERRORS as error:
            kind = type(value).__name__
            told = json.dumps({**line, "lost": kind})
            if kind not in self._warned:
                self._warned.add(kind)
                log.warning(
                    "%s: a %s is not kept, only that it is done: %s", self.path, kind, error
                )
            value = UnstoredValue(kind)
        with self._lock:
            try:
                os.write(self._file, told.encode() + b"\n")
                os.fsync(self._file)
            except OSError as error:
                raise SwarmError(f"cannot be written: {error}", str(self.path)) from error
            self._done[task_id].append(value)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def __enter__(self) -> "RunRecord":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


if not TYPE_CHECKING:
    __getattr__ = renamed(__name__, {"Lost": "UnstoredValue"})
