"""What the engine remembers for those who ask: log lines, policy updates, the latest call."""

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from engine.interface import UpdateStats

log = logging.getLogger("engine")

KEPT_UPDATES = 500
_SHOWN_LINES = 50
_SHOWN_SECONDS = 30.0


class VerboseLog:
    """Short lines for clients; the same lines go to the process's log."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lines: deque[tuple[float, str, str]] = deque(maxlen=_SHOWN_LINES)

    def add(self, tag: str, message: str, level: int = logging.INFO) -> None:
        """Keep one line."""
        log.log(level, "%s: %s", tag, message)
        self._lines.append((self._clock(), tag, message))

    def recent(self) -> list[dict[str, Any]]:
        """Lines of the last 30 s, at most 50, oldest first (protocol section 2.1)."""
        since = self._clock() - _SHOWN_SECONDS
        return [
            {"timestamp": at, "tag": tag, "message": message}
            for at, tag, message in self._lines
            if at >= since
        ]


class UpdateHistory:
    """The last 500 policy updates."""

    def __init__(self) -> None:
        self._kept: deque[dict[str, Any]] = deque(maxlen=KEPT_UPDATES)

    def add(
        self, stats: UpdateStats, sync_seconds: float, merged: Mapping[str, int] | None = None
    ) -> None:
        """Keep one update; `sync_seconds` is the whole time claims were refused for it.

        `merged` says how calls became samples and how many answers came back in other tokens.

        `step_seconds` is the time since the update before, null for the first one.
        """
        now = time.time()
        facts = {
            **asdict(stats),
            **(merged or {}),
            "no_signal_share": stats.dead_groups / stats.groups if stats.groups else None,
            "sync_seconds": sync_seconds,
            "step_seconds": now - self._kept[-1]["at"] if self._kept else None,
            "at": now,
        }
        self._kept.append(replace_nonfinite(facts))

    def after(self, step: int) -> list[dict[str, Any]]:
        """Updates whose `step` is greater than `step`, oldest first."""
        return [facts for facts in self._kept if facts["step"] > step]

    def back_to(self, step: int) -> None:
        """Forget those after `step`: the weights they led to are gone."""
        while self._kept and self._kept[-1]["step"] > step:
            self._kept.pop()

    def clear(self) -> None:
        """Forget them: the weights they led to are gone."""
        self._kept.clear()


class TokenDrift:
    """Earlier answers that came back in other tokens than were drawn, since the last update."""

    def __init__(self) -> None:
        self._repaired = self._left = 0

    def note(self, count: int, *, repaired: bool) -> None:
        """Count those of one prompt."""
        if repaired:
            self._repaired += count
        else:
            self._left += count

    def take(self) -> dict[str, int]:
        """The counts, which begin at 0 again."""
        taken = {"drift_repaired": self._repaired, "drift_left": self._left}
        self._repaired = self._left = 0
        return taken


def replace_nonfinite(value: Any) -> Any:
    """`value` as JSON can carry it: numbers that are not finite become null."""
    if isinstance(value, Mapping):
        return {str(key): replace_nonfinite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [replace_nonfinite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
