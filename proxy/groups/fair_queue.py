"""Takes turns between senders at the episodes of a server, and limits the groups that hold some.

A sender with a hundred requests does not delay one with a single request: API keys take turns, then
addresses, then sessions; the requests of one lane go in order, while newcomers overtake in every
second turn (`ajet_swarm.claims.lane_queue`). Only `CLAIMING` groups claim at a time, so that the
next one is chosen here and not by the order in which they began to claim.

A lane without a claiming group may exceed that limit by up to `CLAIMING` groups, and by as many
again if its key and address have no claiming group: the claimer takes turns by lane too, so waiting
requests of one lane do not block another lane.

The last place is reserved for a group that is smaller than all that claim: large groups that wait
in vain for more episodes than there are do not keep out a small one that could be served. Inside,
the claimer lets the small one go first.
"""

import asyncio
from collections import Counter

from ajet_swarm.claims.lane_queue import Lane, LaneQueue
from ajet_swarm.common.tasks import Deadline, DeadlineTimeout

CLAIMING = 32
"""Maximum number of groups that claim at once: enough to keep the server busy while some of them
wait for the commit of their intent."""


class FairGate:
    """The gate of one server. It belongs to one event loop.

    Args:
        limit: Maximum number of groups inside; 0 is no limit.
        claiming: Maximum number of groups inside that hold no episode yet.
    """

    def __init__(self, limit: int = 0, claiming: int = CLAIMING) -> None:
        self.limit = limit
        self.inside = 0
        """Groups that claim or hold episodes."""
        self._most = claiming
        self._trying: set[Turn] = set()
        """Of these, the ones that hold no episode yet."""
        self._lanes: Counter[Lane] = Counter()
        """How many of those each lane has."""
        self._senders: Counter[Lane] = Counter()
        """How many of those each sender has: a lane without its session."""
        self._beyond = 0
        """How many of them were let in beyond the limit."""
        self._queue: LaneQueue[_QueuedTurn] = LaneQueue()
        self._wishes: Counter[tuple[Lane, int]] = Counter()
        """How many in the queue have the same lane and size: either all of them may enter, or
        none."""

    @property
    def claiming(self) -> int:
        """Groups inside that hold no episode yet."""
        return len(self._trying)

    @property
    def waiting(self) -> int:
        """Groups in the queue."""
        return len(self._queue)

    def turn(self) -> "Turn":
        """Return the turn of one group."""
        return Turn(self)

    def _beyond_places(self, lane: Lane, size: int) -> bool | None:
        """Return whether a group that enters now exceeds the limit; None if it may not enter."""
        if self.limit and self.inside >= self.limit:
            return None
        claiming = len(self._trying)
        # Nobody inside has anything to give back: the limit's last place is for a smaller one.
        stuck = self.inside == self.limit - 1 and claiming == self.inside
        if not claiming or not (stuck or claiming >= self._most - 1):
            return False
        taken = claiming - self._beyond
        if taken < self._most - 1 and not stuck:
            return False
        if taken < self._most and all(size < one.size for one in self._trying):
            return False
        if stuck or lane in self._lanes:
            return None
        most = (2 if lane[:-1] in self._senders else 3) * self._most
        return True if claiming < most else None

    def _may_enter(self, lane: Lane, size: int) -> bool:
        return self._beyond_places(lane, size) is not None

    def _take(self, turn: "Turn", beyond: bool) -> None:
        turn.beyond = beyond
        self.inside += 1
        self._trying.add(turn)
        self._lanes[turn.lane] += 1
        self._senders[turn.lane[:-1]] += 1
        self._beyond += turn.beyond

    async def _enter(self, turn: "Turn", deadline: Deadline) -> None:
        if not self._queue:
            beyond = self._beyond_places(turn.lane, turn.size)
            if beyond is not None:
                self._take(turn, beyond)
                return
        place = _QueuedTurn(asyncio.get_running_loop().create_future(), turn)
        self._queue.push(turn.lane, place, turn.newcomer)
        self._wishes[turn.lane, turn.size] += 1
        entered = False
        try:
            if self._may_enter(turn.lane, turn.size):  # it may be smaller than those before it
                self._admit()
            async with DeadlineTimeout(deadline):
                await place.open
            entered = True
        finally:
            if not entered:
                self._withdraw(place)

    def _withdraw(self, place: "_QueuedTurn") -> None:
        gate = place.open
        if gate.done() and not (gate.cancelled() or gate.exception()):  # in and gone at once
            self._out(place.turn)
        else:
            self._remove(place)

    def _remove(self, place: "_QueuedTurn") -> None:
        """Remove it from the queue, if it is still there."""
        if not self._queue.remove(place.turn.lane, place):
            return
        wish = place.turn.lane, place.turn.size
        self._wishes[wish] -= 1
        if not self._wishes[wish]:
            del self._wishes[wish]

    def _out(self, turn: "Turn") -> None:
        self.inside -= 1
        if self.limit or turn in self._trying:  # else nobody waited for it
            self._claimed(turn)

    def _claimed(self, turn: "Turn") -> None:
        if turn in self._trying:
            self._trying.remove(turn)
            self._beyond -= turn.beyond
            for counts, lane in ((self._lanes, turn.lane), (self._senders, turn.lane[:-1])):
                counts[lane] -= 1
                if not counts[lane]:
                    del counts[lane]
        if self._queue:
            self._admit()

    def _admit(self) -> None:
        while (entry := self._next()) is not None:
            place, beyond = entry
            self._queue.end_turn(place.turn.lane, place)
            self._remove(place)
            if not place.open.done():
                self._take(place.turn, beyond)
                place.open.set_result(None)

    def _next(self) -> "tuple[_QueuedTurn, bool] | None":
        """Return the next group, and whether it exceeds the limit.

        The first of all that may enter; the reserved place is for a small one.
        """
        if len(self._trying) >= 3 * self._most or (self.limit and self.inside >= self.limit):
            return None
        first = self._queue.first()
        if first is None:
            return None
        refused = first.turn.lane, first.turn.size
        beyond = self._beyond_places(*refused)
        if beyond is not None:
            return first, beyond
        for wish in self._wishes:  # they are few, places many
            if wish != refused and self._may_enter(*wish):
                break
        else:
            return None
        tried = {refused}
        for lane, place in self._queue:
            wish = (lane, place.turn.size)
            beyond = None if wish in tried else self._beyond_places(*wish)
            if beyond is not None:
                return place, beyond
            tried.add(wish)
        return None


