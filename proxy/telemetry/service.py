"""Telemetry of a proxy: started and stopped with it, off unless the settings enable it."""

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line
from core.bus import Bus
from core.events.alerts import params_of
from core.settings.telemetry import TelemetrySettings
from proxy.alerts import clear_alert, show_alert
from proxy.telemetry.recorder import Recorder

if TYPE_CHECKING:
    from proxy.telemetry.export import Exporter

log = logging.getLogger(__name__)

FLUSH_SECONDS = 3.0
"""Time limit for sending what waits when the proxy stops."""
ALERT = "telemetry"


@contextlib.asynccontextmanager
async def telemetry(
    bus: Bus, settings: TelemetrySettings, flush_seconds: float = FLUSH_SECONDS
) -> AsyncIterator["Recorder | None"]:
    """Send spans and evaluation results while the context is open; yield None if it is off.

    A fault of the telemetry is an alert; it never ends the proxy.
    """
    if not settings.enabled or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        yield None
        return
    loop = asyncio.get_running_loop()
    loop_thread = threading.get_ident()

    def show(error: str) -> None:
        if error:
            log.warning("telemetry: the collector does not take the data: %s", error)
            show_alert(bus, ALERT, params_of("telemetry", name="OpenTelemetry", error=error))
        else:
            clear_alert(bus, ALERT, "the collector takes the data")

    def report(error: str) -> None:
        if threading.get_ident() == loop_thread:
            show(error)
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(show, error)

    exporter = await asyncio.to_thread(_exporter, settings, report)
    if isinstance(exporter, str):
        report(exporter)
        yield None
        return
    recorder = Recorder(bus, settings.sample, exporter.add)
    try:
        yield recorder
    finally:
        await asyncio.to_thread(exporter.close, flush_seconds)


def _exporter(settings: TelemetrySettings, report: Callable[[str], object]) -> "Exporter | str":
    """Return the exporter, or why there is none; the import takes a part of a second."""
    from proxy.telemetry.export import Exporter

    try:
        return Exporter(settings, report)
    except AjetError as error:
        return one_line(str(error), 300)
    except (OSError, ValueError) as error:  # certificates
        return one_line(f"{type(error).__name__}: {error}", 300)
