"""File of finished episodes, with which a killed run can be resumed."""

import json
import logging
import os
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.model_methods import JSON_ERRORS, to_plain

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UnstoredValue:
    """Placeholder of a value that could not be stored, since it has no JSON form."""

    kind: str
    """Name of the value's type."""


class RunRecord:
    """File of finished episodes: one JSON object a line, on disk before `add` returns.

    An incomplete last line, as left by a kill, is removed; any other invalid line is an error.
    Values are read back in their JSON form: numpy numbers as numbers, a model as a dict of its
    fields.

    Args:
        path: The file; it and its parent folders are created if necessary.

    Raises:
        SwarmError: the file cannot be read or written, or is not a record.
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
                entry = json.loads(line)
                kind = entry.get("lost")
                value = entry["value"] if kind is None else UnstoredValue(str(kind))
                self._done[str(entry["task"])].append(value)
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
        """Number of finished repeats of all tasks."""
        with self._lock:
            return sum(map(len, self._done.values()))

    def add(self, task_id: str, value: Any = None) -> None:
        """Add a finished repeat; a value without a JSON form is not stored, with a warning.

        Raises:
            SwarmError: the file cannot be written.
        """
        line: dict[str, Any] = {"task": task_id, "value": None, "at": round(time.time(), 3)}
        try:
            text = json.dumps({**line, "value": to_plain(value)})
        except JSON_ERRORS as error:
            kind = type(value).__name__
            text = json.dumps({**line, "lost": kind})
            if kind not in self._warned:
                self._warned.add(kind)
                log.warning(
                    "%s: a %s is not kept, only that it is done: %s", self.path, kind, error
                )
            value = UnstoredValue(kind)
        with self._lock:
            try:
                os.write(self._file, text.encode() + b"\n")
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
