"""What a group wants of the claim desk."""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush

import msgspec

from swarm.answers import Claimed, Refused, RefusedKind

PATIENCE = (1.0, 8.0)
"""Seconds a group tries in vain before smaller ones behind it go first: at first, and at most.
Longer each time, so that many small groups do not starve a large one."""

GATHER_AFTER = 1.0
"""Seconds, about, that a group finds no episode free before it gathers."""
GATHER = (1.0, 3.0)
"""Seconds it then keeps what it gets. Drawn anew each time: of two clients that hold parts of what
both want, one gives up first and the other has all."""
GATHER_MORE = 4.0
"""Where that is in vain, because episodes come free seldom, it is longer each time, up to so many
times."""
EMPTY = (0.5, 1.5)
"""Seconds between two such windows, with empty hands; they grow as the windows do."""

OnClaimed = Callable[[str], None]
"""Called with each uuid at the moment its claim is answered."""
OnReturned = Callable[[Sequence[str], str], None]
"""Called with uuids that were given back, and why."""


class Order(msgspec.Struct, eq=False):
    """One try to get `n` episodes."""

    n: int
    episode_type: str
    discard_timeout: float
    on_claimed: OnClaimed | None
    on_returned: OnReturned | None
    lane: str = ""
    """Whom it takes turns with."""
    held: list[Claimed] = []
    had: int = 0
    """How many claims were answered with an episode."""
    tried: bool = False
    """Once in vain, at least."""
    best: int = 0
    """The most that any try had."""
    keeps: bool = False
    """It keeps what it has when no more is free: it gathers, for a moment."""
    patience: float = PATIENCE[0]
    """Seconds of its next turn before smaller ones go first."""
    stop: Refused | None = None
    """Why it will not be complete."""
    cut: bool = False
    """Nobody waits any more, and claims of it had no answer yet."""
    last: Refused | None = None
    """Why the try before was in vain."""
    error: Exception | None = None
    """What the caller's hook raised."""
    in_turn: bool = False
    """It has the turn."""
    back: "list[asyncio.Task[None]]" = []
    """What is on its way back since somebody gave up a try."""

    def stopped(self) -> bool:
        return self.stop is not None

    def goes_on(self, refused: Refused) -> bool:
        """Whether it goes on after this refusal."""
        return self.keeps and refused.kind is RefusedKind.NONE_AVAILABLE

    def refused(self) -> None:
        """A try is over, in vain."""
        self.tried = True
        self.best = max(self.best, self.had)
        self.last = self.stop

    def steps_aside(self, waited: float, behind: Sequence[int]) -> bool:
        """Whether a smaller group goes first now; `behind` are the sizes of those that wait."""
        if waited < self.patience or min(behind, default=self.n) >= self.n:
            return False
        self.patience = min(2 * self.patience, PATIENCE[1])
        return True

    def take(self) -> list[Claimed]:
        """What is held, which is then the caller's."""
        held, self.held = self.held, []
        return held


class Windows:
    """When a group may gather.

    Args:
        rng: For the lengths.
        now: On any clock, in seconds.
    """

    def __init__(self, rng: random.Random, now: float) -> None:
        self._rng = rng
        self._times = 1.0
        self._at = now + self._first()

    def open(self, now: float) -> float:
        """How long it may, from now on; 0 when it may not."""
        return self._rng.uniform(*GATHER) * self._times if now >= self._at else 0.0

    def shut(self, now: float, in_vain: bool) -> None:
        """Not for a while.

        Args:
            now: As of `open`.
            in_vain: Too few came free; else the engine stopped to roll, and the wait begins anew.
        """
        if not in_vain:
            self._at = now + self._first()
            return
        self._at = now + self._rng.uniform(*EMPTY) * self._times
        self._times = min(1.5 * self._times, GATHER_MORE)

    def _first(self) -> float:
        return self._rng.uniform(0.8, 1.2) * GATHER_AFTER


class Line:
    """The groups that wait for the turn: lanes take turns, the groups of one lane go in order.

    A lane that comes anew goes before those that had a turn since: a session with one request does
    not wait for all that another has in the line.
    """

    def __init__(self) -> None:
        self.taken = False
        """Somebody has the turn."""
        self._lanes: dict[str, _Lane] = {}
        self._order: list[tuple[int, int, _Lane]] = []
        """A heap: rank and number of each lane; those without anybody are left out when met."""
        self._came = 0
        """Lanes there were so far."""
        self._turns = 0
        self._last = ""
        """Lane of the turn that was given last."""
        self._aside = 0
        """What one wanted that stepped aside, until a turn is taken."""

    async def take(self, n: int, lane: str = "") -> bool:
        """Wait for the turn.

        Args:
            n: Episodes wanted.
            lane: Whom it takes turns with.

        Returns:
            False, without the turn, when one that wants no more than `n` has stepped aside for a
            smaller one that still waits: many large groups go behind it together.
        """
        if not self.taken:
            self.taken, self._last, self._aside = True, lane, 0
            return True
        await self._wait(_Waiter(asyncio.get_running_loop().create_future(), n), lane)
        if self._aside and min(self._behind(), default=n) < self._aside <= n:
            self.release()
            return False
        self._aside = 0
        return True

    def release(self) -> None:
        """The turn is over; the next one has it."""
        order = self._order
        while order:
            _, number, lane = heappop(order)
            if not lane.waiters:
                continue
            waiter = lane.waiters.popleft()
            self._turns += 1
            self._last = lane.name
            if lane.waiters:
                heappush(order, (self._turns, number, lane))
            else:
                del self._lanes[lane.name]
            if not waiter.turn.done():
                waiter.turn.set_result(None)
                return
        self.taken = False

    def owes(self, order: Order) -> bool:
        """Whether a smaller group waits, and this one has never let another go first."""
        return order.patience == PATIENCE[0] and min(self._behind(), default=order.n) < order.n

    def steps_aside(self, order: Order, waited: float) -> bool:
        """Whether a smaller group goes first now; the turn is then the caller's to release."""
        if not order.steps_aside(waited, self._behind()):
            return False
        self._aside = order.n
        return True

    async def _wait(self, waiter: "_Waiter", lane: str) -> None:
        mine = self._lanes.get(lane)
        if mine is None:
            mine = self._lanes[lane] = _Lane(lane)
            self._came += 1
            rank = self._turns if lane == self._last else self._turns - 1
            heappush(self._order, (rank, self._came, mine))
        mine.waiters.append(waiter)
        try:
            await waiter.turn
        except asyncio.CancelledError:
            if not waiter.turn.cancelled():  # it came at the same moment
                self.release()
            elif waiter in mine.waiters:
                mine.waiters.remove(waiter)
                if not mine.waiters:
                    self._forget(lane)
            raise

    def _forget(self, lane: str) -> None:
        """Nobody of it waits any more."""
        del self._lanes[lane]
        if len(self._order) > 2 * len(self._lanes) + 64:  # no turn may be over for hours
            self._order = [one for one in self._order if one[2].waiters]
            heapify(self._order)

    def _behind(self) -> list[int]:
        """How many episodes each of those that wait wants."""
        return [waiter.n for lane in self._lanes.values() for waiter in lane.waiters]


class _Lane:
    """Those of one lane that wait, in order."""

    __slots__ = ("name", "waiters")

    def __init__(self, name: str) -> None:
        self.name = name
        self.waiters: deque[_Waiter] = deque()


class _Waiter(msgspec.Struct, eq=False):
    """Somebody in the line."""

    turn: asyncio.Future[None]
    n: int
