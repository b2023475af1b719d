"""What judges spend: the counts of each judge of a process.

Counts belong to the process, not to one part: a judge that is rebuilt because a file was saved
continues the counts of its predecessor.
"""

import asyncio
from collections.abc import Callable

import msgspec

from core.events import Event, JudgeSpent

EVERY = 1.0
"""Minimum seconds between two events of one judge."""

Publish = Callable[[Event], object]


class SpendCounter:
    """The counts and cost of one judge, published at most once a second.

    Attributes:
        now: The counts.
        publish: Publishes them; None while there is no bus.
    """

    def __init__(self, name: str, publish: Publish | None = None) -> None:
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


class JudgeBudgets:
    """The counts of all judges of a process."""

    def __init__(self) -> None:
        self._counters: dict[str, SpendCounter] = {}

    def counter(self, name: str, publish: Publish | None) -> SpendCounter:
        """Return the counts of the judge `name`; a different `publish` begins new counts."""
        counter = self._counters.get(name)
        replaced = counter is None or (publish and counter.publish and counter.publish != publish)
        if counter is None or replaced:
            counter = self._counters[name] = SpendCounter(name)
        counter.publish = publish or counter.publish
        return counter


JUDGE_BUDGETS = JudgeBudgets()
"""The counts of this process."""
