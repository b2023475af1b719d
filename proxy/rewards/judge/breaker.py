"""Stops asking a judge that fails and fails, and tries it again with one question."""

import asyncio
import time
from collections.abc import Callable


class BreakerOpen(Exception):
    """Nothing is asked just now; the text says why and how long."""


class Breaker:
    """Opens after some failures in a row; after a while one question goes through.

    Args:
        after: Failures in a row.
        seconds: How long it stays open.
        changed: Called when it opens and when it closes.
        clock: Seconds that only grow.
    """

    def __init__(
        self,
        after: int,
        seconds: float,
        changed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._after = after
        self._seconds = seconds
        self._changed = changed
        self._clock = clock
        self._failures = 0
        self._trouble = ""
        self._opened: float | None = None
        self._probe: asyncio.Event | None = None

    @property
    def trouble(self) -> str:
        """Why nothing is asked; empty while it is closed."""
        return self._trouble

    async def admit(self) -> bool:
        """Wait for leave to ask.

        Returns:
            Whether the question is the one that tries an open breaker; then `worked`, `failed` or
            `release` must follow.

        Raises:
            BreakerOpen: it is open.
        """
        while self._opened is not None:
            if self._probe is not None:
                await self._probe.wait()
                continue
            left = self._opened + self._seconds - self._clock()
            if left > 0:
                raise BreakerOpen(f"{self.trouble}; it is asked again in {left:.0f} s")
            self._probe = asyncio.Event()
            return True
        return False

    def check(self) -> None:
        """Raises:
        BreakerOpen: it has opened meanwhile.
        """
        if self._opened is not None and self._probe is None:
            raise BreakerOpen(self.trouble)

    def worked(self) -> None:
        """A question was answered as it should be."""
        was = self._opened
        self._failures, self._opened, self._trouble = 0, None, ""
        self.release()
        if was is not None:
            self._changed()

    def failed(self, cause: str, probe: bool = False) -> None:
        """A call or its reply was of no use."""
        self._failures += 1
        if self._failures < self._after or (self._opened is not None and not probe):
            return
        self._opened = self._clock()
        times = "" if self._failures == 1 else f" {self._failures} times in a row"
        self._trouble = f"the judge failed{times}: {cause}"
        if probe:
            self.release()
        self._changed()

    def release(self) -> None:
        """The question that tried is over; the next one may try."""
        if self._probe is not None:
            self._probe.set()
            self._probe = None
