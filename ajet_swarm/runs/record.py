"""File of finished episodes, with which a killed run can be resumed."""

import json
import os
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.models import JSON_ERRORS, to_plain


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
                self._done[str(entry["task"])].append(entry["value"])
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise SwarmError(
                    f"not a line of a run's record: {error}",
                    f"{self.path}:{number}",
                    "Take the line out, or begin with another file",
                ) from error

    def done(self, task_id: str) -> list[Any]:
        """Return the values of a task's finished repeats, in the order in which they ended."""
        with self._lock:
            return list(self._done.get(task_id, ()))

    @property
    def count(self) -> int:
        """Number of finished repeats of all tasks."""
        with self._lock:
            return sum(map(len, self._done.values()))

    def add(self, task_id: str, value: Any = None) -> None:
        """Add a finished repeat; one whose value has no JSON form is stored without it.

        Raises:
            SwarmError: the value has no JSON form, or the file cannot be written.
        """
        try:
            self._append(task_id, json.dumps(to_plain(value)), value)
        except JSON_ERRORS as error:
            self._append(task_id, "null", None)
            raise SwarmError(
                f"a {type(value).__name__} cannot be stored: {error}",
                str(self.path),
                "Return numbers, text, lists and dicts of them, or models",
            ) from error

    def _append(self, task_id: str, value_json: str, value: Any) -> None:
        at = round(time.time(), 3)
        text = f'{{"task": {json.dumps(task_id)}, "value": {value_json}, "at": {at}}}'
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
