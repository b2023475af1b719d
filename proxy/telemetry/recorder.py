"""Which requests are sampled, and the events of those that are, until their group closes.

It is a listener of the bus, on the event loop. For a request that is not sampled it costs one draw,
and one look-up in a dict per event.
"""

from typing import TYPE_CHECKING

from ajet_swarm.runtime import Chance
from core.bus import Bus
from core.events import Event, GroupClosed, GroupOpened, UpdateDone
from core.events.base import GroupEvent
from core.state.common import Dirty

if TYPE_CHECKING:
    from proxy.telemetry.spans import SpanWriter

MOST_OPEN = 1_000
"""Sampled groups that are open at once; further ones are not sent."""


class Recorder:
    """Collects the events of sampled groups and hands closed groups over."""

    def __init__(self, bus: Bus, share: float, chance: Chance, writer: "SpanWriter") -> None:
        """Listen to the bus.

        Args:
            bus: Source of the events.
            share: Share of the requests without a trace context that are sampled.
            chance: Draws which ones.
            writer: Takes each closed group and each update.
        """
        self._state = bus.state
        self._share = share
        self._draw = chance.random.random
        self._writer = writer
        self._open: dict[str, list[GroupEvent]] = {}
        bus.listen(self._take)

    def _take(self, event: Event, _: Dirty) -> None:
        if isinstance(event, GroupOpened):
            if self._samples(event) and len(self._open) < MOST_OPEN:
                self._open[event.group_id] = [event]
        elif isinstance(event, GroupEvent):
            if (events := self._open.get(event.group_id)) is None:
                return
            events.append(event)
            if isinstance(event, GroupClosed):
                del self._open[event.group_id]
                server = self._state.servers.get(event.server)
                self._writer.write_group(self._state.groups[event.group_id], events, server)
        elif isinstance(event, UpdateDone):
            self._writer.write_update(event)

    def _samples(self, event: GroupOpened) -> bool:
        """Return whether a request is sampled: its client decides on a trace of its own."""
        if event.traceparent:
            return bool(int(event.traceparent[53:55], 16) & 1)
        return self._draw() < self._share
