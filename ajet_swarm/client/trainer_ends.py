"""When the trainer of a server last ended, as far as one client has observed it."""

import math
from collections.abc import Callable

from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.protocol.schemas import EngineState
from ajet_swarm.runtime import SYSTEM


class TrainerEnds:
    """Time since the engine last went OFFLINE, or changed its status while OFFLINE.

    An exiting trainer may report OFFLINE once more after a stop has returned. An engine that was
    OFFLINE when this client first reached the server counts as ended long ago.

    Args:
        clock: Returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = SYSTEM.clock.monotonic) -> None:
        self._clock = clock
        self._ended_at = -math.inf
        self._last: tuple[str, int | None] | None = None
        """State and step of the last status; None before the first one."""

    @property
    def age(self) -> float:
        """Seconds since the last observed end; infinite if there was none."""
        return self._clock() - self._ended_at

    def stopped(self) -> None:
        """Record that this client has stopped the engine."""
        self._ended_at = self._clock()

    def note(self, seen: ServerStatus) -> None:
        """Record a status of the server; the same status may be recorded repeatedly."""
        if not seen.reachable:
            return
        status = (seen.raw, seen.step)
        if seen.state is EngineState.OFFLINE and self._last not in (None, status):
            self._ended_at = self._clock()
        self._last = status
