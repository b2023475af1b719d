"""Detection of completed training from the states of an engine."""

from typing import Final

from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.common.errors import AjetError
from ajet_swarm.protocol.job import get, load_job
from ajet_swarm.protocol.schemas import EngineState

COMPLETE: Final = "training complete"
"""Beginning of the embedded engine's status detail after the last of `total_training_steps`."""
TOTAL: Final = "ajet.trainer_common.total_training_steps"


class Completion:
    """Tracker of the states of one engine that detects the end of its training.

    The embedded engine reports completion in its status detail. For other servers training is
    complete when the engine went OFFLINE by itself in the last step of the job this client sent.
    """

    def __init__(self) -> None:
        self.job = ""
        """The job, as YAML, that this client sent last."""
        self._total: int | None = None
        self._sent = False
        """This client sent a job after the last observed start."""
        self._last: EngineState | None = None
        self._step = 0
        self._ran = False
        self._text = ""

    def sent(self, job: str) -> None:
        """Record the job, as YAML, that the server accepted from this client."""
        self.job = job
        try:
            total = get(load_job(job), TOTAL)
        except AjetError:  # unreadable here, although the server accepted it
            total = None
        self._total, self._sent = total if isinstance(total, int) else None, True

    def ended(self, seen: ServerStatus) -> str:
        """Return how training ended; empty while it is not known to be complete.

        The result is empty for a client that has only observed OFFLINE: another client may be about
        to start the engine. See `ended_before`.
        """
        self.note(seen)
        return self._text if seen.reachable else ""

    def note(self, seen: ServerStatus) -> None:
        """Record a status of the engine; repeating one has no effect."""
        if not seen.reachable:
            return
        last, self._last = self._last, seen.state
        if seen.state is not EngineState.OFFLINE:
            if last is EngineState.OFFLINE or (seen.state is EngineState.BOOTING is not last):
                self._begun()
            self._ran, self._text = True, ""
            self._step = 0 if seen.state is EngineState.BOOTING else seen.step or self._step
        elif self._ran and not self._text:
            self._text = ended_before(seen) or self._counted(seen)

    def _begun(self) -> None:
        """Record the start of a run with the job that this client has sent, or an unknown one."""
        self._step = 0
        if not self._sent:
            self._total = None
        self._sent = False

    def _counted(self, seen: ServerStatus) -> str:
        if (
            self._total is None
            or self._step < self._total
            or seen.trouble != "stopped by another client"
        ):
            return ""  # stopped before the last step, by this client, or with its server
        return f"{COMPLETE}: step {self._total} of {self._total}"


def ended_before(seen: ServerStatus) -> str:
    """Return the end of training that an OFFLINE engine reports; empty if it reports none."""
    off = seen.reachable and seen.state is EngineState.OFFLINE
    return seen.detail if off and seen.detail.startswith(COMPLETE) else ""
