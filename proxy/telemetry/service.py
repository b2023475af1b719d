"""Telemetry of a proxy: started and stopped with it, off unless the settings enable it."""

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
from core.events.alerts import params_of
from core.settings import TelemetrySettings
from proxy.alerts import clear_alert, show_alert
from proxy.telemetry.recorder import Recorder

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
