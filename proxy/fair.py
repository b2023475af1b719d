"""Lets sessions take turns at a server's episodes, and bounds the groups that hold some.

A session with a hundred requests does not keep one with a single request waiting: sessions go in
turn, the requests of one session in order. Only `CLAIMING` groups claim at a time, so that who is
next is decided here and not in the order in which they began to claim.

A session of which nobody claims yet is let in beyond that, up to as many again: the claim desk
gives its turns to sessions too, so what one has waiting there does not keep another one out.

The last place is kept for a group that is smaller than all that claim: large ones that wait in vain
for more episodes than there are do not keep the small one out that could have its own. Among those
inside the claim desk then lets the small one go first.
"""

import asyncio
from collections import Counter, OrderedDict, deque

CLAIMING = 32
"""Groups that claim at once at most: enough to keep the server busy while some of them wait until
their intent is committed."""


def lane_of(session: str, helper: str) -> str:
    """Whom a request takes turns with; a helper call does not wait behind its own session."""
    return f"{session} {helper}" if helper else session


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
        self._most = claiming
        self._trying: set[Turn] = set()
        """Of these, the ones that hold none yet."""
        self._sessions: Counter[str] = Counter()
        """How many of those each session has."""
        self._beyond = 0
        """How many of them were let in beyond the places."""
        self._queues: OrderedDict[str, deque[_Place]] = OrderedDict()
        """By session, the next one first."""

    @property
    def claiming(self) -> int:
        """Groups inside that hold no episode yet."""
        return len(self._trying)

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

    def _free(self, turn: "Turn") -> bool:
        """Whether it may go in now; says on the turn whether that would be beyond the places."""
        if self.limit and self.inside >= self.limit:
            return False
        turn.beyond = False
        claiming = len(self._trying)
        # Nobody inside has anything to give back: the limit's last place is for a smaller one.
        stuck = self.inside == self.limit - 1 and claiming == self.inside
        if not claiming or not (stuck or claiming >= self._most - 1):
            return True
        taken = claiming - self._beyond
        if taken < self._most - 1 and not stuck:
            return True
        if taken < self._most and all(turn.size < one.size for one in self._trying):
            return True
        alone = turn.session not in self._sessions
        turn.beyond = not stuck and claiming < 2 * self._most and alone
        return turn.beyond

    def _take(self, turn: "Turn") -> None:
        self.inside += 1
        self._trying.add(turn)
        self._sessions[turn.session] += 1
        self._beyond += turn.beyond

    async def _enter(self, turn: "Turn", deadline: float) -> None:
        session = turn.session
        if not self._queues and self._free(turn):
            self._take(turn)
            return
        loop = asyncio.get_running_loop()
        place = _Place(loop.create_future(), turn)
        alarm = loop.call_at(deadline, _too_late, place.open)
        self._queues.setdefault(session, deque()).append(place)
        entered = False
        try:
            self._admit()  # it may be smaller than those that wait before it
            await place.open
            entered = True
        finally:
            alarm.cancel()
            if not entered:
                self._withdraw(session, place)

    def _withdraw(self, session: str, place: "_Place") -> None:
        gate = place.open
        if gate.done() and not (gate.cancelled() or gate.exception()):  # in and gone at once
            self._out(place.turn)
        elif place in self._queues.get(session, ()):
            self._dequeue(session, place)

    def _dequeue(self, session: str, place: "_Place") -> None:
        queue = self._queues[session]
        queue.remove(place)
        if not queue:
            del self._queues[session]

    def _out(self, turn: "Turn") -> None:
        self.inside -= 1
        self._claimed(turn)

    def _claimed(self, turn: "Turn") -> None:
        if turn in self._trying:
            self._trying.remove(turn)
            self._beyond -= turn.beyond
            self._sessions[turn.session] -= 1
            if not self._sessions[turn.session]:
                del self._sessions[turn.session]
        if self._queues:
            self._admit()

    def _admit(self) -> None:
        while (found := self._next()) is not None:
            session, place = found
            if len(self._queues[session]) > 1:
                self._queues.move_to_end(session)
            self._dequeue(session, place)
            if not place.open.done():
                self._take(place.turn)
                place.open.set_result(None)

    def _next(self) -> "tuple[str, _Place] | None":
        """Whose turn it is: the first of all that may go in, the kept place is for a small one."""
        if len(self._trying) >= 2 * self._most or (self.limit and self.inside >= self.limit):
            return None
        for session, queue in self._queues.items():
            tried: set[int] = set()
            for place in queue:
                size = place.turn.size
                if size not in tried and self._free(place.turn):
                    return session, place
                tried.add(size)
        return None


class _Place:
    """Before the gate."""

    __slots__ = ("open", "turn")

    def __init__(self, gate: "asyncio.Future[None]", turn: "Turn") -> None:
        self.open = gate
        self.turn = turn


def _too_late(gate: "asyncio.Future[None]") -> None:
    if not gate.done():
        gate.set_exception(TimeoutError())


class Turn:
    """One group at the gate.

    Attributes:
        session: Whom it takes turns with.
        size: Episodes it wants.
        beyond: It was let in beyond the places, as the only one of its session.
    """

    __slots__ = ("_gate", "_holding", "_inside", "_lane", "beyond", "session", "size")

    def __init__(self, gate: FairGate, lane: str = "") -> None:
        self._gate = gate
        self._lane = lane
        self._inside = False
        self._holding = False
        self.session = lane
        self.size = 1
        self.beyond = False

    async def enter(self, session: str, deadline: float, size: int = 1) -> None:
        """Wait for a turn; at once when inside already.

        Args:
            session: Whose turn it is; empty without a session.
            deadline: On the loop's clock.
            size: Episodes it wants.

        Raises:
            TimeoutError: it did not come before the deadline.
        """
        if not self._inside:
            self.session, self.size = self._lane or session, size
            await self._gate._enter(self, deadline)
            self._inside = True

    def claimed(self) -> None:
        """The group has all its episodes: the next one may claim."""
        if self._inside and not self._holding:
            self._holding = True
            self._gate._claimed(self)

    def leave(self) -> None:
        """Nothing is held any more; no matter when it was left before."""
        if self._inside:
            self._inside = self._holding = False
            self._gate._out(self)
