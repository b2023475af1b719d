"""One line a row in a file the operator named: answer, group, reward, seconds, error.

A row's line is written when its reward is known, or will not come; so it can be later than the
answer. What a killed start has not written is written by the next one.
"""

import asyncio
import os
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from ajet_swarm.common.errors import UsageError
from mock.run.group_feed import Following, reward_of
from mock.run.progress import Key, Marks

_EVERY = 0.25
_MOST = 10_000
"""Rows that wait for their reward at the same time; the oldest does not wait longer."""


class Results:
    """The file, opened to be added to.

    Args:
        path: Made when missing.
        run: The run whose rows are in it already.
        wait: Seconds to wait for a row's reward after its answer.

    Raises:
        UsageError: it cannot be written.
    """

    def __init__(self, path: Path, run: str, wait: float = 60.0) -> None:
        self._run = run
        self._wait = wait
        self._waiting: deque[tuple[float, dict[str, Any]]] = deque()
        self._written = Marks()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
            self._file = os.open(path, flags, 0o600)
            self._read(path)
        except OSError as error:
            raise UsageError(
                f"the results cannot be written: {error.strerror or error}", str(path)
            ) from error
        self.path = path

    def close(self) -> None:
        """Write what still waits, without its reward; close the file."""
        while self._waiting:
            self._write(self._waiting.popleft()[1], None)
        os.close(self._file)

    def add(self, result: dict[str, Any]) -> None:
        """A row has its answer."""
        self._waiting.append((time.monotonic() + self._wait, result))

    def add_missing(self, earlier: Iterable[dict[str, Any]]) -> None:
        """Rows of earlier starts: those that are not in the file are added."""
        for result in earlier:
            if (found := _key(result)) is not None and found not in self._written:
                self.add(result)

    async def keep_up(self, following: Following | None) -> None:
        """Write each row as soon as it can be; for ever."""
        while True:
            self.settle(following)
            await asyncio.sleep(_EVERY)

    def settle(self, following: Following | None) -> int:
        """Write what can be written; returns how many still wait."""
        kept: deque[tuple[float, dict[str, Any]]] = deque()
        now, excess = time.monotonic(), len(self._waiting) - _MOST
        for number, (until, result) in enumerate(self._waiting):
            told = _told(result, following)
            if told is None and following is not None and now < until and number >= excess:
                kept.append((until, result))
            else:
                self._write(result, told)
        self._waiting = kept
        return len(kept)

    def _write(self, result: dict[str, Any], told: dict[str, Any] | None) -> None:
        if told is None:
            late = {} if result.get("error") else {"unrewarded": "not known in time"}
            told = {"reward": None, **late}
        data = msgspec.json.encode({**result, **told}) + b"\n"
        while data:
            data = data[os.write(self._file, data) :]
        if (found := _key(result)) is not None:
            self._written.add(found)

    def _read(self, path: Path) -> None:
        whole = 0
        with path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    os.ftruncate(self._file, whole)  # torn by a crash
                    return
                whole += len(line)
                try:
                    result = msgspec.json.decode(line)
                except msgspec.MsgspecError:
                    continue
                if isinstance(result, dict) and result.get("run") == self._run:
                    found = _key(result)
                    if found is not None:
                        self._written.add(found)


def _told(result: dict[str, Any], following: Following | None) -> dict[str, Any] | None:
    """What the groups of a row say; None while one of them is open."""
    if following is None:
        return None
    turns = result.get("turns") or [result]
    found = [_one(turn, following) for turn in turns]
    if any(one is None for one in found):
        return None
    last = dict(found[-1] or {})
    if len(turns) > 1:
        last["turns"] = [{**turn, **(one or {})} for turn, one in zip(turns, found, strict=True)]
    return last


def _one(turn: dict[str, Any], following: Following) -> dict[str, Any] | None:
    group = following.group_by_id(turn.get("group") or "") or following.group(turn["row_id"])
    told = reward_of(group)
    if told is None and group is None and turn.get("error"):
        return {"reward": None}
    return dict(told) if told is not None else None


def _key(result: dict[str, Any]) -> Key | None:
    try:
        return Key(int(result["pass"]), int(result["line"]), int(result.get("copy", 1)))
    except (KeyError, TypeError, ValueError):
        return None
