"""Event bus: stamps each event, applies it to the state, journals it and delivers it.

Publishing is synchronous, takes constant time and never raises into the path of a request. A
subscriber has a bounded queue; one that falls behind gets a single gap and re-reads the snapshot.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

import msgspec

from ajet_swarm.runtime import SYSTEM
from core.events import Event
from core.journal.writer import Journal
from core.state import State, apply
from core.state.common import Dirty

log = logging.getLogger(__name__)

Listener = Callable[[Event, Dirty], None]
_stamp = msgspec.structs.force_setattr
QUEUE_CAP = 4_096
SNAPSHOT_EVERY = 20_000
"""Events between two snapshots of the state in the journal."""


class Subscription:
    """Queue of events that one subscriber has not read yet; for a single reader."""

    def __init__(self, cap: int = QUEUE_CAP) -> None:
        self._items: deque[Event] = deque()
        self._cap = cap
        self._woken = asyncio.Event()
        self.gap = False
        """True once events were dropped: read the snapshot, then `resume`."""

    def push(self, event: Event) -> None:
        """Add an event; drop all of them and note a gap if the queue is full."""
        if len(self._items) >= self._cap:
            self._items.clear()
            self.gap = True
        if not self.gap:
            self._items.append(event)
        self._woken.set()

    def resume(self) -> None:
        """Accept events again, after the snapshot was read."""
        self.gap = False

    def wake(self) -> None:
        """Wake the reader without an event."""
        self._woken.set()

    async def next(self, seconds: float) -> list[Event]:
        """Return all queued events; an empty list at a gap, or after `seconds` without an event."""
        if not self._items and not self.gap:
            self._woken.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._woken.wait()
            except TimeoutError:
                return []
        events = list(self._items)
        self._items.clear()
        return events


class Bus:
    """The only way by which events reach state, journal and subscribers."""

    def __init__(
        self,
        journal: Journal,
        run_id: str,
        state: State | None = None,
        clock: Callable[[], float] = SYSTEM.clock.wall,
    ) -> None:
        self.journal = journal
        self.run_id = run_id
        self.state = state if state is not None else journal.load_state()
        self.clock = clock
        self._subscriptions: set[Subscription] = set()
        self._listeners: list[tuple[Listener, tuple[type[Event], ...]]] = []
        self._by_kind: dict[type[Event], list[Listener]] = {}
        self._since_snapshot = 0

    def publish(self, event: Event) -> int:
        """Publish `event`; returns its `seq`, for `Journal.durable`.

        The event is stamped in place, because a copy would cost more than everything else: the
        caller gives it away. An event that was published before is copied.
        """
        seq = self.state.seq + 1
        if event.seq:
            event = msgspec.structs.replace(event)
        _stamp(event, "seq", seq)
        _stamp(event, "run_id", self.run_id)
        if not event.at:
            _stamp(event, "at", self.clock())
        dirty = apply(self.state, event)
        self.journal.append(event)
        for subscription in self._subscriptions:
            subscription.push(event)
        kind = type(event)
        if kind not in self._by_kind:
            self._by_kind[kind] = [
                listener for listener, kinds in self._listeners if not kinds or kind in kinds
            ]
        for listener in self._by_kind[kind]:
            try:
                listener(event, dirty)
            except Exception:  # boundary: neither the publisher nor other listeners may suffer
                log.exception("a listener of %s failed", kind.__name__)
        self._since_snapshot += 1
        if self._since_snapshot >= SNAPSHOT_EVERY:
            self._since_snapshot = 0
            self.journal.append_snapshot(self.state)
        return seq

    def publish_checked(self, event: Event) -> int:
        """Publish `event` and check that the journal can be written, without a wait for it.

        Raises:
            JournalError: It cannot be written now.
        """
        seq = self.publish(event)
        if self.journal.error:
            raise self.journal.failure()
        return seq

    async def publish_committed(self, event: Event) -> int:
        """Publish `event` and wait until it survives a kill of the process.

        Raises:
            JournalError: It could not be written.
        """
        seq = self.publish(event)
        await self.journal.committed(seq)
        return seq

    async def publish_durable(self, event: Event) -> int:
        """Publish `event` and wait until it is on the disk and survives a loss of power.

        Raises:
            JournalError: It could not be written.
        """
        seq = self.publish(event)
        await self.journal.durable(seq)
        return seq

    def listen(self, listener: Listener, *kinds: type[Event]) -> None:
        """Call `listener` for each event, after the state was changed.

        Args:
            listener: Receives the event and the keys of what it changed; must be quick. Its
                errors are logged.
            kinds: Classes of events to call it for; all if omitted.
        """
        self._listeners.append((listener, kinds))
        self._by_kind.clear()

    def subscribe(self) -> Subscription:
        """Return a queue of all events from now on; pair with `unsubscribe`."""
        subscription = Subscription()
        self._subscriptions.add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop delivering events to `subscription`."""
        self._subscriptions.discard(subscription)

    @property
    def followers(self) -> int:
        """Number of subscriptions."""
        return len(self._subscriptions)
