"""Whose turn it is at the claim desk."""

import asyncio
from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

import msgspec

from swarm.orders import PATIENCE, Order


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
        self._aboard: dict[Order, _Waiter] = {}
        """Those that were taken along, until they are served or put back."""

    @property
    def busy(self) -> bool:
        """Somebody has the turn, or waits in that of another one."""
        return self.taken or bool(self._aboard)

    async def take(self, n: int, lane: str = "", order: Order | None = None) -> bool:
        """Wait for the turn.

        Args:
            n: Episodes wanted.
            lane: Whom it takes turns with.
            order: May be taken `along`; without it, it may not.

        Returns:
            False, without the turn, when it was served `along` with another one; or when one that
            wants no more than `n` has stepped aside for a smaller one that still waits: many large
            groups go behind it together.
        """
        if not self.taken:
            self.taken, self._last, self._aside = True, lane, 0
            return True
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if not await self._wait(_Waiter(future, n, order), lane):
            return False
        if self._aside and min(self._behind(), default=n) < self._aside <= n:
            self.release()
            return False
        self._aside = 0
        return True

    def release(self) -> None:
        """The turn is over; the next one has it."""
        if (waiter := self._next()) is None:
            self.taken = False
        else:
            waiter.turn.set_result(True)

    def along(self, order: Order, most: int) -> list[Order]:
        """Those next in the line that want the same kind of episodes; they wait in it no more.

        Args:
            order: Has the turn.
            most: How many at most.

        Returns:
            Each is served, or put back.
        """
        found: list[Order] = []
        while len(found) < most and (waiter := self._next(order)) is not None:
            assert waiter.order is not None  # or it would not be like the one that has the turn
            waiter.order.alongside = True
            self._aboard[waiter.order] = waiter
            found.append(waiter.order)
        return found

    def serve(self, order: Order) -> None:
        """One that was taken along waits no more."""
        waiter = self._aboard.pop(order, None)
        if waiter is not None and not waiter.turn.done():
            waiter.turn.set_result(False)

    def waits(self, order: Order) -> bool:
        """Whether one that was taken along is still to be served or put back."""
        waiter = self._aboard.get(order)
        if waiter is None:
            return False
        if waiter.turn.done():  # nobody waits any more
            del self._aboard[order]
            return False
        return True

    def put_back(self, orders: Sequence[Order]) -> None:
        """Those that were taken along in vain, and still wait, wait again where they were."""
        ranks: dict[_Lane, tuple[int, int]] = {}
        for order in reversed(orders):
            if not self.waits(order):
                continue
            waiter = self._aboard.pop(order)
            order.alongside = False
            lane = self._lanes.setdefault(waiter.lane, _Lane(waiter.lane))
            lane.waiters.appendleft(waiter)
            ranks[lane] = waiter.rank  # in the end that of its first
        if not ranks:
            return
        self._order = [one for one in self._order if one[2] not in ranks]
        self._order += [(rank, number, lane) for lane, (rank, number) in ranks.items()]
        heapify(self._order)
        if not self.taken:
            self.taken = True
            self.release()

    def _next(self, like: Order | None = None) -> "_Waiter | None":
        """Takes the first one out of the line; only one like `like`, when given."""
        order = self._order
        while order:
            rank, number, lane = order[0]
            if not lane.waiters:
                heappop(order)
                continue
            waiter = lane.waiters[0]
            waits = not waiter.turn.done()
            if waits and like is not None and not (waiter.order and like.like(waiter.order)):
                return None
            heappop(order)
            lane.waiters.popleft()
            self._turns += 1
            self._last = lane.name
            if lane.waiters:
                heappush(order, (self._turns, number, lane))
            else:
                del self._lanes[lane.name]
            if waits:
                waiter.lane, waiter.rank = lane.name, (rank, number)
                return waiter
        return None

    def owes(self, order: Order) -> bool:
        """Whether a smaller group waits, and this one has never let another go first."""
        return order.patience == PATIENCE[0] and min(self._behind(), default=order.n) < order.n

    def steps_aside(self, order: Order, waited: float) -> bool:
        """Whether a smaller group goes first now; the turn is then the caller's to release."""
        if not order.steps_aside(waited, self._behind()):
            return False
        self._aside = order.n
        return True

    async def _wait(self, waiter: "_Waiter", lane: str) -> bool:
        mine = self._lanes.get(lane)
        if mine is None:
            self._came += 1
            rank = self._turns if lane == self._last else self._turns - 1
            mine = self._enter(lane, rank, self._came)
        mine.waiters.append(waiter)
        try:
            return await waiter.turn
        except asyncio.CancelledError:
            if not waiter.turn.cancelled():  # it came at the same moment
                if waiter.turn.result():
                    self.release()
            elif (found := self._lanes.get(lane)) is not None and waiter in found.waiters:
                found.waiters.remove(waiter)
                if not found.waiters:
                    self._forget(lane)
            raise

    def _enter(self, name: str, rank: int, number: int) -> "_Lane":
        lane = self._lanes[name] = _Lane(name)
        heappush(self._order, (rank, number, lane))
        return lane

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

    turn: asyncio.Future[bool]
    """True: it has the turn; False: it was served in another one's."""
    n: int
    order: Order | None = None
    lane: str = ""
    """The one it was taken out of."""
    rank: tuple[int, int] = (0, 0)
    """Of that lane then, with its number."""
