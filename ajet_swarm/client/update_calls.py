"""Callbacks of scripts: one call for each policy update of an engine."""

import logging
import re
import threading
from collections.abc import Callable

from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.protocol.schemas import EngineState

log = logging.getLogger(__name__)


class UpdateCalls:
    """Counts updates by the global step, so that none is missed between two polls.

    A call is due when the engine is in WEIGHT_SYNCING, at the latest when it is in a later step.
    Calls are made one after the other, on a thread that runs while some are due.

    Args:
        callback: Called without arguments.
        ended: Returns how training ended, as `Completion.ended`; empty while it is not complete.
        seen: Current status; an update that has already begun gets no call.
    """

    def __init__(
        self,
        callback: Callable[[], object],
        ended: Callable[[ServerStatus], str],
        seen: ServerStatus,
    ) -> None:
        self._callback = callback
        self._ended = ended
        self._next: int | None = None
        """Step of the next update that gets a call; None while no step is known."""
        self._stay = 0.0
        """Begin of the last WEIGHT_SYNCING that got a call."""
        self._due = 0
        self._calling = False
        self._lock = threading.Lock()
        if seen.reachable and seen.step:
            syncing = seen.state is EngineState.WEIGHT_SYNCING
            self._next = seen.step + syncing

    def note(self, seen: ServerStatus) -> None:
        """Record a changed status."""
        if not seen.reachable:
            return
        if seen.state in (EngineState.OFFLINE, EngineState.BOOTING):
            self._until(_last(self._ended(seen)) + 1)  # of a run that is complete
            self._next = None
            return
        if seen.step:
            if self._next is None or seen.step < self._next - 1:
                self._next = seen.step  # first seen, or started again in a lower step
            self._until(seen.step)
        if seen.state is EngineState.WEIGHT_SYNCING and seen.since != self._stay:
            self._stay = seen.since
            if self._next is None:  # an engine that does not report its step
                self._call(1)
            elif seen.step:
                self._until(seen.step + 1)

    def _until(self, step: int) -> None:
        """Make the missing calls for updates before `step`."""
        if self._next is not None and step > self._next:
            self._call(step - self._next)
            self._next = step

    def _call(self, count: int) -> None:
        with self._lock:
            self._due += count
            if self._calling:
                return
            self._calling = True
        threading.Thread(target=self._run, name="weight sync", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._due:
                    self._calling = False
                    return
                self._due -= 1
            try:
                self._callback()
            except Exception:  # code of a script: the next update still gets its call
                log.exception("a callback of a weight sync failed")


def _last(ended: str) -> int:
    """Return the last step of a complete run; -1 when the server does not name it."""
    match = re.search(r"\bstep (\d+)", ended)
    return int(match[1]) if match else -1
