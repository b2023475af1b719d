"""One attempt to claim a group's episodes: a probe first, all at once, or one by one."""

import asyncio
import logging
from collections.abc import Callable
from functools import cached_property, partial

from ajet_swarm.api.interface import SwarmApi
from ajet_swarm.api.outcomes import Claimed, ClaimRefused, RefusedKind
from ajet_swarm.api.watcher import ServerStatus, Watcher
from ajet_swarm.claims.queue import TurnQueue
from ajet_swarm.claims.releases import EpisodeReleaser
from ajet_swarm.claims.request import ClaimRequest
from ajet_swarm.claims.shared_batch import MOST, BatchInFlight, SharedBatch
from ajet_swarm.protocol.schemas import EngineState
from ajet_swarm.runtime import Chance

log = logging.getLogger(__name__)

PACE = (0.003, 0.01)
"""Seconds between two claims of a group that gathers."""


class ClaimAttempts:
    """Sends the claims of one server's groups, one attempt at a time.

    Args:
        client: The server.
        watcher: Its watcher.
        releaser: Gives back the episodes of a failed attempt.
        queue: Queue whose next requests share a turn while all claims are granted.
        end_turn: Ends the turn of a request, if it has the turn.
        chance: Source of the pauses.
    """

    def __init__(
        self,
        client: SwarmApi,
        watcher: Watcher,
        releaser: EpisodeReleaser,
        queue: TurnQueue,
        *,
        end_turn: Callable[[ClaimRequest], None],
        chance: Chance,
    ) -> None:
        self._client = client
        self._watcher = watcher
        self._releaser = releaser
        self._queue = queue
        self._end_turn = end_turn
        self._chance = chance
        self.most_together = 1
        """Number of groups for which one turn may claim; it grows while all claims are granted and
        is 1 after a refusal."""

    @cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop; cached, since `asyncio.get_running_loop` costs a system call."""
        return asyncio.get_running_loop()

    async def run(
        self, request: ClaimRequest, *, probe: bool = False, window: float = 0.0
    ) -> ClaimRefused | None:
        """Try once to complete a request; when cancelled, give back everything.

        Returns only after all returned episodes are confirmed: the next attempt may get the same
        uuids.

        Args:
            request: The request that has the turn, or a refill.
            probe: Send one claim first, and the others after it is granted.
            window: Seconds in which the request gathers; 0 for all claims at once.

        Returns:
            The reason of the failure; None when the request is complete.
        """
        try:
            if probe or window:
                claims = self._gather(request, window) if window else self._probe(request)
                await asyncio.shield(self._releaser.tasks.spawn(claims, "claim"))
            else:
                await self._releaser.lock.acquire()
                flight = self._in_flight(request)
                flight.begin()
                await flight.served
            if request.releases:
                await asyncio.wait(request.releases)
                request.releases.clear()
        except asyncio.CancelledError:
            request.cut = not request.stopped()
            self._releaser.stop_request(request, ClaimRefused(RefusedKind.OTHER, "cancelled"))
            raise
        if request.error is not None:
            self._releaser.stop_request(request, ClaimRefused(RefusedKind.OTHER, "it failed"))
            raise request.error
        return request.stop

    async def _probe(self, request: ClaimRequest) -> None:
        """Send one claim, and the others after it is granted."""
        await self._releaser.lock.acquire()
        unwatch = self._when_not_rolling(partial(self._stop_incomplete, request))
        try:
            await self._claim_one(request)
        except BaseException:
            self._releaser.lock.release()
            raise
        finally:
            unwatch()
        await asyncio.wait([self._in_flight(request).begin()])

    def _in_flight(self, request: ClaimRequest) -> BatchInFlight:
        """Return a batch of all missing claims; the lock must be held, and its end releases it.

        While all claims are granted, it also claims for the next groups in the queue. The turn of a
        group ends with the last of its own episodes.
        """
        sharing: list[ClaimRequest] = []
        if request.in_turn and not request.refused_before:
            sharing = self._queue.share(request, self.most_together - 1)
        batch = SharedBatch([request, *sharing], took=self._took, refused=self._refused)

        def finished() -> None:
            unwatch()
            self._releaser.lock.release()
            self._end_batch(batch)
            if not request.stopped():
                self._end_turn(request)

        flight = BatchInFlight(
            batch,
            claim=partial(self._claim, request),
            queue=self._queue,
            releaser=self._releaser,
            finished=finished,
        )
        unwatch = self._when_not_rolling(flight.stop)
        return flight

    def _end_batch(self, batch: SharedBatch) -> None:
        """Put incomplete requests back at the front of the queue."""
        if batch.stop is not None:
            self.most_together = 1
        elif batch.claims:
            self.most_together = min(2 * self.most_together, MOST)
        incomplete: list[ClaimRequest] = []
        for request in filter(self._queue.waits, batch.requests[1:]):
            if request.error is not None:
                self._queue.serve(request)
            else:
                request.end_attempt()
                request.begin_attempt()
                incomplete.append(request)
        self._queue.put_back(incomplete)

    async def _gather(self, request: ClaimRequest, seconds: float) -> None:
        """Collect episodes as they become free; give all back if the group stays incomplete.

        Without it, another client whose workers take each free episode at once would never leave
        enough of them at the same time.

        Args:
            request: The request.
            seconds: Length of the window.
        """
        end = ClaimRefused(RefusedKind.NONE_AVAILABLE, "not enough became free")
        alarm = self.loop.call_later(seconds, self._releaser.stop_request, request, end)
        unwatch = self._when_not_rolling(partial(self._stop_incomplete, request))
        request.gathers, self._releaser.gathering = True, request
        try:
            with self._watcher.eager():
                while request.granted < request.n and not request.stopped():
                    before = request.granted
                    async with self._releaser.lock:
                        await self._claim_one(request)
                    if request.granted == before:
                        await asyncio.sleep(self._chance.uniform(*PACE))
        finally:
            alarm.cancel()
            unwatch()
            request.gathers, self._releaser.gathering = False, None

    async def _claim_one(self, request: ClaimRequest) -> None:
        if request.stopped():
            return
        answer = await self._claim(request)
        if isinstance(answer, Claimed):
            self._took(request, answer)
        else:
            self._refused(answer)
            self.most_together = 1
            none_free = answer.kind is RefusedKind.NONE_AVAILABLE
            if not (request.stopped() or (request.gathers and none_free)):
                request.stop = answer
        if request.stopped() and (work := self._releaser.return_held(request)) is not None:
            await work

    async def _claim(self, request: ClaimRequest) -> Claimed | ClaimRefused:
        return await self._client.claim(
            request.episode_type, request.discard_timeout, timeout=self._releaser.timeout
        )

    def _took(self, request: ClaimRequest, claimed: Claimed) -> None:
        request.granted += 1
        request.held.append(claimed)
        self._releaser.claimed(claimed.episode_uuid)
        if request.on_claimed is None:
            return
        try:
            request.on_claimed(claimed.episode_uuid)
        except Exception as error:  # even after an error of the caller, no claim may be leaked
            log.exception("a claim could not be recorded")
            request.error = error
            request.stop = ClaimRefused(RefusedKind.OTHER, "the claim could not be recorded")

    def _refused(self, refused: ClaimRefused) -> None:
        if refused.kind is RefusedKind.UNKNOWN:
            self._releaser.sweep_soon()

    def _when_not_rolling(self, stop: Callable[[ClaimRefused], None]) -> Callable[[], None]:
        """Call `stop` when the engine leaves ROLLING: the other claims would be refused.

        Returns:
            A function that removes the listener.
        """

        def on_change(seen: ServerStatus) -> None:
            if seen.reachable and seen.state is not EngineState.ROLLING:
                stop(ClaimRefused(RefusedKind.NOT_ROLLING, seen.raw))

        return self._watcher.add_listener(on_change)

    def _stop_incomplete(self, request: ClaimRequest, why: ClaimRefused) -> None:
        if request.granted < request.n and not request.stopped():
            self._releaser.stop_request(request, why)
