"""Claims that are sent together in one turn, for several groups of the queue."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from ajet_swarm.api.outcomes import Claimed, ClaimRefused, RefusedKind
from ajet_swarm.claims.queue import TurnQueue
from ajet_swarm.claims.releases import EpisodeReleaser
from ajet_swarm.claims.request import ClaimRequest
from ajet_swarm.common.tasks import run_all
from ajet_swarm.protocol.errors import SwarmError

log = logging.getLogger(__name__)

MOST = 8
"""Maximum number of groups whose episodes are claimed in one turn. With a distant server, 64
simultaneous groups are then served after a dozen round trips instead of 64."""

FAILED = ClaimRefused(RefusedKind.OTHER, "it failed")


class SharedBatch:
    """Assigns the answers of claims that are sent together to requests.

    A granted episode goes to the first incomplete request, so that two requests never hold parts at
    the same time.

    Args:
        requests: Requests in the order of the queue; the first one has the turn.
        took: Called with each episode and its request.
        refused: Called with each refusal.
    """

    __slots__ = ("_refused", "_took", "claims", "left", "requests", "stop")

    def __init__(
        self,
        requests: Sequence[ClaimRequest],
        *,
        took: Callable[[ClaimRequest, Claimed], None],
        refused: Callable[[ClaimRefused], None],
    ) -> None:
        self.requests = requests
        self._took = took
        self._refused = refused
        active = [request for request in requests if not request.stopped()]
        self.claims = sum(request.n - request.granted for request in active)
        """Number of claims."""
        self.left = self.claims
        """Number of unanswered claims."""
        self.stop: ClaimRefused | None = None
        """Why some requests stay incomplete; None while no claim was refused."""

    def answered(self, answer: Claimed | ClaimRefused) -> ClaimRequest | None:
        """Assign the answer of one claim.

        Returns:
            The request that this answer completed, or None.
        """
        self.left -= 1
        completed: ClaimRequest | None = None
        if isinstance(answer, Claimed):
            request = self._first_incomplete() or self._stopped_receiver()
            self._took(request, answer)
            if request.granted >= request.n and request.complete:
                completed = request
        else:
            self._refused(answer)
            self.stop = self.stop or answer
            if answer.kind is not RefusedKind.NONE_AVAILABLE:
                self.stop_all(answer)
        if self.stop is not None:
            self._stop_when_too_few()
        return completed

    def broken(self, error: Exception) -> None:
        """Record a claim that failed unexpectedly: the first incomplete request fails."""
        self.left -= 1
        self.stop = self.stop or FAILED
        if (request := self._first_incomplete()) is not None:
            request.error, request.stop = error, self.stop
        self._stop_when_too_few()

    def stop_all(self, why: ClaimRefused) -> None:
        """Stop all incomplete requests."""
        self.stop = self.stop or why
        for request in self.requests:
            if not (request.complete or request.stopped()):
                request.stop = why

    def fail_others(self, error: Exception) -> None:
        """Stop all requests and fail all but the first; no further answer is read."""
        self.stop_all(FAILED)
        for request in self.requests[1:]:
            if not request.complete:
                request.error = request.error or error

    @property
    def is_incomplete(self) -> bool:
        """Whether a request still needs an episode."""
        return self._first_incomplete() is not None

    def to_return(self) -> list[ClaimRequest]:
        """Return the stopped requests that hold episodes."""
        return [request for request in self.requests if request.stop is not None and request.held]

    def _first_incomplete(self) -> ClaimRequest | None:
        for request in self.requests:
            if request.granted < request.n and request.stop is None:
                return request
        return None

    def _stopped_receiver(self) -> ClaimRequest:
        """Return a stopped request, which gives back an episode that no request needs."""
        return next(request for request in self.requests if request.granted < request.n)

    def _stop_when_too_few(self) -> None:
        """Stop all if the unanswered claims are too few for the first incomplete request."""
        if self.stop is None or (request := self._first_incomplete()) is None:
            return
        if request.n - request.granted > self.left:
            self.stop_all(self.stop)


class BatchInFlight:
    """Sends the claims of a batch and reads their answers; continues when a caller leaves.

    Args:
        batch: The batch, which assigns the answers.
        claim: Sends one claim.
        queue: Queue of the requests that share the turn.
        releaser: Gives back the episodes of stopped requests.
        finished: Called when all claims are answered and all returned episodes are confirmed.

    Attributes:
        served: Done when the first request is complete, otherwise after `finished`.
    """

    def __init__(
        self,
        batch: SharedBatch,
        *,
        claim: Callable[[], Awaitable[Claimed | ClaimRefused]],
        queue: TurnQueue,
        releaser: EpisodeReleaser,
        finished: Callable[[], None],
    ) -> None:
        self.batch = batch
        self.served: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._claim = claim
        self._queue = queue
        self._releaser = releaser
        self._finished = finished
        self._releases: list[asyncio.Task[None]] = []

    def begin(self) -> "asyncio.Task[None]":
        """Send the claims; return the task that reads their answers."""
        task = self._releaser.tasks.spawn(self._run(), "claims")
        task.add_done_callback(self._ended)
        return task

    def stop(self, why: ClaimRefused) -> None:
        """Stop all incomplete requests and give back what they hold."""
        self.batch.stop_all(why)
        self._return_held()

    async def _run(self) -> None:
        await run_all(*(self._claim_one() for _ in range(self.batch.left)))
        while self._releases:
            await asyncio.wait([self._releases.pop()])  # its episodes are swept if it fails

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled():
            self.batch.fail_others(SwarmError("claims were given up: the client was closed"))
        try:
            self._finished()
        finally:
            if not self.served.done():
                self.served.set_result(None)

    async def _claim_one(self) -> None:
        if not self.batch.is_incomplete:
            self.batch.left -= 1
            return
        try:
            answer = await self._claim()
        except Exception as error:  # one claim may not end the others, or the lock is kept
            log.exception("a claim failed unexpectedly")
            self.batch.broken(error)
        else:
            self._answered(answer)
        self._return_held()

    def _answered(self, answer: Claimed | ClaimRefused) -> None:
        """Assign an answer, and wake the request that it completes."""
        completed = self.batch.answered(answer)
        if completed is self.batch.requests[0]:
            if self.batch.left and not self.served.done():
                self.served.set_result(None)
        elif completed is not None:
            self._queue.serve(completed)

    def _return_held(self) -> None:
        for request in self.batch.to_return():
            if (work := self._releaser.return_held(request)) is not None:
                self._releases.append(work)
