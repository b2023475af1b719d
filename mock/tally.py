"""Counters of a run of the mock user."""

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

_WINDOW = 50
"""Number of answers over which the rate is measured."""
_MIN_ROWS = 50
"""Rows after which the share of selected rows so far is used to estimate the total."""


@dataclass(slots=True)
class RunCounters:
    """Counters of one start."""

    already: int = 0
    """Rows that earlier starts have finished."""
    expected: float = 1.0
    """Expected share of selected rows, before any row was read."""
    rows: int | None = None
    """Rows of the dataset times passes; None while they are being counted."""
    passed: int = 0
    """Rows of the dataset that were read."""
    selected: int = 0
    """Selected rows among them; a row of weight 3 counts three times."""
    skipped: int = 0
    done: int = 0
    failed: int = 0
    retries: int = 0
    """Requests that were sent again because the target was busy or unreachable."""
    unmatched: int = 0
    """Answered rows for which the proxy saw no matching request."""
    waiting: str = ""
    """Why no answers arrive at the moment; empty otherwise."""
    phase: str = "running"
    errors: Counter[str] = field(default_factory=Counter)
    clock: Callable[[], float] = time.monotonic
    _times: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        self._began = self.clock()

    def add(self, error: str) -> None:
        """Count a finished row."""
        self.done += 1
        self.waiting = ""
        self._times.append(self.clock())
        if error:
            self.failed += 1
            if error in self.errors or len(self.errors) < 100:
                self.errors[error] += 1

    def retry(self, why: str) -> None:
        """Count a request that will be sent again.

        Args:
            why: What was answered in place of an answer.
        """
        self.retries += 1
        self.waiting = why

    @property
    def answered(self) -> int:
        return self.done - self.failed

    @property
    def total(self) -> int | None:
        """Number of rows to ask over all passes; an estimate until all rows were read."""
        if self.rows is None:
            return None
        rest = max(0, self.rows - self.passed)
        ratio = self.selected / self.passed if self.passed >= _MIN_ROWS else self.expected
        return max(self.selected + round(rest * ratio), self.already + self.done)

    @property
    def left(self) -> int:
        return max(0, (self.total or 0) - self.already - self.done)

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return self.clock() - self._began

    @property
    def rate(self) -> float | None:
        """Rows per second over the latest answers; None before the first."""
        if not self._times:
            return None
        if len(self._times) < _WINDOW:
            since, count = self._began, len(self._times)
        else:
            since, count = self._times[0], len(self._times) - 1
        return count / max(self.clock() - since, 1e-6)

    @property
    def eta(self) -> float | None:
        """Remaining seconds at that rate; None when unknown."""
        rate = self.rate
        return self.left / rate if rate and self.rows is not None else None

    def line(self) -> str:
        """Return all counters as one line of text."""
        done = self.already + self.done
        total = "?" if self.total is None else self.total
        parts = [f"{done}/{total} rows", f"{self.answered} answered", f"{self.failed} failed"]
        if self.retries:
            parts.append(retries_text(self.retries))
        if self.skipped:
            parts.append(f"{self.skipped} skipped")
        if self.unmatched:
            parts.append(f"{self.unmatched} unmatched")
        if (rate := self.rate) is not None:
            parts.append(f"{rate:.2f}/s")
        if self.phase != "running":
            parts.append(self.phase)
        elif (eta := self.eta) is not None:
            parts.append(f"{duration_text(eta)} to go")
        if self.waiting:
            parts.append(self.waiting)
        return " · ".join(parts)


def retries_text(count: int) -> str:
    """Return `1 retry` or `2 retries`."""
    return "1 retry" if count == 1 else f"{count} retries"


def duration_text(seconds: float) -> str:
    """Return seconds as `1:15` or `1:01:15`."""
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, rest = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
