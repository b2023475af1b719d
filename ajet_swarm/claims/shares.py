"""A queue with equal shares: of each API key, then of each address, then of each session."""

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

Lane = tuple[str, ...]
"""Who sent a request, from the outermost name to the innermost, as (key, address, session)."""


class FairQueue(Generic[T]):
    """Items by lane. At each level of the lanes the names take turns; items of one lane go in
    order.

    A name that joins the queue goes before the one that had the last turn. All lanes of one queue
    have as many names.

    Of the newcomers of one sender (a lane without its session) the newest passes all others of the
    sender, in every second of its turns at most: nobody waits more than twice as long for them.
    """

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()
        self._last: Lane = ()
        """Lane that had the last turn."""
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[tuple[Lane, T]]:
        """All items; those of the names whose turn is next come first."""
        return self._root.items(())

    def first(self) -> T | None:
        """The first item of all; None when there is none."""
        node = self._root
        while True:
            if node.newcomers and (newcomer := node.first_newcomer()) is not None:
                return newcomer
            if node.waiting:
                return node.waiting[0]
            if not node.names:
                return None
            node = next(iter(node.names.values()))

    def served(self, lane: Lane, item: T | None = None) -> None:
        """The lane had a turn: at each level its name goes behind the others.

        Args:
            lane: Of the item that has the turn.
            item: None when it does not wait in the queue.
        """
        self._last = lane
        node = self._root
        for name in lane:
            if name not in node.names:
                return
            passed = item is not None and bool(node.newcomers)
            node.passed = passed and item is node.first_newcomer()
            node.names.move_to_end(name)
            node = node.names[name]

    def push(self, lane: Lane, item: T, newcomer: bool = False) -> None:
        """Add an item behind those of its lane.

        Args:
            lane: All of its names.
            item: Hashable if it is a newcomer.
            newcomer: It may pass.
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
            sender.newcomers[item] = lane
        self._size += 1

    def put_back(self, lane: Lane, item: T) -> None:
        """Add an item before all others."""
        node = self._root
        for name in lane:
            if name not in node.names:
                node.names[name] = _Node()
            node.names.move_to_end(name, last=False)
            node = node.names[name]
        node.waiting.appendleft(item)
        self._size += 1
        self._last = ()

    def remove(self, lane: Lane, item: T) -> bool:
        """Take an item out; False when it is not there."""
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
    """One name of a level."""

    __slots__ = ("names", "newcomers", "passed", "waiting")

    def __init__(self) -> None:
        self.names: OrderedDict[str, _Node[T]] = OrderedDict()
        """Of the next level, the one whose turn is next first."""
        self.waiting: deque[T] = deque()
        self.newcomers: dict[T, Lane] = {}
        """Those of the lanes directly below."""
        self.passed = False
        """The last turn was that of a newcomer that passed others."""

    def first_newcomer(self) -> T | None:
        """The newcomer that goes before all others now."""
        return next(reversed(self.newcomers), None) if not self.passed else None

    def items(self, lane: Lane, besides: T | None = None) -> Iterator[tuple[Lane, T]]:
        """All items below but one, with their lanes."""
        if self.newcomers and (first := self.first_newcomer()) is not None:
            besides = first
            yield self.newcomers[first], first
        for item in self.waiting:
            if item is not besides:
                yield lane, item
        for name, node in self.names.items():
            yield from node.items((*lane, name), besides)


def crowding(waiting: Iterable[tuple[Lane, T]], lane: Lane) -> T | None:
    """The item that gives way to one more of `lane` when no more may wait.

    At each level, from the outermost: the name that has the most items gives way where it has at
    least two more than the name of `lane`. So nobody keeps more than half while others ask.

    Args:
        waiting: In the order in which they came.
        lane: Of the item that comes.

    Returns:
        The newest item of who has the most; None when `lane` itself has its share.
    """
    items: Sequence[tuple[Lane, T]] = list(waiting)
    for level, name in enumerate(lane):
        counts = Counter(one[level] for one, _ in items)
        if not counts:
            return None
        most = max(counts, key=counts.__getitem__)
        if counts[most] > counts[name] + 1:
            return _newest(items, most, level)
        items = [pair for pair in items if pair[0][level] == name]
    return None


def _newest(items: Sequence[tuple[Lane, T]], name: str, level: int) -> T:
    """The newest item of the name that has the most at each level below `name`."""
    while True:
        items = [pair for pair in items if pair[0][level] == name]
        level += 1
        if level == len(items[0][0]):
            return items[-1][1]
        counts = Counter(one[level] for one, _ in items)
        name = max(counts, key=counts.__getitem__)
