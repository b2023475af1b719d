"""What limits the calls of a judge: failures in a row, and the cost of a run."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import msgspec

from core.events import Event, JudgeSpent
from proxy.rewards.part import PartAbstained

EVERY = 1.0
"""Minimum seconds between two events of one judge."""


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
        self._until = 0.0
        """Time on the loop's clock at which an open breaker is tested."""
        self._test = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def admission(self) -> AsyncIterator[bool]:
        """Wait for permission to send a question; yield whether it tests the open breaker.

        Raises:
            PartAbstained: the breaker is open.
        """
        if self.trouble:
            async with self._test:  # one question tests the open breaker, the others wait for it
                if self.trouble:
                    remaining = self._until - asyncio.get_running_loop().time()
                    if remaining > 0:
                        raise PartAbstained(
                            f"{self.trouble}; the next attempt is in {remaining:.0f} s"
                        )
                    yield True
                    return
        yield False

    def record_success(self) -> None:
        """Record a usable reply; close the breaker."""
        was_open = bool(self.trouble)
        self._failures, self.trouble = 0, ""
        if was_open:
            self._on_change()

    def record_failure(self, cause: str, is_test: bool = False) -> None:
        """Record a failed call or an unusable reply; open the breaker after too many."""
        self._failures += 1
        if self._failures < self._after or (self.trouble and not is_test):
            return
        self._until = asyncio.get_running_loop().time() + self._seconds
        times = "" if self._failures == 1 else f" {self._failures} times in a row"
        self.trouble = f"the judge failed{times}: {cause}"
        self._on_change()


class SpendCounter:
    """The counts and cost of one judge, published at most once a second.

    Attributes:
        now: The counts.
        publish: Publishes them; None while there is no bus.
    """

    def __init__(self, name: str, publish: Callable[[Event], object] | None = None) -> None:
        self.now = JudgeSpent(judge=name)
        self.publish = publish
        self._published_at = -EVERY
        self._timer: asyncio.TimerHandle | None = None

    def add(self, **counts: float) -> None:
        """Add to counts; the names are fields of `JudgeSpent`."""
        self.change(**{name: getattr(self.now, name) + count for name, count in counts.items()})

    def change(self, **facts: object) -> None:
        """Set fields, and publish the counts soon if that changes any."""
        changed = msgspec.structs.replace(self.now, **facts)
        if changed == self.now:
            return
        self.now = changed
        if self._timer is not None or self.publish is None:
            return
        loop = asyncio.get_running_loop()
        wait = self._published_at + EVERY - loop.time()
        if wait <= 0:
            self._publish_now()
        else:
            self._timer = loop.call_later(wait, self._publish_now)

    def over(self, limit: float | None) -> str:
        """Return why no further call may be made; empty while the limit of the cost allows one."""
        if limit is None or self.now.cost < limit:
            return ""
        return f"the judge has spent {self.now.cost:.2f} of the {limit:.2f} it may spend in a run"

    def flush(self) -> None:
        """Publish changes that are not published yet."""
        if self._timer is not None:
            self._publish_now()

    def _publish_now(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.publish is not None:
            self._published_at = asyncio.get_running_loop().time()
            # a copy, because publishing adds the time to the event
            self.publish(msgspec.structs.replace(self.now))
