"""Which requests are sampled, and the events of those that are, until their group closes.

All of it runs on the event loop, as listeners of the bus. For a request that is not sampled it
costs one comparison and one look-up in a dict per event.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from core.bus import Bus
from core.events import (
    AnswerReturned,
    CandidateFailed,
    CandidatesAnswered,
    EpisodeAborted,
    EpisodesClaimed,
    Event,
    GroupClosed,
    GroupEvent,
    GroupOpened,
    GroupRated,
    GroupScored,
    GroupSealed,
    RatingUndone,
    ScoringAbstained,
    UpdateDone,
)
from core.state.common import Dirty

FOLLOWED = (
    EpisodesClaimed,
    CandidatesAnswered,
    CandidateFailed,
    EpisodeAborted,
    GroupScored,
    ScoringAbstained,
    AnswerReturned,
    GroupRated,
    RatingUndone,
    GroupSealed,
)
"""Events of a sampled group that are kept until it closes."""
MOST_OPEN = 1_000
"""Sampled groups that are open at once; further ones are not sent."""
_LOW_BITS = (1 << 64) - 1


@dataclass(slots=True)
class GroupRecord:
    """The events of one sampled group."""

    trace_id: int
    """Of the trace that begins with it; unused if the client has a trace of its own."""
    opened: GroupOpened
    events: list[Event] = field(default_factory=list)
    """In their order; the last one closes the group."""
    url: str = ""
    """Address of its server."""
    model: str = ""
    """Model of its server; empty if unknown."""


@dataclass(frozen=True, slots=True)
class UpdateRecord:
    """One weight update."""

    event: UpdateDone


Record = GroupRecord | UpdateRecord


class Recorder:
    """Collects the events of sampled groups and hands complete groups over."""

    def __init__(
        self, bus: Bus, share: float, hand_over: Callable[[Record], object], seed: int | None = None
    ) -> None:
        """Listen to the bus.

        Args:
            bus: Source of the events.
            share: Share of the traces to sample, of requests without a trace context.
            hand_over: Takes a complete record; must be quick.
            seed: Of the trace ids, for tests.
        """
        self._bus = bus
        self._hand_over = hand_over
        self._bound = round(share * (1 << 64))  # as TraceIdRatioBased of the OpenTelemetry SDK
        self._bits = Random(seed).getrandbits
        self._open: dict[str, GroupRecord] = {}
        self.left_out = 0
        """Sampled groups that were not recorded because too many were open."""
        bus.listen(self._opened, GroupOpened)
        bus.listen(self._followed, *FOLLOWED)
        bus.listen(self._closed, GroupClosed)
        bus.listen(self._updated, UpdateDone)

    @property
    def open_groups(self) -> int:
        """Number of sampled groups that are open."""
        return len(self._open)

    def _opened(self, event: Event, _: Dirty) -> None:
        assert isinstance(event, GroupOpened)
        trace_id = 0
        if event.traceparent:
            if not int(event.traceparent[53:55], 16) & 1:
                return
        else:
            trace_id = self._bits(128) or 1
            if trace_id & _LOW_BITS >= self._bound:
                return
        if len(self._open) >= MOST_OPEN:
            self.left_out += 1
            return
        self._open[event.group_id] = GroupRecord(trace_id, event)

    def _followed(self, event: Event, _: Dirty) -> None:
        assert isinstance(event, GroupEvent)
        if (record := self._open.get(event.group_id)) is not None:
            record.events.append(event)

    def _closed(self, event: Event, _: Dirty) -> None:
        assert isinstance(event, GroupEvent)
        if (record := self._open.pop(event.group_id, None)) is None:
            return
        record.events.append(event)
        if (server := self._bus.state.servers.get(event.server)) is not None:
            record.url = server.url
            record.model = server.pool.model if server.pool is not None else ""
        self._hand_over(record)

    def _updated(self, event: Event, _: Dirty) -> None:
        assert isinstance(event, UpdateDone)
        self._hand_over(UpdateRecord(event))
