"""Queue of the senders of requests: API keys take turns, then addresses, then sessions."""

import math
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

Lane = tuple[str, ...]
"""Sender of a request, as names from the outermost level to the innermost: (key, address,
session)."""


class LaneQueue(Generic[T]):
    """Queue of items by lane; at each level the names take turns, within a lane items are in order.

    A name that joins the queue goes before the one that had the last turn. All lanes of a queue
    have the same number of names.

    The newest of a sender's newcomers overtakes the sender's other items, but at most in every
    second turn of the sender, so that no item waits more than twice as long. A sender is a lane
    without its session. The newest one is that which arrived last, not that which was added last:
    those that come here from another queue one by one would overtake a newer one for ever.
    """

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()
        self._last: Lane = ()
        """Lane that had the last turn."""
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[tuple[Lane, T]]:
        """Yield lane and item of all items; those of the names whose turn is next come first."""
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

    def end_turn(self, lane: Lane, item: T | None = None) -> bool:
        """Record a turn of a lane: at each level, its name moves behind the others.

        Args:
            lane: Lane of the item that had the turn.
            item: The item; None when it is not in the queue.

        Returns:
            Whether the item was a newcomer in its turn to overtake.
        """
        self._last = lane
        node, overtook = self._root, False
        for name in lane:
            if name not in node.names:
                break
            may_overtake = item is not None and bool(node.newcomers)
            node.overtaken = may_overtake and item is node.first_newcomer()
            overtook = overtook or node.overtaken
            node.names.move_to_end(name)
            node = node.names[name]
        return overtook

    def push(self, lane: Lane, item: T, newcomer: bool = False, arrived: float = math.inf) -> None:
        """Add an item behind the others of its lane.

        Args:
            lane: Lane of the item, with all its names.
            item: The item; hashable if it is a newcomer.
            newcomer: Whether it may overtake other items of its sender.
            arrived: Time at which it arrived, on any clock; infinity counts as the latest.
        """
        node = sender = self._root
        for level, name in enumerate(lane):
            if name not in node.names:
                node.names[name] = _Node()
                beside = self._last[:level] == lane[:level] and level < len(self._last)
                if beside and self._last[level] in node.names:
                    node.names.move_to_end(self._last[level])
            sender, node = node, node.names[name]
        node.waiting.append(item)
        if newcomer and lane:
            sender.add_newcomer(item, lane, arrived)
        self._size += 1

    def put_back(
        self, lane: Lane, item: T, newcomer: bool = False, arrived: float = math.inf
    ) -> None:
        """Add an item in front of all others: the turn that it had does not count.

        Args:
            lane: As of `push`.
            item: As of `push`.
            newcomer: As of `push`.
            arrived: As of `push`.
        """
        node = sender = self._root
        for name in lane:
            if name not in node.names:
                node.names[name] = _Node()
            node.names.move_to_end(name, last=False)
            sender, node = node, node.names[name]
        node.waiting.appendleft(item)
        if newcomer and lane:
            sender.add_newcomer(item, lane, arrived)
        sender.overtaken = next(reversed(sender.newcomers), None) is not item
        self._size += 1
        self._last = ()

    def remove(self, lane: Lane, item: T) -> bool:
        """Remove an item; return False when it is not in the queue."""
        nodes = [self._root]
        for name in lane:
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
        for level in range(len(lane), 0, -1):
            if nodes[level].names or nodes[level].waiting:
                break
            del nodes[level - 1].names[lane[level - 1]]
        return True


class _Node(Generic[T]):
    """One name of a level, with the names below it and the items of its lane."""

    __slots__ = ("names", "newcomers", "overtaken", "waiting")

    def __init__(self) -> None:
        self.names: OrderedDict[str, _Node[T]] = OrderedDict()
        """Names of the next level, in the order of their turns."""
        self.waiting: deque[T] = deque()
        """Items of this lane, in order."""
        self.newcomers: dict[T, tuple[Lane, float]] = {}
        """Newcomers of the lanes directly below, with lane and time of arrival; the newest last."""
        self.overtaken = False
        """Whether the last turn was that of a newcomer that overtook others."""

    def add_newcomer(self, item: T, lane: Lane, arrived: float) -> None:
        """Add a newcomer before those that arrived after it."""
        newer: list[tuple[T, tuple[Lane, float]]] = []
        while self.newcomers:
            last = self.newcomers.popitem()
            if last[1][1] <= arrived:
                self.newcomers[last[0]] = last[1]
                break
            newer.append(last)
        self.newcomers[item] = lane, arrived
        self.newcomers.update(reversed(newer))

    def first_newcomer(self) -> T | None:
        """Return the newcomer that overtakes the others now, or None."""
        return next(reversed(self.newcomers), None) if not self.overtaken else None

    def items(self, lane: Lane, excluded: T | None = None) -> Iterator[tuple[Lane, T]]:
        """Yield lane and item of all items below except `excluded`; `lane` is the node's own."""
        if self.newcomers and (first := self.first_newcomer()) is not None:
            excluded = first
            yield self.newcomers[first][0], first
        for item in self.waiting:
            if item is not excluded:
                yield lane, item
        for name, node in self.names.items():
            yield from node.items((*lane, name), excluded)


def item_to_displace(waiting: Iterable[tuple[Lane, T]], lane: Lane) -> T | None:
    """Return the item to remove from a full queue in favour of a new item of `lane`.

    At each level, from the outermost, the name with the most items loses one if it has at least two
    more than the name in `lane`. Thus no sender keeps more than half of the places while others
    wait.

    Args:
        waiting: Lane and item of the waiting items, oldest first.
        lane: Lane of the new item.

    Returns:
        The newest item of the name with the most; None when `lane` already has its share.
    """
    items: Sequence[tuple[Lane, T]] = list(waiting)
    for level, name in enumerate(lane):
        counts = Counter(waiting_lane[level] for waiting_lane, _ in items)
        if not counts:
            return None
        most = max(counts, key=counts.__getitem__)
        if counts[most] > counts[name] + 1:
            return _newest(items, most, level)
        items = [pair for pair in items if pair[0][level] == name]
    return None


def _newest(items: Sequence[tuple[Lane, T]], name: str, level: int) -> T:
    """Return the newest item below `name`, of the name with the most items at each level."""
    while True:
        items = [pair for pair in items if pair[0][level] == name]
        level += 1
        if level == len(items[0][0]):
            return items[-1][1]
        counts = Counter(lane[level] for lane, _ in items)
        name = max(counts, key=counts.__getitem__)
