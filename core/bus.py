"""Publishes events: stamps, reduces, journals and hands them to whoever follows.

Publishing is synchronous and takes constant time; it never raises into the path of a request.
A subscriber has a bounded queue; one that falls behind gets a single gap and re-reads the snapshot.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable

import msgspec

from core.events import Event
from core.journal.writer import Journal
from core.reducer import reduce
from core.reducer.common import Dirty
from core.state import State

log = logging.getLogger(__name__)

Listener = Callable[[Event, Dirty], None]
_stamp = msgspec.structs.force_setattr
QUEUE_CAP = 4_096
SNAPSHOT_EVERY = 20_000
"""Events between two snapshots of the state in the journal."""


class Subscription:
    """What one follower has not read yet. One reader only."""

    def __init__(self, cap: int = QUEUE_CAP) -> None:
        self._items: deque[Event] = deque()
        self._cap = cap
        self._woken = asyncio.Event()
        self.gap = False
        """True once events were dropped: read the snapshot, then `resume`."""

    def push(self, event: Event) -> None:
        """Add an event, or note the gap when the reader is too far behind."""
        if len(self._items) >= self._cap:
            self._items.clear()
            self.gap = True
        if not self.gap:
            self._items.append(event)
        self._woken.set()

    def resume(self) -> None:
        """The snapshot was read: events from here on are wanted again."""
        self.gap = False

    def wake(self) -> None:
        """Let the reader look again although nothing came."""
        self._woken.set()

    async def next(self, seconds: float) -> list[Event]:
        """All events that wait, or an empty list after `seconds` without one, or at a gap."""
        if not self._items and not self.gap:
            self._woken.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._woken.wait()
            except TimeoutError:
                return []
        found = list(self._items)
        self._items.clear()
        return found


class Bus:
    """The one place where events become true."""

    def __init__(
        self,
        journal: Journal,
        run_id: str,
        state: State | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.journal = journal
        self.run_id = run_id
        self.state = state if state is not None else journal.load_state()
        self.clock = clock
        self._subscriptions: set[Subscription] = set()
        self._listeners: list[tuple[Listener, frozenset[type[Event]] | None]] = []
        self._by_kind: dict[type[Event], tuple[Listener, ...]] = {}
        self._since_snapshot = 0

    def publish(self, event: Event) -> int:
        """Make `event` true; returns its `seq`, for `Journal.durable`.

        The event is stamped where it is, for a copy would cost more than all the rest: who makes it
        hands it over. One that was published before is copied.
        """
        seq = self.state.seq + 1
        if event.seq:
            event = msgspec.structs.replace(event)
        _stamp(event, "seq", seq)
        _stamp(event, "run_id", self.run_id)
        if not event.at:
            _stamp(event, "at", self.clock())
        try:
            dirty = reduce(self.state, event)
        except Exception:  # a fault in the view of things must not reach a user's request
            log.exception("the reducer failed on %s", event.kind)
            self.state.seq = seq
            dirty = frozenset()
        self.journal.append(event)
        for subscription in self._subscriptions:
            subscription.push(event)
        kind = type(event)
        listeners = self._by_kind.get(kind)
        if listeners is None:
            listeners = self._by_kind[kind] = self._those_for(kind)
        for listener in listeners:
            listener(event, dirty)
        self._since_snapshot += 1
        if self._since_snapshot >= SNAPSHOT_EVERY:
            self._since_snapshot = 0
            self.journal.append_snapshot(self.state)
        return seq

    async def publish_committed(self, event: Event) -> int:
        """Publish and wait until no kill of the process loses the event.

        Raises:
            JournalError: it could not be written.
        """
        seq = self.publish(event)
        await self.journal.committed(seq)
        return seq

    async def publish_durable(self, event: Event) -> int:
        """Publish and wait until the event is on the disk: no loss of power loses it either.

        Raises:
            JournalError: it could not be written.
        """
        seq = self.publish(event)
        await self.journal.durable(seq)
        return seq

    def listen(self, listener: Listener, *kinds: type[Event]) -> None:
        """Call `listener` on each event, after state was changed; it is quick and never raises.

        Args:
            listener: Gets the event and what it changed.
            kinds: The only ones it is called for; all when left out.
        """
        self._listeners.append((listener, frozenset(kinds) or None))
        self._by_kind.clear()

    def _those_for(self, kind: type[Event]) -> tuple[Listener, ...]:
        return tuple(one for one, kinds in self._listeners if kinds is None or kind in kinds)

    def subscribe(self) -> Subscription:
        """Follow from now on; pair with `unsubscribe`."""
        subscription = Subscription()
        self._subscriptions.add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop following."""
        self._subscriptions.discard(subscription)

    @property
    def followers(self) -> int:
        """How many follow now."""
        return len(self._subscriptions)
