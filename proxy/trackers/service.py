"""The tracker sinks of a proxy: started and stopped with it.

Runs one sink on a thread of its own, so that a slow or faulty sink costs only itself.
"""

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ajet_swarm.common.text import one_line
from core.bus import Bus
from core.events import Event, GroupClosed, LookEnded, UpdateDone
from core.events.alerts import params_of
from core.state.common import Dirty
from proxy.alerts import clear_alert, show_alert
from proxy.trackers.figures import FigureSource
from proxy.trackers.sink import StepFigures, TrackerSink, sink_kind

log = logging.getLogger(__name__)

MOST_WAITING = 100
"""Figures that wait for a sink; further ones are dropped."""
LIMIT = 20.0
"""Seconds that a sink may take for one step before it is reported as slow."""

Report = Callable[[str, str], object]
"""(name of the sink, what failed, or empty when it works again); called by any thread."""


@dataclass
class SinkRunner:
    """Hands figures to one sink."""

    name: str
    """Name of the kind of sink."""
    options: Mapping[str, Any]
    """Its options in the settings."""
    folder: Path
    """Where it may keep files."""
    report: Report
    """Called when it begins to fail, and when it works again."""
    limit: float = LIMIT
    """Seconds for one step."""
    dropped: int = 0
    """Figures that the sink did not take."""

    def __post_init__(self) -> None:
        self._waiting: queue.Queue[StepFigures | None] = queue.Queue(MOST_WAITING)
        self._busy_since = 0.0
        self._reported = False
        self._thread = threading.Thread(target=self._run, name=f"sink {self.name}", daemon=True)
        self._thread.start()

    def add(self, figures: StepFigures) -> None:
        """Take figures; returns at once, and drops them if the sink is behind."""
        since = self._busy_since
        if since and time.monotonic() - since > self.limit:
            self._fail(f"it has taken over {self.limit:g} s for one step")
        try:
            self._waiting.put_nowait(figures)
        except queue.Full:
            self.dropped += 1
            self._fail(f"it is {MOST_WAITING} steps behind")

    def close(self, seconds: float) -> None:
        """Let the sink take what waits and close it, within a time limit; blocks."""
        deadline = time.monotonic() + seconds
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=seconds)
            self._thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        """Start the sink and give it all figures, until it is closed."""
        made: list[TrackerSink] = []
        self._attempt(lambda: made.append(self._make()))
        while (figures := self._waiting.get()) is not None:
            if not made or not self._log(made[0], figures):
                self.dropped += 1
            elif self._reported:
                self._reported = False
                self.report(self.name, "")
        for sink in made:
            self._attempt(sink.close)

    def _make(self) -> TrackerSink:
        return sink_kind(self.name).make(self.options, self.folder)

    def _log(self, sink: TrackerSink, figures: StepFigures) -> bool:
        return self._attempt(lambda: sink.log(figures))

    def _attempt(self, call: Callable[[], None]) -> bool:
        """Call a method of the sink; return whether it succeeded, and report a failure."""
        self._busy_since = time.monotonic()
        try:
            call()
        except (Exception, SystemExit) as error:
            if not self._reported:
                log.warning("the sink %s failed", self.name, exc_info=error)
            self._fail(one_line(f"{type(error).__name__}: {error}", 300))
            return False
        finally:
            self._busy_since = 0.0
        return True

    def _fail(self, text: str) -> None:
        if not self._reported:
            self._reported = True
            self.report(self.name, text)


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
