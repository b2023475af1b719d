"""Order of the claims of one server, and the number of them that are sent at a time.

Example: 64 requests wait, each for a group of four episodes. The first two claim, eight episodes
together; each group that gets its four widens the queue by four, so that 4, 8 and then 16 groups
claim at once. After a refusal a single group claims, until `START` episodes are granted.

The order is that of a `FairQueue`: API keys take turns, then addresses, then sessions, so that a
sender with a hundred requests does not delay one with a single request. A caller without senders
uses one origin.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Generic, NamedTuple, TypeVar

from ajet_swarm.common.tasks import Deadline, timeout_at

T = TypeVar("T")

Origin = tuple[str, ...]
"""Sender of a request, as names from the outermost level to the innermost: (key, address,
session)."""


class _Place(NamedTuple, Generic[T]):
    """An item in the queue."""

    origin: Origin
    item: T
    arrival: tuple[float, int] | None
    """Order among items that may overtake: the time of its arrival, then of its addition; None for
    others."""


class FairQueue(Generic[T]):
    """Queue of items by origin. At each level the names take turns; items of an origin keep order.

    A name that joins the queue goes before the one that had the last turn. All origins of a queue
    have the same number of names.

    The newest of a sender's items with `may_overtake` goes before its other items, but at most in
    every second turn of the sender, so that no item waits more than twice as long. A sender is an
    origin without its session. The newest one is that which arrived last, not that which was added
    last: those that come here from another queue one by one would overtake a newer one for ever.
    """

    def __init__(self) -> None:
        self._places: list[_Place[T]] = []
        """Items of an origin in order."""
        self._ranks: dict[Origin, int] = {}
        """Rank of each name, by the path to it; of the names beside each other, the lowest is next.
        """
        self._overtaken: set[Origin] = set()
        """Senders whose last place went to an item that overtook others."""
        self._last: Origin = ()
        """Origin that had the last turn."""
        self._count = count(1)

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[tuple[Origin, T]]:
        """Yield origin and item of all items; those of the names whose turn is next come first."""
        for place in self._in_order((), self._places):
            yield place.origin, place.item

    def _in_order(self, path: Origin, places: list[_Place[T]]) -> Iterator[_Place[T]]:
        """Yield the places below a path."""
        if not places or places[0].origin == path:
            yield from places
            return
        if (first := self._overtaking(path, places)) is not None:
            yield first
        below: dict[Origin, list[_Place[T]]] = {}
        for place in places:
            if place is not first:
                below.setdefault(place.origin[: len(path) + 1], []).append(place)
        for name in sorted(below, key=self._ranks.__getitem__):
            yield from self._in_order(name, below[name])

    def _overtaking(self, sender: Origin, places: Iterable[_Place[T]]) -> _Place[T] | None:
        """Return the item of a sender that overtakes the others now, or None."""
        if sender in self._overtaken:
            return None
        overtaking = [place for place in places if place.arrival and place.origin[:-1] == sender]
        return max(overtaking, key=lambda place: place.arrival or (), default=None)

    def first(self) -> T | None:
        """Return the next item; None when the queue is empty."""
        return next((item for _, item in self), None)

    def end_turn(self, origin: Origin, item: T | None = None) -> bool:
        """Record a turn of an origin: at each level, its name moves behind the others.

        Args:
            origin: Origin of the item that had the turn.
            item: The item; None when it is not in the queue.

        Returns:
            Whether the item overtook others.
        """
        self._last, sender = origin, origin[:-1]
        first = self._overtaking(sender, self._places)
        overtook = item is not None and first is not None and first.item is item
        if origin in self._ranks:
            self._overtaken.discard(sender)
            self._overtaken.update([sender] if overtook else [])
        for end in range(1, len(origin) + 1):
            if origin[:end] in self._ranks:
                self._ranks[origin[:end]] = next(self._count)
        return overtook

    def push(
        self,
        origin: Origin,
        item: T,
        may_overtake: bool = False,
        arrived: float = math.inf,
        front: bool = False,
    ) -> None:
        """Add an item behind the others of its origin.

        Args:
            origin: Origin of the item, with all its names.
            item: The item.
            may_overtake: Whether it may overtake other items of its sender.
            arrived: Time at which it arrived, on any clock; infinity counts as the latest.
            front: Add it in front of all others: the turn that it had does not count.
        """
        for end in range(1, len(origin) + 1):
            path, beside = origin[:end], self._last[:end]
            if path not in self._ranks:
                self._ranks[path] = next(self._count)
                if beside[:-1] == path[:-1] and beside in self._ranks:
                    self._ranks[beside] = next(self._count)
            if front:
                self._ranks[path] = -next(self._count)
        arrival = (arrived, next(self._count)) if may_overtake and origin else None
        place = _Place(origin, item, arrival)
        if front:
            self._places.insert(0, place)
            self._last, sender = (), origin[:-1]
            self._overtaken.discard(sender)
            newest = self._overtaking(sender, self._places)
            self._overtaken.update([sender] if newest is not place else [])
        else:
            self._places.append(place)

    def remove(self, origin: Origin, item: T) -> bool:
        """Remove an item; return False when it is not in the queue."""
        found = [place for place in self._places if (place.origin, place.item) == (origin, item)]
        for place in found[:1]:
            self._places.remove(place)
        for end in range(len(origin), 0, -1):
            if any(place.origin[:end] == origin[:end] for place in self._places):
                break
            self._ranks.pop(origin[:end], None)
            self._overtaken.discard(origin[:end])
        return bool(found)


def item_to_displace(waiting: Iterable[tuple[Origin, T]], origin: Origin) -> T | None:
    """Return the item to remove from a full queue in favour of a new item of `origin`.

    At each level, from the outermost, the name with the most items loses one if it has at least two
    more than the name in `origin`. Thus no sender keeps more than half of the places while others
    wait.

    Args:
        waiting: Origin and item of the waiting items, oldest first.
        origin: Origin of the new item.

    Returns:
        The newest item of the name with the most; None when `origin` already has its share.
    """
    items: Sequence[tuple[Origin, T]] = list(waiting)
    for level, name in enumerate(origin):
        counts = Counter(waiting_origin[level] for waiting_origin, _ in items)
        if not counts:
            return None
        most = max(counts, key=counts.__getitem__)
        if counts[most] > counts[name] + 1:
            return _newest(items, most, level)
        items = [pair for pair in items if pair[0][level] == name]
    return None


def _newest(items: Sequence[tuple[Origin, T]], name: str, level: int) -> T:
    """Return the newest item below `name`, of the name with the most items at each level."""
    while True:
        items = [pair for pair in items if pair[0][level] == name]
        level += 1
        if level == len(items[0][0]):
            return items[-1][1]
        counts = Counter(origin[level] for origin, _ in items)
        name = max(counts, key=counts.__getitem__)


# --- claims ---------------------------------------------------------------------------------------

START = 8
"""Number of episodes claimed at a time at first, and when the engine begins to roll."""
WIDEST = 64
"""Maximum number of episodes claimed at a time."""
PATIENCE = (1.0, 8.0)
"""Seconds of claims in vain after which smaller groups go first: initial value and maximum. The
value doubles each time, so that many small groups do not starve a large one."""


class ClaimQueue:
    """Queue of the claims of one server. It belongs to one event loop.

    Args:
        limit: Maximum number of entries that claim or hold episodes; 0 is no limit.

    Attributes:
        limit: See above.
        on_starved: Called when an entry begins to wait because no episode is free.
    """

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit
        self.on_starved: Callable[[], None] | None = None
        self.inside = 0
        """Number of entries that claim or hold episodes."""
        self._width = START
        """Number of episodes that may be claimed at a time; a single entry may exceed it."""
        self._to_grant = 0
        """Number of episodes that have to be granted before it widens."""
        self._claiming: set[QueueEntry] = set()
        self._starving: set[QueueEntry] = set()
        """Entries that claim or wait, and whose last claim was refused as no episode was free."""
        self._refused: list[QueueEntry] = []
        """Entries that claimed together in vain; once the others have ended, these go first."""
        self._waiting: FairQueue[QueueEntry] = FairQueue()
        self._smaller_first = (0, 0)
        """Size of an entry that let smaller ones go first, and the number of these."""
        self._admitted = 0

    @property
    def claiming(self) -> int:
        """Number of entries that claim."""
        return len(self._claiming)

    @property
    def waiting(self) -> int:
        """Number of entries in the queue."""
        return len(self._waiting) + len(self._refused)

    @property
    def starved(self) -> bool:
        """Whether an entry waits because no episode is free."""
        return bool(self._starving)

    def reopen(self) -> None:
        """Record that the engine begins to roll, when many episodes are free."""
        self._width, self._to_grant = max(self._width, START), 0
        self._admit()

    def has_smaller(self, size: int) -> bool:
        """Return whether an entry with fewer episodes waits."""
        return any(entry.size < size for entry in self._all_waiting())

    def _all_waiting(self) -> "Iterator[QueueEntry]":
        yield from self._refused
        for _, entry in self._waiting:
            yield entry

    def _may_claim(self, entry: "QueueEntry") -> bool:
        full = bool(self.limit) and self.inside >= self.limit and not entry.inside
        if self._refused or full:
            return False
        if not self._claiming:
            return True
        return sum(claiming.size for claiming in self._claiming) + entry.size <= self._width

    def _next(self) -> "QueueEntry | None":
        size, count = self._smaller_first
        if count:
            for _, entry in self._waiting:
                if entry.size < size:
                    return entry
            self._smaller_first = (0, 0)
        return self._waiting.first()

    def _start(self, entry: "QueueEntry") -> None:
        self._admitted += 1
        self.inside += not entry.inside
        entry.number, entry.claims, entry.inside = self._admitted, True, True
        self._claiming.add(entry)

    def _admit(self) -> None:
        if self._refused and not self._claiming:
            for refused in sorted(self._refused, key=lambda entry: -entry.number):
                self._waiting.push(
                    refused.origin, refused, refused.may_overtake, refused.arrived, front=True
                )
            self._refused.clear()
        while (entry := self._next()) is not None and self._may_claim(entry):
            if entry.opened.done():  # cancelled, and about to leave
                self._waiting.remove(entry.origin, entry)
                continue
            size, count = self._smaller_first
            self._smaller_first = (size, count - 1) if count else (0, 0)
            entry.overtook = self._waiting.end_turn(entry.origin, entry)
            self._waiting.remove(entry.origin, entry)
            self._start(entry)
            entry.opened.set_result(None)

    async def _wait(self, entry: "QueueEntry") -> None:
        """Wait until a queued entry may claim."""
        self._admit()
        try:
            await entry.opened
        except asyncio.CancelledError:
            if entry.claims:  # it was admitted at the same moment
                entry.leave()
            else:
                self._starving.discard(entry)
                if entry in self._refused:
                    self._refused.remove(entry)
                else:
                    self._waiting.remove(entry.origin, entry)
                self._admit()
            raise


class QueueEntry:
    """One group in the queue, or a single episode; it does not claim yet.

    Args:
        queue: The queue.
        origin: Its sender: key, address and session, or fewer names. All origins of a queue have
            the same number of names.
        size: Number of episodes.
        may_overtake: Whether it may overtake others of its key and address in every second place.
        arrived: Time of its arrival, on any clock that is the same for all; of those, the
            newest overtakes. Infinity counts as the latest.

    Attributes:
        claims: Whether it may claim now.
        inside: Whether it claims or holds episodes.
        overtook: Whether it overtook others in its last wait.
        number: Its place in the order in which entries were admitted.
        opened: Done when it may claim.
    """

    def __init__(
        self,
        queue: ClaimQueue,
        origin: Origin = (),
        size: int = 1,
        may_overtake: bool = False,
        arrived: float = math.inf,
    ) -> None:
        self._queue = queue
        self.origin = origin
        self.size = size
        self.may_overtake = may_overtake
        self.arrived = arrived
        self.claims = self.inside = self.overtook = False
        self.number = 0
        self.opened: asyncio.Future[None]
        self._patience = PATIENCE[0]

    def take_at_once(self) -> bool:
        """Begin to claim if it may now; return whether it claims."""
        queue = self._queue
        if self.claims:
            return True
        if queue.waiting or not queue._may_claim(self):
            return False
        queue._waiting.end_turn(self.origin)
        queue._start(self)
        return True

    async def take(self, deadline: Deadline | None = None) -> None:
        """Wait until it may claim.

        Args:
            deadline: Time on the loop's clock; see `timeout_at`.

        Raises:
            TimeoutError: The deadline has passed.
        """
        if self.take_at_once():
            return
        async with timeout_at(deadline):
            await self._queue_up()

    async def _queue_up(self) -> None:
        self.opened = asyncio.get_running_loop().create_future()
        self._queue._waiting.push(self.origin, self, self.may_overtake, self.arrived)
        await self._queue._wait(self)

    def refused(self, none_free: bool) -> None:
        """Record a refusal of one of its claims: one entry at a time may claim now.

        Args:
            none_free: Whether no episode was free; False if the engine does not roll, for example.
        """
        queue = self._queue
        queue._width, queue._to_grant = 1, START
        begins = none_free and not queue._starving
        queue._starving.discard(self)
        if none_free:
            queue._starving.add(self)
        if begins and queue.on_starved is not None:
            queue.on_starved()

    def must_not_hold_parts(self) -> bool:
        """Return whether a smaller entry waits, and this one never let another one go first."""
        return self._patience == PATIENCE[0] and self._queue.has_smaller(self.size)

    async def again(self, waited: float) -> bool:
        """Wait for the next attempt after a refusal.

        It is its own at once if no other entry claims, unless smaller ones go first.

        Args:
            waited: Seconds for which it has claimed in vain.

        Returns:
            Whether smaller entries went first.
        """
        queue = self._queue
        yields = waited >= self._patience and queue.has_smaller(self.size)
        if not yields and queue._claiming == {self} and not queue._refused:
            return False
        queue._claiming.discard(self)
        queue.inside -= 1
        self.claims = self.inside = False
        if yields:
            self._patience = min(2 * self._patience, PATIENCE[1])
            smaller = sum(entry.size < self.size for entry in queue._all_waiting())
            queue._smaller_first = (self.size, smaller)
            await self._queue_up()
        else:
            self.opened = asyncio.get_running_loop().create_future()
            queue._refused.append(self)
            await queue._wait(self)
        return yields

    def claimed(self) -> None:
        """Let the next entry claim: this one has all its episodes, so more may claim at a time.

        Not after the first `START` ones since a refusal: on a full server they become free one by
        one.
        """
        if self.claims:
            queue = self._queue
            queue._to_grant -= self.size
            if queue._to_grant < 0:
                queue._width = min(queue._width + self.size, WIDEST)
            self.end_claims()

    def end_claims(self) -> None:
        """Let the next entry claim; this one may still hold episodes."""
        if self.claims:
            self.claims = False
            self._queue._starving.discard(self)
            self._queue._claiming.discard(self)
            self._queue._admit()

    def leave(self) -> None:
        """Leave the queue, if inside: it holds no episode any more."""
        if self.inside:
            self.inside = False
            self._queue.inside -= 1
            self.end_claims()
            self._queue._admit()
