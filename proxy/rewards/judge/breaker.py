"""A circuit breaker: suspends requests to a judge that keeps failing, then tries one question."""

import asyncio
from collections.abc import Callable


class BreakerOpen(Exception):
    """Requests are suspended; the text gives the reason and for how long."""


class Breaker:
    """Opens after a number of failures in a row; after a while it lets one question through.

    Args:
        after: Number of failures in a row.
        seconds: How long it stays open.
        on_change: Called when it opens and when it closes.
    """

    def __init__(
        self,
        after: int,
        seconds: float,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._after = after
        self._seconds = seconds
        self._on_change = on_change
        self._failures = 0
        self._trouble = ""
        self._opened: float | None = None
        self._probe: asyncio.Event | None = None

    @property
    def trouble(self) -> str:
        """Why requests are suspended; empty while they are not."""
        return self._trouble

    async def admit(self) -> bool:
        """Wait for permission to send a question.

        Returns:
            Whether the question is the one that tests an open breaker; `record_success`,
            `record_failure` or `release` must follow then.

        Raises:
            BreakerOpen: the breaker is open.
        """
        while self._opened is not None:
            if self._probe is not None:
                await self._probe.wait()
                continue
            remaining = self._opened + self._seconds - asyncio.get_running_loop().time()
            if remaining > 0:
                raise BreakerOpen(f"{self.trouble}; the next attempt is in {remaining:.0f} s")
            self._probe = asyncio.Event()
            return True
        return False

    def check(self) -> None:
        """Raise if the breaker has opened since the question was admitted.

        Raises:
            BreakerOpen: it has.
        """
        if self._opened is not None and self._probe is None:
            raise BreakerOpen(self.trouble)

    def record_success(self) -> None:
        """Record a usable reply; close the breaker."""
        was_open = self._opened is not None
        self._failures, self._opened, self._trouble = 0, None, ""
        self.release()
        if was_open:
            self._on_change()

    def record_failure(self, cause: str, probe: bool = False) -> None:
        """Record a failed call or an unusable reply; open the breaker after too many."""
        self._failures += 1
        if self._failures < self._after or (self._opened is not None and not probe):
            return
        self._opened = asyncio.get_running_loop().time()
        times = "" if self._failures == 1 else f" {self._failures} times in a row"
        self._trouble = f"the judge failed{times}: {cause}"
        if probe:
            self.release()
        self._on_change()

    def release(self) -> None:
        """End the test of an open breaker; the next question may test it."""
        if self._probe is not None:
            self._probe.set()
            self._probe = None
