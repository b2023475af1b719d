"""Gate of a server: senders take turns at claiming episodes, and few groups hold some at a time.

A sender with a hundred requests does not delay one with a single request: API keys take turns, then
addresses, then sessions; the requests of one lane go in order, while newcomers overtake in every
second turn (`ajet_swarm.claims.lane_queue`). Only `CLAIMING` groups claim at a time, so that the
next one is chosen here and not by the order in which they began to claim.

Lanes without a claiming group may exceed that limit by up to `CLAIMING` groups, and by as many
again if their key and address have no claiming group. The claimer takes turns by lane too, so
waiting requests of one lane do not block another lane. As groups within the limit get their
episodes, those beyond it move up.

The last place is reserved for a group that is smaller than all that claim: large groups that wait
in vain for more episodes than there are do not keep out a small one that could be served. Once
inside, the claimer serves the small one first.
"""

import asyncio
import math
from collections import Counter

from ajet_swarm.claims.lane_queue import Lane, LaneQueue
from ajet_swarm.common.tasks import Deadline, DeadlineTimeout

CLAIMING = 32
"""Maximum number of groups that claim at once: enough to keep the server busy while some of them
wait for the commit of their intent."""


class ClaimGate:
    """The gate of one server. It belongs to one event loop.

    Args:
        limit: Maximum number of groups inside; 0 is no limit.
        claiming: Maximum number of groups inside that hold no episode yet.
    """

    def __init__(self, limit: int = 0, claiming: int = CLAIMING) -> None:
        self.limit = limit
        self.inside = 0
        """Groups that claim or hold episodes."""
        self._max_claiming = claiming
        self._claiming_turns: set[ClaimTurn] = set()
        """The turns of groups inside that hold no episode yet."""
        self._claiming_by_lane: dict[Lane, int] = {}
        """Number of these turns per lane."""
        self._claiming_by_sender: dict[Lane, int] = {}
        """Number of these turns per sender (lane without session)."""
        self._over_limit_count = 0
        """Number of these turns that were counted beyond `claiming`."""
        self._queue: LaneQueue[_QueuedTurn] = LaneQueue()
        self._queued_sizes: Counter[tuple[Lane, int]] = Counter()
        """Number of queued groups per lane and size; of these, either all may enter or none."""

    @property
    def claiming(self) -> int:
        """Groups inside that hold no episode yet."""
        return len(self._claiming_turns)

    @property
    def waiting(self) -> int:
        """Groups in the queue."""
        return len(self._queue)

    def turn(self) -> "ClaimTurn":
        """Return the turn of one group."""
        return ClaimTurn(self)

    def _exceeds_claiming_limit(self, lane: Lane, size: int) -> bool | None:
        """Return whether a group that enters now exceeds `claiming`; None if it may not."""
        if self.limit and self.inside >= self.limit:
            return None
        claiming = len(self._claiming_turns)
        # No group inside has an episode to return: the last place is reserved for a smaller group.
        stuck = self.inside == self.limit - 1 and claiming == self.inside
        if not claiming or not (stuck or claiming >= self._max_claiming - 1):
            return False
        regular_count = claiming - self._over_limit_count
        if regular_count < self._max_claiming - 1 and not stuck:
            return False
        if regular_count < self._max_claiming and all(
            size < turn.size for turn in self._claiming_turns
        ):
            return False
        if stuck or lane in self._claiming_by_lane:
            return None
        allowed = (1 if lane[:-1] in self._claiming_by_sender else 2) * self._max_claiming
        return True if self._over_limit_count < allowed else None

    def _may_enter(self, lane: Lane, size: int) -> bool:
        return self._exceeds_claiming_limit(lane, size) is not None

    def _let_in(self, turn: "ClaimTurn", over_limit: bool) -> None:
        turn.over_limit = over_limit
        self.inside += 1
        self._claiming_turns.add(turn)
        for counts, lane in self._counts_of(turn):
            counts[lane] = counts.get(lane, 0) + 1
        self._over_limit_count += turn.over_limit

    def _enter_at_once(self, turn: "ClaimTurn") -> bool:
        if self._queue:
            return False
        over_limit = self._exceeds_claiming_limit(turn.lane, turn.size)
        if over_limit is None:
            return False
        self._let_in(turn, over_limit)
        return True

    async def _enter(self, turn: "ClaimTurn", deadline: Deadline) -> bool:
        queued = _QueuedTurn(asyncio.get_running_loop().create_future(), turn)
        self._queue.push(turn.lane, queued, turn.newcomer, turn.arrived)
        self._queued_sizes[turn.lane, turn.size] += 1
        entered = False
        try:
            if self._may_enter(turn.lane, turn.size):  # small enough, unlike those before it
                self._admit()
            with DeadlineTimeout(deadline):
                overtook = await queued.open
            entered = True
            return overtook
        finally:
            if not entered:
                self._withdraw(queued)

    def _withdraw(self, queued: "_QueuedTurn") -> None:
        opened = queued.open
        let_in = opened.done() and not (opened.cancelled() or opened.exception())
        if let_in:  # cancelled afterwards
            self._leave(queued.turn)
        else:
            self._remove(queued)

    def _remove(self, queued: "_QueuedTurn") -> None:
        """Remove a group from the queue, if it is still there."""
        if not self._queue.remove(queued.turn.lane, queued):
            return
        key = queued.turn.lane, queued.turn.size
        self._queued_sizes[key] -= 1
        if not self._queued_sizes[key]:
            del self._queued_sizes[key]

    def _leave(self, turn: "ClaimTurn") -> None:
        self.inside -= 1
        if self.limit or turn in self._claiming_turns:  # else no group waited for its place
            self._claimed(turn)

    def _claimed(self, turn: "ClaimTurn") -> None:
        if turn in self._claiming_turns:
            self._claiming_turns.remove(turn)
            self._over_limit_count -= turn.over_limit
            self._move_up()
            for counts, lane in self._counts_of(turn):
                if counts[lane] == 1:
                    del counts[lane]
                else:
                    counts[lane] -= 1
        if self._queue:
            self._admit()

    def _counts_of(self, turn: "ClaimTurn") -> tuple[tuple[dict[Lane, int], Lane], ...]:
        """Return the counters that count a claiming turn, each with its key."""
        lane = turn.lane
        return (self._claiming_by_lane, lane), (self._claiming_by_sender, lane[:-1])

    def _move_up(self) -> None:
        """Count a group beyond `claiming` within it, if there is room but for the last place."""
        regular_count = len(self._claiming_turns) - self._over_limit_count
        if self._over_limit_count and regular_count < self._max_claiming - 1:
            next(turn for turn in self._claiming_turns if turn.over_limit).over_limit = False
            self._over_limit_count -= 1

    def _admit(self) -> None:
        while (entry := self._next()) is not None:
            queued, over_limit = entry
            overtook = self._queue.end_turn(queued.turn.lane, queued)
            self._remove(queued)
            if not queued.open.done():
                self._let_in(queued.turn, over_limit)
                queued.open.set_result(overtook)

    def _next(self) -> "tuple[_QueuedTurn, bool] | None":
        """Return the first queued group that may enter, and whether it exceeds `claiming`."""
        if len(self._claiming_turns) >= 3 * self._max_claiming or (
            self.limit and self.inside >= self.limit
        ):
            return None
        first = self._queue.first()
        if first is None:
            return None
        first_key = first.turn.lane, first.turn.size
        over_limit = self._exceeds_claiming_limit(*first_key)
        if over_limit is not None:
            return first, over_limit
        for size_key in self._queued_sizes:  # fewer keys than queued groups
            if size_key != first_key and self._may_enter(*size_key):
                break
        else:
            return None
        refused_keys = {first_key}
        for lane, queued in self._queue:
            size_key = (lane, queued.turn.size)
            over_limit = (
                None if size_key in refused_keys else self._exceeds_claiming_limit(*size_key)
            )
            if over_limit is not None:
                return queued, over_limit
            refused_keys.add(size_key)
        return None


