"""A circuit breaker: suspends requests to a judge that keeps failing, then tries one question."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from proxy.rewards.part import PartAbstained


class Breaker:
    """Opens after a number of failures in a row; after a while it lets one question through.

    Args:
        after: Number of failures in a row.
        seconds: How long it stays open.
        on_change: Called when it opens and when it closes.

    Attributes:
        trouble: Why requests are suspended; empty while they are not.
    """

    def __init__(self, after: int, seconds: float, on_change: Callable[[], None]) -> None:
        self._after = after
        self._seconds = seconds
        self._on_change = on_change
        self._failures = 0
        self.trouble = ""
        self._opened: float | None = None
        self._test: asyncio.Event | None = None
        """Set at the end of the question that tests the open breaker."""

    @contextlib.asynccontextmanager
    async def admission(self) -> AsyncIterator[bool]:
        """Wait for permission to send a question; yield whether it tests the open breaker.

        Raises:
            PartAbstained: the breaker is open.
        """
        while self._test is not None:
            await self._test.wait()
        if self._opened is None:
            yield False
            return
        remaining = self._opened + self._seconds - asyncio.get_running_loop().time()
        if remaining > 0:
            raise PartAbstained(f"{self.trouble}; the next attempt is in {remaining:.0f} s")
        self._test = asyncio.Event()
        try:
            yield True
        finally:
            self._end_test()

    def check(self) -> None:
        """Check that the breaker has not opened since the question was admitted.

        Raises:
            PartAbstained: it has.
        """
        if self._opened is not None and self._test is None:
            raise PartAbstained(self.trouble)

    def record_success(self) -> None:
        """Record a usable reply; close the breaker."""
        was_open = self._opened is not None
        self._failures, self._opened, self.trouble = 0, None, ""
        self._end_test()
        if was_open:
            self._on_change()

    def record_failure(self, cause: str, is_test: bool = False) -> None:
        """Record a failed call or an unusable reply; open the breaker after too many."""
        self._failures += 1
        if self._failures < self._after or (self._opened is not None and not is_test):
            return
        self._opened = asyncio.get_running_loop().time()
        times = "" if self._failures == 1 else f" {self._failures} times in a row"
        self.trouble = f"the judge failed{times}: {cause}"
        if is_test:
            self._end_test()
        self._on_change()

    def _end_test(self) -> None:
        """Let the waiting questions go on; the next one may test an open breaker."""
        if self._test is not None:
            self._test.set()
            self._test = None
