"""Help for clients that learn of the engine's state by asking for it.

AgentJet's client reads the state every 0.33 to 1 s. After it agreed to a sync it looks every 5 s at
what it read last, until that is ROLLING_POST or WEIGHT_SYNCING. There an update takes minutes, here
a tenth of a second: the client would miss it, and one that agreed would wait for ever. It sleeps
for 15 s when a claim is refused between two batches, here that would be most of a run's time.

This program's own client gets no such help. It reads the figures of every update, and a claim that
waits would keep it from giving back the part of a group that it holds.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from engine.server.job import ALL_AGREE, ANY_AGREES, Job

SHOWN_SECONDS = 1.2
"""A little more than the slow poll of AgentJet's client."""
SHOWN_TO_AGREED_SECONDS = 5.6
"""Its 5 s after an agreement, and one fast poll."""
CLAIM_PATIENCE = 8.0
"""Seconds that a claim waits for the next batch."""

_OWN_AGENT = "ajet-console"
_RECENT_SECONDS = 2.5


class PollAid:
    """Knows whether a client of another program looks, and what it needs.

    Args:
        clock: Monotonic seconds.
        helped: Off, nobody is helped.
    """

    def __init__(self, clock: Callable[[], float], *, helped: bool) -> None:
        self._clock, self._helped = clock, helped
        self._asked: float | None = None
        self._open = asyncio.Event()
        self._open.set()

    def asked(self, agent: str) -> None:
        """Somebody with this User-Agent asked for the state."""
        if self._helps(agent):
            self._asked = self._clock()

    def shown(self, job: Job) -> float:
        """Seconds that a sync which begins now has to last; 0 when nobody looks."""
        if self._asked is None or self._clock() - self._asked > _RECENT_SECONDS:
            return 0.0
        agreed = job.method in (ANY_AGREES, ALL_AGREE)
        return SHOWN_TO_AGREED_SECONDS if agreed else SHOWN_SECONDS

    def closed(self, closed: bool) -> None:
        """Whether the engine is between two batches."""
        if closed:
            self._open.clear()
        else:
            self._open.set()

    async def next_batch(self, agent: str) -> None:
        """Between two batches: wait for the next one, when it is not long in coming."""
        if self._helps(agent):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._open.wait(), CLAIM_PATIENCE)

    def _helps(self, agent: str) -> bool:
        return self._helped and not agent.startswith(_OWN_AGENT)
