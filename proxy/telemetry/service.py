"""Telemetry of a proxy: started and stopped with it, off unless the settings enable it.

Which requests are sampled, and the events of those that are, until their group closes.

It is a listener of the bus, on the event loop. For a request that is not sampled it costs one draw,
and one look-up in a dict per event.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line
from ajet_swarm.runtime import SYSTEM, Chance
from core.bus import Bus
from core.events import Event, GroupClosed, GroupOpened, UpdateDone
from core.events.alerts import params_of
from core.events.base import GroupEvent
from core.settings import TelemetrySettings
from core.state.common import Dirty
from proxy.alerts import clear_alert, show_alert

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


if TYPE_CHECKING:
    from proxy.telemetry.export import Export, Report

log = logging.getLogger(__name__)

FLUSH_SECONDS = 3.0
"""Time limit for sending what waits when the proxy stops."""
ALERT = "telemetry"
INSTALL = "; install the OpenTelemetry SDK with: pip install 'ajet-console[otel]'"


@contextlib.asynccontextmanager
async def telemetry(
    bus: Bus,
    settings: TelemetrySettings,
    flush_seconds: float = FLUSH_SECONDS,
    chance: Chance = SYSTEM.chance,
) -> AsyncIterator[Recorder | None]:
    """Send spans and evaluation results while the context is open; yield None if it is off.

    A fault of the telemetry is an alert; it never ends the proxy.

    Args:
        bus: Source of the events.
        settings: Whether and what to send, and where.
        flush_seconds: Time limit for sending what waits at the end.
        chance: Draws the sampled requests.
    """
    if not settings.enabled or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        yield None
        return
    loop = asyncio.get_running_loop()
    failing: set[str] = set()
    """Signals that the collector does not take."""

    def show(signal: str, error: str) -> None:
        if error and not failing:
            log.warning("telemetry: the collector does not take the data: %s", error)
            show_alert(bus, ALERT, params_of("telemetry", name="OpenTelemetry", error=error))
        if error:
            failing.add(signal)
        elif signal in failing:
            failing.discard(signal)
            if not failing:
                clear_alert(bus, ALERT, "the collector takes the data")

    def report(signal: str, error: str) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(show, signal, error)

    try:
        export = await asyncio.to_thread(_export, settings, report)
    except (ImportError, AjetError, ValueError) as error:
        show("", one_line(f"{error}{INSTALL if isinstance(error, ImportError) else ''}", 300))
        yield None
        return
    recorder = Recorder(bus, settings.sample, chance, export.writer)
    try:
        yield recorder
    finally:
        await asyncio.to_thread(export.close, flush_seconds)


def _export(settings: TelemetrySettings, report: "Report") -> "Export":
    """Return what sends; the import takes a part of a second.

    Raises:
        ImportError: The extra `otel` is not installed.
        UsageError: The settings, or a variable of the environment, are invalid.
    """
    from proxy.telemetry.export import Export

    return Export(settings, report)
