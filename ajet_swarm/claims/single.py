"""Claiming episodes one by one, from many threads at once.

Claims are sent concurrently. While no episode is free, only one caller sends claims and the others
queue, so that a full server gets a few requests per second from any number of callers.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any

from ajet_swarm.api.interface import SwarmApi
from ajet_swarm.api.outcomes import Claimed, ClaimRefused, RefusedKind
from ajet_swarm.api.watcher import Watcher
from ajet_swarm.claims.releases import EpisodeReleaser
from ajet_swarm.protocol.errors import SwarmError

WIDEST = 64
"""Maximum number of concurrent claims."""
START = 8
"""Number of concurrent claims at first, and when the engine begins to roll."""


class AdaptiveConcurrency:
    """Limit of the number of concurrent claims; it grows by one with each granted episode."""

    def __init__(self) -> None:
        self._limit = START
        self._running = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        if not self._waiting and self._running < self._limit:
            self._running += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # admitted at the same moment
                self._running -= 1
                self._admit()
            else:
                self._waiting.remove(place)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._running -= 1
        self._admit()

    def widen(self) -> None:
        """Raise the limit: an episode was free."""
        self._limit = min(self._limit + 1, WIDEST)

    def narrow(self) -> None:
        """Set the limit to one, since no episode was free."""
        self._limit = 1

    def reopen(self) -> None:
        """Raise the limit to at least `START`: the engine begins to roll, and many are free."""
        self._limit = max(self._limit, START)
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._running < self._limit:
            place = self._waiting.popleft()
            if not place.done():
                self._running += 1
                place.set_result(None)


class EpisodeClaimer:
    """Claims single episodes of one server, concurrently.

    Args:
        client: The server.
        watcher: Its watcher; `run` must be running.
        known: Returns the uuids for which the caller is responsible.

    Attributes:
        releaser: Gives episodes back.
        concurrency: Limit of the concurrent claims; the caller enters it for each claim.
    """

    def __init__(
        self,
        client: SwarmApi,
        watcher: Watcher,
        *,
        known: Callable[[], set[str]],
    ) -> None:
        self._client = client
        self.releaser = EpisodeReleaser(client, watcher, known=known)
        self.concurrency = AdaptiveConcurrency()
        self._closed = False

    async def close(self) -> None:
        """Refuse further claims, and wait for the claims in flight."""
        self._closed = True
        async with self.releaser.lock:
            pass

    async def claim_one(
        self,
        episode_type: str,
        discard_timeout: float,
        policy: Mapping[str, Any] | None,
        on_claimed: Callable[[Claimed], None],
        on_dropped: Callable[[Claimed], None],
    ) -> Claimed | ClaimRefused:
        """Send one claim; when cancelled, give back the episode that it may get.

        Args:
            episode_type: `train` or `eval`.
            discard_timeout: Idle seconds after which the server takes the episode back.
            policy: Throttle policy of the episode's task, or None.
            on_claimed: Called as soon as the claim is granted.
            on_dropped: Called after the episode was given back because the caller left. Another
                claim may have got the same uuid by then.

        Raises:
            SwarmError: `close` was called.
        """
        if self._closed:
            raise self._closed_error()
        work = self.releaser.tasks.spawn(
            self._claim_shared(episode_type, discard_timeout, policy, on_claimed), "claim one"
        )
        try:
            answer: Claimed | ClaimRefused | None = await asyncio.shield(work)
        except asyncio.CancelledError:
            self.releaser.tasks.spawn(self._return_unwanted(work, on_dropped), "unwanted claim")
            raise
        if answer is None:
            raise self._closed_error()
        return answer

    def _closed_error(self) -> SwarmError:
        return SwarmError("this client is closed", self._client.name)

    async def _claim_shared(
        self,
        episode_type: str,
        discard_timeout: float,
        policy: Mapping[str, Any] | None,
        on_claimed: Callable[[Claimed], None],
    ) -> Claimed | ClaimRefused | None:
        """Send one claim; return None after `close`.

        An exception would be logged as the failure of a background task.
        """
        async with self.releaser.lock.shared():
            if self._closed:
                return None
            answer = await self._client.claim(
                episode_type,
                discard_timeout,
                timeout=self.releaser.timeout,
                throttle_policy=policy,
            )
            if isinstance(answer, Claimed):
                self.releaser.claimed(answer.episode_uuid)
                on_claimed(answer)
            elif answer.kind is RefusedKind.UNKNOWN:
                self.releaser.sweep_soon()
        return answer

    async def _return_unwanted(
        self,
        work: Awaitable[Claimed | ClaimRefused | None],
        on_dropped: Callable[[Claimed], None],
    ) -> None:
        answer = await work
        if isinstance(answer, Claimed):
            await self.releaser.give_back([answer.episode_uuid], "its caller left")
            on_dropped(answer)
