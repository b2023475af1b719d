"""Help for clients that poll the engine's state.

AgentJet's client polls the state every 0.33 to 1 s. After it agreed to a sync it checks every 5 s
whether its last reading was ROLLING_POST or WEIGHT_SYNCING. On a real server an update takes
minutes, here a tenth of a second: the client would miss it, and a client that agreed would wait
forever. Also, it sleeps for 15 s when a claim is refused between two batches, which here would be
most of a run's time.

This program's own client gets no such help: it reads the figures of every update, and a waiting
claim would prevent it from returning the part of a group that it holds.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from engine.server.job import ALL_AGREE, ANY_AGREES, Job

MIN_SYNC_SECONDS = 1.2
"""Slightly more than the slow poll interval of AgentJet's client."""
MIN_AGREED_SYNC_SECONDS = 5.6
"""Its check interval after an agreement, 5 s, plus one fast poll."""
CLAIM_PATIENCE = 8.0
"""How long a claim waits for the next batch, in seconds."""

_OWN_AGENT = "ajet-console"
_RECENT_SECONDS = 2.5


class PollAid:
    """Detector of polling clients of other programs, and the delays they need.

    Args:
        clock: Monotonic seconds.
        enabled: False helps no client.
    """

    def __init__(self, clock: Callable[[], float], *, enabled: bool) -> None:
        self._clock, self._enabled = clock, enabled
        self._last_poll: float | None = None
        self._batch_open = asyncio.Event()
        self._batch_open.set()

    def note_poll(self, agent: str) -> None:
        """Record that a client with this User-Agent requested the state."""
        if self._helps(agent):
            self._last_poll = self._clock()

    def sync_seconds(self, job: Job) -> float:
        """Return how long a sync that starts now has to last; 0 when no client polls."""
        if self._last_poll is None or self._clock() - self._last_poll > _RECENT_SECONDS:
            return 0.0
        agreed = job.method in (ANY_AGREES, ALL_AGREE)
        return MIN_AGREED_SYNC_SECONDS if agreed else MIN_SYNC_SECONDS

    def set_between_batches(self, between_batches: bool) -> None:
        """Set whether the engine is between two batches."""
        if between_batches:
            self._batch_open.clear()
        else:
            self._batch_open.set()

    async def wait_for_batch(self, agent: str) -> None:
        """Between two batches, wait for the next one, at most `CLAIM_PATIENCE`."""
        if self._helps(agent):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._batch_open.wait(), CLAIM_PATIENCE)

    def _helps(self, agent: str) -> bool:
        return self._enabled and not agent.startswith(_OWN_AGENT)
