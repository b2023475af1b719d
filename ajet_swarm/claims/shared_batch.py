"""Claims that are sent together in one turn, for several groups of the queue."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from ajet_swarm.api.outcomes import Claimed, ClaimRefused, RefusedKind
from ajet_swarm.claims.queue import TurnQueue
from ajet_swarm.claims.releases import EpisodeReleaser
from ajet_swarm.claims.request import ClaimRequest
from ajet_swarm.http.interface import Response
from ajet_swarm.http.pending import PendingCall, listen_to
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

    def broken(self, error: Exception | None) -> None:
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
    """Reader of the answers of a batch, without a task; it continues when a caller leaves.

    Args:
        batch: The batch, which assigns the answers.
        queue: Queue of the requests that share the turn.
        releaser: Gives back the episodes of stopped requests.
        finished: Called when all claims are answered and all returned episodes are confirmed.
        served: Done when the first request is complete, otherwise after `finished`.
    """

    def __init__(
        self,
        batch: SharedBatch,
        *,
        queue: TurnQueue,
        releaser: EpisodeReleaser,
        finished: Callable[[], None],
        served: "asyncio.Future[None]",
    ) -> None:
        self.batch = batch
        self.served = served
        self._queue = queue
        self._releaser = releaser
        self._finished = finished
        self._calls: Sequence[PendingCall[Claimed | ClaimRefused]] = ()
        self._left = 0
        self._ended = False
        self._abandoned = False
        self._end: asyncio.Future[None] | None = None
        self._claims: list[asyncio.Task[None]] = []
        """Claims over new connections."""
        self._releases: list[asyncio.Task[None]] = []

    def begin(
        self,
        calls: Sequence[PendingCall[Claimed | ClaimRefused]],
        others: Sequence[Coroutine[Any, Any, None]] = (),
    ) -> None:
        """Read the answers of calls, and run the claims that need a new connection."""
        self._calls, self._left = calls, len(calls)
        self._claims.extend([self._releaser.tasks.spawn(work, "claim") for work in others])
        if calls:
            listen_to(calls, self._on_answer)
        else:
            self._all_answered()

    @property
    def running(self) -> bool:
        """Whether a claim is unanswered or a returned episode unconfirmed."""
        return not self._ended

    async def wait_end(self) -> None:
        """Wait for the end, which may be later than `served`.

        When cancelled, close the connections of the claims, so that no answer is read any more.
        """
        if self._ended:
            return
        if self._end is None:
            self._end = self.served.get_loop().create_future()
        try:
            await asyncio.shield(self._end)
        except asyncio.CancelledError:
            self._abandoned = True
            for call in self._calls:
                call.cancel()
            if not self._ended:
                self.batch.fail_others(SwarmError("claims were given up: the client was closed"))
                self._done()
            raise

    def answered(self, answer: Claimed | ClaimRefused) -> None:
        """Assign an answer; wake the request it completes, give back what stopped ones hold."""
        completed = self.batch.answered(answer)
        if completed is self.batch.requests[0]:
            if self.batch.left and not self.served.done():
                self.served.set_result(None)
                self._releaser.tasks.spawn(self.wait_end(), "claims on their way")
        elif completed is not None:
            self._queue.serve(completed)
        self._return_held()

    def stop(self, why: ClaimRefused) -> None:
        """Stop all incomplete requests and give back what they hold."""
        self.batch.stop_all(why)
        self._return_held()

    def _on_answer(self, index: int, _: "asyncio.Future[Response]") -> None:
        if self._abandoned:
            return
        self._left -= 1
        try:
            answer = self._calls[index].result()
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  the rest is read
            self.broken(error)
        else:
            self.answered(answer)
        if not self._left:
            self._all_answered()

    def _return_held(self) -> None:
        for request in self.batch.to_return():
            if (work := self._releaser.return_held(request)) is not None:
                self._releases.append(work)

    def _all_answered(self) -> None:
        if self._claims or self._releases:
            self._releaser.tasks.spawn(self._wait_for_tasks(), "claim")
        else:
            self._done()

    async def _wait_for_tasks(self) -> None:
        try:
            while self._claims or self._releases:
                claim = bool(self._claims)
                try:
                    await (self._claims or self._releases).pop()
                except Exception as error:  # noqa: BLE001  as of an answer; the others go on
                    if claim:  # an error of a release is logged, and its episodes are swept later
                        self.broken(error)
        finally:
            self._done()

    def _done(self) -> None:
        self._ended = True
        finished, self._finished = self._finished, _nothing  # break the reference cycle
        try:
            finished()
        finally:
            for future in (self.served, self._end):
                if future is not None and not future.done():
                    future.set_result(None)

    def broken(self, error: BaseException) -> None:
        """Record a claim that failed unexpectedly, and give back what its request holds."""
        log.error("a claim failed unexpectedly", exc_info=error)
        self.batch.broken(error if isinstance(error, Exception) else None)
        self._return_held()


def _nothing() -> None:
    """Replacement of a callback that was called."""
