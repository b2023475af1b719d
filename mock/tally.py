"""How far a run of the mock user is, in numbers."""

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

_WINDOW = 50
"""Answers the rate is measured over."""
_ENOUGH = 50
"""Rows seen before what was kept of them says how it goes on."""


@dataclass(slots=True)
class Tally:
    """Counts of one start."""

    already: int = 0
    """Rows that earlier starts have done."""
    expected: float = 1.0
    """Share of the dataset's rows that will be asked, before any was seen."""
    rows: int | None = None
    """Rows of the dataset times passes; None while they are being counted."""
    passed: int = 0
    """Rows of the dataset whose turn has come."""
    kept: int = 0
    """Of those, the ones that are or were asked; one of weight 3 counts three times."""
    skipped: int = 0
    done: int = 0
    failed: int = 0
    unmatched: int = 0
    """Answered rows of which the proxy saw no request that it could tell."""
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
    def total(self) -> int | None:
        """Rows to ask in all, over all passes; an estimate until all were seen."""
        if self.rows is None:
            return None
        rest = max(0, self.rows - self.passed)
        ratio = self.kept / self.passed if self.passed >= _ENOUGH else self.expected
        return max(self.kept + round(rest * ratio), self.already + self.done)

    @property
    def left(self) -> int:
        return max(0, (self.total or 0) - self.already - self.done)

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
        return self.left / rate if rate and self.rows is not None else None

    def line(self) -> str:
        """All of it on one line, for people."""
        done = self.already + self.done
        total = "?" if self.total is None else self.total
        parts = [f"{done}/{total} rows", f"{self.answered} answered", f"{self.failed} failed"]
        if self.skipped:
            parts.append(f"{self.skipped} skipped")
        if self.unmatched:
            parts.append(f"{self.unmatched} unmatched")
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
