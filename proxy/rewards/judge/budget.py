"""State that all judges of a process share: their counts, and the policy's own server.

Counts belong to the process, not to one part: a judge that is rebuilt because a file was saved
continues the counts of its predecessor.
"""

import asyncio
from collections.abc import Callable

import msgspec

from core.events import Event, JudgeSpent
from core.settings import UpstreamSettings
from proxy.http.upstream_transport import addresses, key_of

EVERY = 1.0
"""Minimum seconds between two events of one judge."""

Publish = Callable[[Event], object]


class OwnServer(msgspec.Struct, frozen=True):
    """The server that the policy's answers come from, if it can be used directly."""

    url: str
    """Base URL, including `/v1`."""
    key: str = ""
    model: str = ""


def own_server(upstream: UpstreamSettings) -> OwnServer | None:
    """Return the upstream of observe mode as a judge's endpoint; None without an upstream.

    Raises:
        UpstreamError: its address or key is unusable.
    """
    if not upstream.url:
        return None
    return OwnServer(addresses(upstream.url)[0], key_of(upstream), upstream.model)


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

    def add(self, **counts: int) -> None:
        """Add to counts; the names are fields of `JudgeSpent`."""
        self.change(**{name: getattr(self.now, name) + count for name, count in counts.items()})

    def pay(self, tokens: tuple[int, int] | None, cost: float, seconds: float) -> None:
        """Add an answered call.

        Args:
            tokens: Of the prompt and of the reply; None when the endpoint does not report them.
            cost: By the configured prices; 0 when they are unknown.
            seconds: Duration of the call.
        """
        now = self.now
        prompt, completion = tokens or (0, 0)
        self.change(
            prompt_tokens=now.prompt_tokens + prompt,
            completion_tokens=now.completion_tokens + completion,
            untold=now.untold + (tokens is None),
            cost=now.cost + cost,
            seconds=now.seconds + seconds,
        )

    def change(self, **facts: object) -> None:
        """Set fields and publish the counts soon."""
        self.now = msgspec.structs.replace(self.now, **facts)
        if self._timer is not None or self.publish is None:
            return
        loop = asyncio.get_running_loop()
        wait = self._published_at + EVERY - loop.time()
        if wait <= 0:
            self._publish_now()
        else:
            self._timer = loop.call_later(wait, self._publish_now)

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
    """The counts of all judges of a process, and the policy's own server.

    Attributes:
        own: The server that `url: own` refers to; None when there is none.
    """

    def __init__(self) -> None:
        self.own: OwnServer | None = None
        self._counters: dict[str, SpendCounter] = {}

    def tally(self, name: str, publish: Publish | None = None) -> SpendCounter:
        """Return the counts of the judge `name`; a different `publish` begins new counts."""
        counter = self._counters.get(name)
        replaced = counter is None or (publish and counter.publish and counter.publish != publish)
        if counter is None or replaced:
            counter = self._counters[name] = SpendCounter(name)
        counter.publish = publish or counter.publish
        return counter


JUDGE_BUDGETS = JudgeBudgets()
"""The shared state of this process."""
