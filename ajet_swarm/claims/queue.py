"""Queue of the groups that wait for their turn to claim."""

import asyncio
from collections.abc import Sequence

import msgspec

from ajet_swarm.claims.lane_queue import LaneQueue
from ajet_swarm.claims.request import PATIENCE, ClaimRequest


class QueuedRequest(msgspec.Struct, eq=False):
    """A request in the queue."""

    request: ClaimRequest
    turn: asyncio.Future[bool]
    """True: it has the turn. False: it was served in the turn of another request."""


class TurnQueue:
    """Queue of the groups that wait for their turn to claim.

    The order is that of a `LaneQueue`: lanes take turns, and newcomers overtake. A session with one
    request does not wait for all requests of another session.
    """

    def __init__(self) -> None:
        self.taken = False
        """Whether a request has the turn."""
        self._waiting: LaneQueue[QueuedRequest] = LaneQueue()
        self._yielded = 0
        """Number of episodes of the request that let smaller ones go first; 0 after the next turn
        is taken."""
        self._sharing: dict[ClaimRequest, QueuedRequest] = {}
        """Requests that share a turn, until they are served or put back."""

    @property
    def busy(self) -> bool:
        """Whether a request has the turn or shares that of another one."""
        return self.taken or bool(self._sharing)

    async def take(self, request: ClaimRequest) -> bool:
        """Wait for the turn.

        Returns:
            False, without the turn, when the request was served in a shared turn, or when a
            request no larger than this one has stepped back for a smaller one that still waits:
            many large groups step back together.
        """
        if not self.taken:
            self.taken, self._yielded = True, 0
            self._waiting.end_turn(request.lane)
            return True
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if not await self._wait(QueuedRequest(request, turn)):
            return False
        n = request.n
        if self._yielded and min(self._sizes(), default=n) < self._yielded <= n:
            self.release()
            return False
        self._yielded = 0
        return True

    def release(self) -> None:
        """End the turn; the next request has it."""
        if (queued := self._next()) is None:
            self.taken = False
        else:
            queued.turn.set_result(True)

    def share(self, request: ClaimRequest, most: int) -> list[ClaimRequest]:
        """Take the next requests of the same kind out of the queue; the caller must serve or put
        back each of them.

        Args:
            request: The request that has the turn.
            most: Maximum number of requests.
        """
        sharing: list[ClaimRequest] = []
        while len(sharing) < most and (queued := self._next(request)) is not None:
            queued.request.shared = True
            self._sharing[queued.request] = queued
            sharing.append(queued.request)
        return sharing

    def serve(self, request: ClaimRequest) -> None:
        """End the wait of a request that shares a turn."""
        queued = self._sharing.pop(request, None)
        if queued is not None and not queued.turn.done():
            queued.turn.set_result(False)

    def waits(self, request: ClaimRequest) -> bool:
        """Return whether a request shares a turn and was neither served nor put back."""
        queued = self._sharing.get(request)
        if queued is None:
            return False
        if queued.turn.done():  # its caller left
            del self._sharing[request]
            return False
        return True

    def put_back(self, requests: Sequence[ClaimRequest]) -> None:
        """Return requests that were not served to their places in the queue."""
        unserved = [request for request in reversed(requests) if self.waits(request)]
        for request in unserved:
            queued = self._sharing.pop(request)
            request.shared = False
            self._waiting.put_back(request.lane, queued, request.newcomer, request.arrived)
        if unserved and not self.taken:
            self.taken = True
            self.release()

    def must_not_gather(self, request: ClaimRequest) -> bool:
        """Return whether a smaller request waits, and this one never let another go first."""
        n = request.n
        return request.patience == PATIENCE[0] and min(self._sizes(), default=n) < n

    def yields_to_smaller(self, request: ClaimRequest, waited: float) -> bool:
        """Return whether a smaller request goes first now; the caller then releases the turn."""
        if not request.yields_to_smaller(waited, self._sizes()):
            return False
        self._yielded = request.n
        return True

    def _next(self, sharing: ClaimRequest | None = None) -> QueuedRequest | None:
        """Take the first request out of the queue; with `sharing`, only if both may share."""
        while (queued := self._waiting.first()) is not None:
            request, waits = queued.request, not queued.turn.done()
            if waits and sharing is not None and not sharing.may_share(request):
                return None
            self._waiting.end_turn(request.lane, queued)
            self._waiting.remove(request.lane, queued)
            if waits:
                return queued
        return None

    async def _wait(self, queued: QueuedRequest) -> bool:
        request = queued.request
        self._waiting.push(request.lane, queued, request.newcomer, request.arrived)
        try:
            return await queued.turn
        except asyncio.CancelledError:
            if not queued.turn.cancelled():  # the turn came at the same moment
                if queued.turn.result():
                    self.release()
            else:
                self._waiting.remove(queued.request.lane, queued)
            raise

    def _sizes(self) -> list[int]:
        """Return the number of episodes of each request in the queue."""
        return [queued.request.n for _, queued in self._waiting]
