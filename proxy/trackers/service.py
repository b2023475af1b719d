"""The tracker sinks of a proxy: started and stopped with it."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from core.bus import Bus
from core.events import Event, GroupClosed, LookEnded, UpdateDone
from core.events.alerts import params_of
from core.state.common import Dirty
from proxy.alerts import clear_alert, show_alert
from proxy.trackers.figures import FigureSource
from proxy.trackers.runner import LIMIT, SinkRunner

log = logging.getLogger(__name__)

CLOSE_SECONDS = 5.0
"""Time limit for all sinks to close when the proxy stops."""


@contextlib.asynccontextmanager
async def trackers(
    bus: Bus,
    sinks: Mapping[str, Mapping[str, Any] | None],
    home: Path,
    limit: float = LIMIT,
    close_seconds: float = CLOSE_SECONDS,
) -> AsyncIterator[Sequence[SinkRunner]]:
    """Give the figures of each step and each look to all sinks while the context is open.

    Args:
        bus: Source of the events.
        sinks: Name of each sink -> its options.
        home: Folder of the proxy; a sink keeps its files in a folder of its name there.
        limit: Seconds that a sink may take for one step before it is reported.
        close_seconds: Seconds that all sinks together may take to close.
    """
    if not sinks:
        yield ()
        return
    loop = asyncio.get_running_loop()

    def show(name: str, error: str) -> None:
        key = f"telemetry:{name}"
        if error:
            log.warning("the sink %s takes no figures: %s", name, error)
            show_alert(bus, key, params_of("telemetry", name=name, error=error))
        else:
            clear_alert(bus, key, "it takes figures again")

    def report(name: str, error: str) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(show, name, error)

    runners = [
        SinkRunner(name, options or {}, home / name, report, limit)
        for name, options in sinks.items()
    ]
    source = FigureSource(bus)

    def closed(event: Event, _: Dirty) -> None:
        assert isinstance(event, GroupClosed)
        source.count(event)

    def ended(event: Event, _: Dirty) -> None:
        if (figures := source.of(event)) is not None:
            for runner in runners:
                runner.add(figures)

    bus.listen(closed, GroupClosed)
    bus.listen(ended, UpdateDone, LookEnded)
    try:
        yield runners
    finally:
        closings = (asyncio.to_thread(runner.close, close_seconds) for runner in runners)
        await asyncio.gather(*closings)
