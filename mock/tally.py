"""How far a run of the mock user is, in numbers."""

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

_WINDOW = 50
"""Answers the rate is measured over."""


@dataclass(slots=True)
class Tally:
    """Counts of one start."""

    total: int
    """Rows to ask in all, over all passes."""
    already: int = 0
    """Rows that earlier starts have done."""
    skipped: int = 0
    done: int = 0
    failed: int = 0
    waiting: str = ""
    """Why nothing comes back just now; empty otherwise."""
    phase: str = "running"
    errors: Counter[str] = field(default_factory=Counter)
    clock: Callable[[], float] = time.monotonic
    _times: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        self._began = self.clock()

    def add(self, error: str) -> None:
        """One row is done."""
        self.done += 1
        self.waiting = ""
        self._times.append(self.clock())
        if error:
            self.failed += 1
            if error in self.errors or len(self.errors) < 100:
                self.errors[error] += 1

    @property
    def answered(self) -> int:
        return self.done - self.failed

    @property
    def left(self) -> int:
        return max(0, self.total - self.already - self.done)

    @property
    def seconds(self) -> float:
        """Since the start."""
        return self.clock() - self._began

    @property
    def rate(self) -> float | None:
        """Rows a second over the latest answers; None before the first."""
        if not self._times:
            return None
        if len(self._times) < _WINDOW:
            since, count = self._began, len(self._times)
        else:
            since, count = self._times[0], len(self._times) - 1
        return count / max(self.clock() - since, 1e-6)

    @property
    def eta(self) -> float | None:
        """Seconds to go at that rate; None when it is not known."""
        rate = self.rate
        return self.left / rate if rate else None

    def line(self) -> str:
        """All of it on one line, for people."""
        done = self.already + self.done
        parts = [f"{done}/{self.total} rows", f"{self.answered} answered", f"{self.failed} failed"]
        if self.skipped:
            parts.append(f"{self.skipped} skipped")
        if (rate := self.rate) is not None:
            parts.append(f"{rate:.2f}/s")
        if self.phase != "running":
            parts.append(self.phase)
        elif (eta := self.eta) is not None:
            parts.append(f"{clock_text(eta)} to go")
        if self.waiting:
            parts.append(self.waiting)
        return " · ".join(parts)


def clock_text(seconds: float) -> str:
    """`75.0` as `1:15`."""
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, rest = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
