"""Queue of the senders of requests: API keys take turns, then addresses, then sessions."""

import math
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

Origin = tuple[str, ...]
"""Sender of a request, as names from the outermost level to the innermost: (key, address,
session)."""


class FairQueue(Generic[T]):
    """Queue of items by origin. At each level the names take turns; items of an origin keep order.

    A name that joins the queue goes before the one that had the last turn. All origins of a queue
    have the same number of names.

    The newest of a sender's newcomers overtakes the sender's other items, but at most in every
    second turn of the sender, so that no item waits more than twice as long. A sender is an origin
    without its session. The newest one is that which arrived last, not that which was added last:
    those that come here from another queue one by one would overtake a newer one for ever.
    """

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()
        self._last: Origin = ()
        """Origin that had the last turn."""
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[tuple[Origin, T]]:
        """Yield origin and item of all items; those of the names whose turn is next come first."""
        return self._root.items(())

    def first(self) -> T | None:
        """Return the next item; None when the queue is empty."""
        node = self._root
        while True:
            if node.newcomers and (newcomer := node.first_newcomer()) is not None:
                return newcomer
            if node.waiting:
                return node.waiting[0]
            if not node.names:
                return None
            node = next(iter(node.names.values()))

    def end_turn(self, origin: Origin, item: T | None = None) -> bool:
        """Record a turn of an origin: at each level, its name moves behind the others.

        Args:
            origin: Origin of the item that had the turn.
            item: The item; None when it is not in the queue.

        Returns:
            Whether the item was a newcomer in its turn to overtake.
        """
        self._last = origin
        node, overtook = self._root, False
        for name in origin:
            if name not in node.names:
                break
            may_overtake = item is not None and bool(node.newcomers)
            node.overtaken = may_overtake and item is node.first_newcomer()
            overtook = overtook or node.overtaken
            node.names.move_to_end(name)
            node = node.names[name]
        return overtook

    def push(
        self, origin: Origin, item: T, newcomer: bool = False, arrived: float = math.inf
    ) -> None:
        """Add an item behind the others of its origin.

        Args:
            origin: Origin of the item, with all its names.
            item: The item; hashable if it is a newcomer.
            newcomer: Whether it may overtake other items of its sender.
            arrived: Time at which it arrived, on any clock; infinity counts as the latest.
        """
        node = sender = self._root
        for level, name in enumerate(origin):
            if name not in node.names:
                node.names[name] = _Node()
                beside = self._last[:level] == origin[:level] and level < len(self._last)
                if beside and self._last[level] in node.names:
                    node.names.move_to_end(self._last[level])
            sender, node = node, node.names[name]
        node.waiting.append(item)
        if newcomer and origin:
            sender.add_newcomer(item, origin, arrived)
        self._size += 1

    def put_back(
        self, origin: Origin, item: T, newcomer: bool = False, arrived: float = math.inf
    ) -> None:
        """Add an item in front of all others: the turn that it had does not count.

        Args:
            origin: As of `push`.
            item: As of `push`.
            newcomer: As of `push`.
            arrived: As of `push`.
        """
        node = sender = self._root
        for name in origin:
            if name not in node.names:
                node.names[name] = _Node()
            node.names.move_to_end(name, last=False)
            sender, node = node, node.names[name]
        node.waiting.appendleft(item)
        if newcomer and origin:
            sender.add_newcomer(item, origin, arrived)
        sender.overtaken = next(reversed(sender.newcomers), None) is not item
        self._size += 1
        self._last = ()

    def remove(self, origin: Origin, item: T) -> bool:
        """Remove an item; return False when it is not in the queue."""
        nodes = [self._root]
        for name in origin:
            if name not in nodes[-1].names:
                return False
            nodes.append(nodes[-1].names[name])
        waiting = nodes[-1].waiting
        if waiting and waiting[0] is item:
            waiting.popleft()
        elif item in waiting:
            waiting.remove(item)
        else:
            return False
        if len(nodes) > 1 and nodes[-2].newcomers:
            nodes[-2].newcomers.pop(item, None)
        self._size -= 1
        for level in range(len(origin), 0, -1):
            if nodes[level].names or nodes[level].waiting:
                break
            del nodes[level - 1].names[origin[level - 1]]
        return True


class _Node(Generic[T]):
    """One name of a level, with the names below it and the items of its origin."""

    __slots__ = ("names", "newcomers", "overtaken", "waiting")

    def __init__(self) -> None:
        self.names: OrderedDict[str, _Node[T]] = OrderedDict()
        """Names of the next level, in the order of their turns."""
        self.waiting: deque[T] = deque()
        """Items of this origin, in order."""
        self.newcomers: dict[T, tuple[Origin, float]] = {}
        """Newcomers of the origins directly below, with origin and arrival; the newest last."""
        self.overtaken = False
        """Whether the last turn was that of a newcomer that overtook others."""

    def add_newcomer(self, item: T, origin: Origin, arrived: float) -> None:
        """Add a newcomer before those that arrived after it."""
        newer: list[tuple[T, tuple[Origin, float]]] = []
        while self.newcomers:
            last = self.newcomers.popitem()
            if last[1][1] <= arrived:
                self.newcomers[last[0]] = last[1]
                break
            newer.append(last)
        self.newcomers[item] = origin, arrived
        self.newcomers.update(reversed(newer))

    def first_newcomer(self) -> T | None:
        """Return the newcomer that overtakes the others now, or None."""
        return next(reversed(self.newcomers), None) if not self.overtaken else None

    def items(self, origin: Origin, excluded: T | None = None) -> Iterator[tuple[Origin, T]]:
        """Yield origin and item of all items below but `excluded`; `origin` is the node's own."""
        if self.newcomers and (first := self.first_newcomer()) is not None:
            excluded = first
            yield self.newcomers[first][0], first
        for item in self.waiting:
            if item is not excluded:
                yield origin, item
        for name, node in self.names.items():
            yield from node.items((*origin, name), excluded)


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