class _QueuedTurn:
    """A group in the queue."""

    __slots__ = ("open", "turn")

    def __init__(self, opened: "asyncio.Future[bool]", turn: "ClaimTurn") -> None:
        self.open = opened
        self.turn = turn


class ClaimTurn:
    """One group at the gate.

    Attributes:
        lane: Fairness key.
        size: Number of episodes it needs.
        newcomer: It overtakes others of its key and address in every second turn.
        arrived: Time at which its request arrived.
        over_limit: It counts beyond the claiming limit; it entered as the only one of its lane.
    """

    __slots__ = (
        "_gate",
        "_holding",
        "_inside",
        "arrived",
        "lane",
        "newcomer",
        "over_limit",
        "size",
    )

    def __init__(self, gate: ClaimGate) -> None:
        self._gate = gate
        self._inside = False
        self._holding = False
        self.lane: Lane = ()
        self.size = 1
        self.newcomer = False
        self.arrived = math.inf
        self.over_limit = False

    def enter_at_once(
        self, lane: Lane, size: int = 1, newcomer: bool = False, arrived: float = math.inf
    ) -> bool:
        """Take the turn if it comes now; return whether it is inside.

        Args:
            lane: Fairness key: API key, address, session.
            size: Number of episodes it needs.
            newcomer: See `LaneQueue`.
            arrived: Time at which its request arrived, see `LaneQueue`.
        """
        if not self._inside:
            self.lane, self.size, self.newcomer, self.arrived = lane, size, newcomer, arrived
            self._inside = self._gate._enter_at_once(self)
        return self._inside

    async def enter(
        self,
        lane: Lane,
        deadline: Deadline,
        size: int = 1,
        newcomer: bool = False,
        arrived: float = math.inf,
    ) -> bool:
        """Wait for a turn; return whether it overtook others or did not wait.

        Args:
            lane: As of `enter_at_once`.
            deadline: On the clock of the loop.
            size: As of `enter_at_once`.
            newcomer: As of `enter_at_once`.
            arrived: As of `enter_at_once`.

        Raises:
            TimeoutError: The turn did not come before the deadline.
        """
        if not self.enter_at_once(lane, size, newcomer, arrived):
            overtook = await self._gate._enter(self, deadline)
            self._inside = True
            return overtook
        return True

    def claimed(self) -> None:
        """Let the next group claim: this one has all its episodes."""
        if self._inside and not self._holding:
            self._holding = True
            self._gate._claimed(self)

    def leave(self) -> None:
        """Leave the gate, if inside: no episode is held any more."""
        if self._inside:
            self._inside = self._holding = False
            self._gate._leave(self)
