"""Lets sessions take turns at a server's episodes, and bounds the groups that hold some.

A session with a hundred requests does not keep one with a single request waiting: sessions go in
turn, the requests of one session in order. Only `CLAIMING` groups claim at a time, so that who is
next is decided here and not in the order in which they began to claim.
"""

import asyncio
from collections import OrderedDict, deque

CLAIMING = 16
"""Groups that claim at once at most: enough to keep the server busy."""


class FairGate:
    """One server's gate. Lives on one event loop.

    Args:
        limit: Groups that may be inside; 0 is no limit.
        claiming: Groups inside that hold nothing yet.
    """

    def __init__(self, limit: int = 0, claiming: int = CLAIMING) -> None:
        self.limit = limit
        self.inside = 0
        """Groups that claim or hold episodes."""
        self.claiming = 0
        """Of these, the ones that hold none yet."""
        self._most = claiming
        self._queues: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """By session, the next one first."""

    @property
    def waiting(self) -> int:
        """Groups before the gate."""
        return sum(len(queue) for queue in self._queues.values())

    def turn(self, lane: str = "") -> "Turn":
        """The turn of one group.

        Args:
            lane: Whom it takes turns with; the session given to `enter` when empty.
        """
        return Turn(self, lane)

    def _free(self) -> bool:
        return self.claiming < self._most and (not self.limit or self.inside < self.limit)

    def _take(self) -> None:
        self.inside += 1
        self.claiming += 1

    async def _enter(self, session: str, deadline: float) -> None:
        if not self._queues and self._free():
            self._take()
            return
        loop = asyncio.get_running_loop()
        place: asyncio.Future[None] = loop.create_future()
        alarm = loop.call_at(deadline, _too_late, place)
        self._queues.setdefault(session, deque()).append(place)
        entered = False
        try:
            await place
            entered = True
        finally:
            alarm.cancel()
            if not entered:
                self._withdraw(session, place)

    def _withdraw(self, session: str, place: "asyncio.Future[None]") -> None:
        if place.done() and not (place.cancelled() or place.exception()):  # in and gone at once
            self._out(holding=False)
            return
        queue = self._queues.get(session)
        if queue is not None and place in queue:
            queue.remove(place)
            if not queue:
                del self._queues[session]

    def _out(self, *, holding: bool) -> None:
        self.inside -= 1
        if not holding:
            self.claiming -= 1
        self._admit()

    def _claimed(self) -> None:
        self.claiming -= 1
        self._admit()

    def _admit(self) -> None:
        while self._queues and self._free():
            session, queue = next(iter(self._queues.items()))
            place = queue.popleft()
            if queue:
                self._queues.move_to_end(session)
            else:
                del self._queues[session]
            if not place.done():
                self._take()
                place.set_result(None)


def _too_late(place: "asyncio.Future[None]") -> None:
    if not place.done():
        place.set_exception(TimeoutError())


class Turn:
    """One group at the gate."""

    __slots__ = ("_gate", "_holding", "_inside", "_lane")

    def __init__(self, gate: FairGate, lane: str = "") -> None:
        self._gate = gate
        self._lane = lane
        self._inside = False
        self._holding = False

    async def enter(self, session: str, deadline: float) -> None:
        """Wait for a turn; at once when inside already.

        Args:
            session: Whose turn it is; empty without a session.
            deadline: On the loop's clock.

        Raises:
            TimeoutError: it did not come before the deadline.
        """
        if not self._inside:
            await self._gate._enter(self._lane or session, deadline)
            self._inside = True

    def claimed(self) -> None:
        """The group has all its episodes: the next one may claim."""
        if self._inside and not self._holding:
            self._holding = True
            self._gate._claimed()

    def leave(self) -> None:
        """Nothing is held any more; no matter when it was left before."""
        if self._inside:
            self._inside = False
            self._gate._out(holding=self._holding)
            self._holding = False
