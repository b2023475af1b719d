"""What all judges of a process share: what each has spent, and the policy's own server.

What was spent is the process's, not one part's: a judge that is made anew because a file was saved
goes on counting where the one before it stopped.
"""

import asyncio
import time
from collections.abc import Callable

import msgspec

from core.events import Event, JudgeSpent
from core.settings import UpstreamSettings
from proxy.http.observe_http import addresses, key_of

EVERY = 1.0
"""Seconds between two events of one judge."""

Publish = Callable[[Event], object]


class OwnServer(msgspec.Struct, frozen=True):
    """The server that the policy's answers come from, where it can be asked directly."""

    url: str
    """Base URL, with `/v1`."""
    key: str = ""
    model: str = ""


def own_server(upstream: UpstreamSettings) -> OwnServer | None:
    """The upstream of observe mode as a judge's endpoint; None without one.

    Raises:
        UpstreamError: its address or its key cannot be used.
    """
    if not upstream.url:
        return None
    return OwnServer(addresses(upstream.url)[0], key_of(upstream), upstream.model)


class SpendCounter:
    """What one judge was asked and what it cost; told at most once a second.

    Attributes:
        now: The counts.
        publish: Gets them; None while nobody wants them.
    """

    def __init__(self, name: str, publish: Publish | None = None) -> None:
        self.now = JudgeSpent(judge=name)
        self.publish = publish
        self._told = -EVERY
        self._alarm: asyncio.TimerHandle | None = None

    def add(self, **more: int) -> None:
        """Count more; the names are fields of `JudgeSpent`."""
        self.change(**{name: getattr(self.now, name) + count for name, count in more.items()})

    def pay(self, tokens: tuple[int, int] | None, cost: float, seconds: float) -> None:
        """An answered call.

        Args:
            tokens: Of the prompt and of the reply; None when the endpoint does not tell.
            cost: By the prices; 0 when they are not known.
            seconds: How long it took.
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
        """Set fields, and tell of it soon."""
        self.now = msgspec.structs.replace(self.now, **facts)
        if self._alarm is not None or self.publish is None:
            return
        wait = self._told + EVERY - time.monotonic()
        if wait <= 0:
            self._tell()
        else:
            self._alarm = asyncio.get_running_loop().call_later(wait, self._tell)

    def flush(self) -> None:
        """Publish what is not told yet."""
        if self._alarm is not None:
            self._tell()

    def _tell(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self.publish is not None:
            self._told = time.monotonic()
            # a fresh record: who publishes stamps it
            self.publish(msgspec.structs.replace(self.now))


class JudgeBudgets:
    """See the module's docstring.

    Attributes:
        own: What `url: own` stands for; None when there is no such server.
    """

    def __init__(self) -> None:
        self.own: OwnServer | None = None
        self._tallies: dict[str, SpendCounter] = {}

    def tally(self, name: str, publish: Publish | None = None) -> SpendCounter:
        """The counts of the judge `name`; another `publish` than before begins a new run."""
        found = self._tallies.get(name)
        fresh = found is None or (publish and found.publish and found.publish != publish)
        if found is None or fresh:
            found = self._tallies[name] = SpendCounter(name)
        found.publish = publish or found.publish
        return found


JUDGE_BUDGETS = JudgeBudgets()
"""That of this process."""
