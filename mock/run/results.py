"""The operator's results file: one line per row with answer, group, reward, seconds and error.

A line is written once the row's reward is known or will not come, which may be later than the
answer. Lines that a killed start did not write are added by the next start.
"""

import asyncio
import os
import time
from collections import deque
from pathlib import Path
from typing import Any

import msgspec

from ajet_swarm.common.errors import UsageError
from mock.run.group_feed import GroupFeed, reward_of

_EVERY = 0.25
_MAX_WAITING = 10_000
"""Limit of rows that wait for their reward; the oldest is written without it."""


def check_writable(path: Path) -> None:
    """Check whether a results file could be opened, without creating anything.

    Raises:
        UsageError: it cannot.
    """
    places = (path, *path.absolute().parents)
    place = next(place for place in places if place.exists())
    if place.is_dir() == (place == path) or not os.access(place, os.W_OK):
        why = "this is a folder" if place == path and place.is_dir() else f"no access to {place}"
        raise UsageError(f"the results cannot be written: {why}", str(path))


class Results:
    """A results file, opened for appending.

    Args:
        path: Created when missing.
        wait: Seconds to wait for a row's reward after its answer.

    Raises:
        UsageError: it cannot be written.
    """

    def __init__(self, path: Path, wait: float = 60.0) -> None:
        self._wait = wait
        self._waiting: deque[tuple[float, dict[str, Any]]] = deque()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            raise UsageError(
                f"the results cannot be written: {error.strerror or error}", str(path)
            ) from error
        self.path = path

    def close(self) -> None:
        """Write the waiting rows without their reward and close the file."""
        while self._waiting:
            self._write(self._waiting.popleft()[1], None)
        os.close(self._file)

    def add(self, result: dict[str, Any]) -> None:
        """Queue an answered row."""
        self._waiting.append((time.monotonic() + self._wait, result))

    async def keep_up(self, feed: GroupFeed | None) -> None:
        """Write rows as their rewards arrive, until cancelled."""
        while True:
            self.settle(feed)
            await asyncio.sleep(_EVERY)

    def settle(self, feed: GroupFeed | None) -> int:
        """Write the rows whose reward is known or overdue; return how many still wait."""
        waiting: deque[tuple[float, dict[str, Any]]] = deque()
        now, excess = time.monotonic(), len(self._waiting) - _MAX_WAITING
        for number, (until, result) in enumerate(self._waiting):
            rewards = _rewards_of(result, feed)
            if rewards is None and feed is not None and now < until and number >= excess:
                waiting.append((until, result))
            else:
                self._write(result, rewards)
        self._waiting = waiting
        return len(waiting)

    def _write(self, result: dict[str, Any], rewards: dict[str, Any] | None) -> None:
        if rewards is None:
            late = {} if result.get("error") else {"unrewarded": "not known in time"}
            rewards = {"reward": None, **late}
        data = msgspec.json.encode({**result, **rewards}) + b"\n"
        while data:
            data = data[os.write(self._file, data) :]


def _rewards_of(result: dict[str, Any], feed: GroupFeed | None) -> dict[str, Any] | None:
    """Return the reward fields of a row from its groups; None while one of them is open."""
    if feed is None:
        return None
    turns = result.get("turns") or [result]
    rewards = [_turn_reward(turn, feed) for turn in turns]
    if any(reward is None for reward in rewards):
        return None
    last = dict(rewards[-1] or {})
    if len(turns) > 1:
        last["turns"] = [
            {**turn, **(reward or {})} for turn, reward in zip(turns, rewards, strict=True)
        ]
    return last


def _turn_reward(turn: dict[str, Any], feed: GroupFeed) -> dict[str, Any] | None:
    group = feed.group_by_id(turn.get("group") or "") or feed.group(turn["row_id"])
    reward = reward_of(group)
    if reward is None and group is None and turn.get("error"):
        return {"reward": None}
    if reward is None or group is None:
        return None
    return {**reward, "weights": feed.weights_of(group)}
