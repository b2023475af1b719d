"""Calls of a script's callback, one for each policy update of an engine."""

import logging
import re
import threading
from collections.abc import Callable

from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.protocol.schemas import EngineState

log = logging.getLogger(__name__)


class UpdateCalls:
    """Counter of policy updates that calls a callback once for each.

    It counts by the global step, so that no update is missed between two polls.

    A call is due when the engine is in WEIGHT_SYNCING, at the latest when it is in a later step.
    Calls are made one after the other, on a thread that runs while some are due.

    Args:
        callback: Called without arguments.
        ended: Returns how training ended, as `Completion.ended`; empty while it is not complete.
        seen: Current status; no call is made for an update that has already begun.
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
        """Step of the next update to call for; None while the step is unknown."""
        self._sync_since = 0.0
        """`since` of the last WEIGHT_SYNCING for which a call was made."""
        self._due = 0
        self._calling = False
        self._lock = threading.Lock()
        if seen.reachable and seen.step:
            syncing = seen.state is EngineState.WEIGHT_SYNCING
            self._next = seen.step + syncing

    def note(self, seen: ServerStatus) -> None:
        """Record a changed status and make the calls that are due."""
        if not seen.reachable:
            return
        if seen.state in (EngineState.OFFLINE, EngineState.BOOTING):
            self._until(_last(self._ended(seen)) + 1)  # the rest of a completed run
            self._next = None
            return
        if seen.step:
            if self._next is None or seen.step < self._next - 1:
                self._next = seen.step  # first observation, or a restart at a lower step
            self._until(seen.step)
        if seen.state is EngineState.WEIGHT_SYNCING and seen.since != self._sync_since:
            self._sync_since = seen.since
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
            except Exception:  # from the script; later updates are still called for
                log.exception("a callback of a weight sync failed")


def _last(ended: str) -> int:
    """Return the last step of a complete run; -1 when the server does not name it."""
    match = re.search(r"\bstep (\d+)", ended)
    return int(match[1]) if match else -1
