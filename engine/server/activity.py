"""The engine's log lines, policy update figures and token drift counts."""

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from engine.interface import UpdateStats

log = logging.getLogger("engine")

MAX_UPDATES = 500
_MAX_LINES = 50
_MAX_AGE_SECONDS = 30.0


class VerboseLog:
    """Ring buffer of short log lines for clients; each line also goes to the process log."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lines: deque[tuple[float, str, str]] = deque(maxlen=_MAX_LINES)

    def add(self, tag: str, message: str, level: int = logging.INFO) -> None:
        """Append one line."""
        log.log(level, "%s: %s", tag, message)
        self._lines.append((self._clock(), tag, message))

    def recent(self) -> list[dict[str, Any]]:
        """Return the lines of the last 30 s, at most 50, oldest first (protocol section 2.1)."""
        since = self._clock() - _MAX_AGE_SECONDS
        return [
            {"timestamp": at, "tag": tag, "message": message}
            for at, tag, message in self._lines
            if at >= since
        ]


class UpdateHistory:
    """The last 500 policy updates."""

    def __init__(self) -> None:
        self._updates: deque[dict[str, Any]] = deque(maxlen=MAX_UPDATES)

    def add(
        self, stats: UpdateStats, sync_seconds: float, merged: Mapping[str, int] | None = None
    ) -> None:
        """Append one update.

        Args:
            stats: Figures of the update.
            sync_seconds: How long claims were refused for the update.
            merged: Counts of calls, of the samples they were merged into, and of token drift.

        `step_seconds` is the time since the previous update, null for the first one.
        """
        now = time.time()
        update = {
            **asdict(stats),
            **(merged or {}),
            "no_signal_share": stats.extra.get("no_signal", stats.dead_groups / stats.groups),
            "sync_seconds": sync_seconds,
            "step_seconds": now - self._updates[-1]["at"] if self._updates else None,
            "at": now,
        }
        self._updates.append(replace_nonfinite(update))

    def after(self, step: int) -> list[dict[str, Any]]:
        """Return the updates with a `step` greater than the given one, oldest first."""
        return [update for update in self._updates if update["step"] > step]

    def back_to(self, step: int) -> None:
        """Remove the updates after `step`, whose weights were discarded."""
        while self._updates and self._updates[-1]["step"] > step:
            self._updates.pop()

    def clear(self) -> None:
        """Remove all updates; their weights were discarded."""
        self._updates.clear()


class TokenDrift:
    """Counter of earlier answers that a client sent back as other tokens than were sampled, since
    the last update."""

    def __init__(self) -> None:
        self._repaired = self._unrepaired = 0

    def note(self, count: int, *, repaired: bool) -> None:
        """Add the drifted answers of one prompt."""
        if repaired:
            self._repaired += count
        else:
            self._unrepaired += count

    def take(self) -> dict[str, int]:
        """Return the counts and reset them to 0."""
        counts = {"drift_repaired": self._repaired, "drift_left": self._unrepaired}
        self._repaired = self._unrepaired = 0
        return counts


def replace_nonfinite(value: Any) -> Any:
    """Return `value` with NaN and infinities replaced by null, for JSON."""
    if isinstance(value, Mapping):
        return {str(key): replace_nonfinite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [replace_nonfinite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