class _QueuedTurn:
    """A group in the queue."""

    __slots__ = ("open", "turn")

    def __init__(self, gate: "asyncio.Future[None]", turn: "Turn") -> None:
        self.open = gate
        self.turn = turn


class Turn:
    """One group at the gate.

    Attributes:
        lane: Fairness key.
        size: Number of episodes it needs.
        newcomer: It overtakes others of its key and address in every second turn.
        beyond: It was let in beyond the limit, as the only one of its lane.
    """

    __slots__ = ("_gate", "_holding", "_inside", "beyond", "lane", "newcomer", "size")

    def __init__(self, gate: FairGate) -> None:
        self._gate = gate
        self._inside = False
        self._holding = False
        self.lane: Lane = ()
        self.size = 1
        self.newcomer = False
        self.beyond = False

    async def enter(
        self, lane: Lane, deadline: Deadline, size: int = 1, newcomer: bool = False
    ) -> None:
        """Wait for a turn; return at once if inside already.

        Args:
            lane: Fairness key: API key, address, session.
            deadline: On the clock of the loop.
            size: Number of episodes it needs.
            newcomer: See `LaneQueue`.

        Raises:
            TimeoutError: The turn did not come before the deadline.
        """
        if not self._inside:
            self.lane, self.size, self.newcomer = lane, size, newcomer
            await self._gate._enter(self, deadline)
            self._inside = True

    def claimed(self) -> None:
        """Let the next group claim: this one has all its episodes."""
        if self._inside and not self._holding:
            self._holding = True
            self._gate._claimed(self)

    def leave(self) -> None:
        """Leave the gate, if inside: no episode is held any more."""
        if self._inside:
            self._inside = self._holding = False
            self._gate._out(self)
