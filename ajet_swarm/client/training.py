"""What a client learns from one status after the other: the end of training, and the updates.

`Completion` and `UpdateCalls` are listeners of the watcher.
"""

import logging
import re
from collections.abc import Callable
from typing import Final

from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.tasks import Tasks, in_thread
from ajet_swarm.job.tree import get, load_job
from ajet_swarm.protocol.schemas import EngineState

log = logging.getLogger(__name__)

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


class UpdateCalls:
    """Counter of policy updates that calls a callback once for each.

    It counts by the global step, so that no update is missed between two polls.

    A call is due when the engine is in WEIGHT_SYNCING, at the latest when it is in a later step.
    Calls are made one after the other, each on a thread of its own.

    Args:
        callback: Called without arguments.
        ended: Returns how training ended, as `Completion.ended`; empty while it is not complete.
        seen: Current status; no call is made for an update that has already begun.
        tasks: Owner of the task that makes the calls.
    """

    def __init__(
        self,
        callback: Callable[[], object],
        ended: Callable[[ServerStatus], str],
        seen: ServerStatus,
        tasks: Tasks,
    ) -> None:
        self._callback = callback
        self._ended = ended
        self._tasks = tasks
        self._next: int | None = None
        """Step of the next update to call for; None while the step is unknown."""
        self._sync_since = 0.0
        """`since` of the last WEIGHT_SYNCING for which a call was made."""
        self._due = 0
        self._calling = False
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
        self._due += count
        if not self._calling:
            self._calling = True
            self._tasks.spawn(self._run(), "weight sync")

    async def _run(self) -> None:
        while self._due:
            self._due -= 1
            try:
                await in_thread(self._callback)
            except Exception:  # from the script; later updates are still called for
                log.exception("a callback of a weight sync failed")
        self._calling = False


def _last(ended: str) -> int:
    """Return the last step of a complete run; -1 when the server does not name it."""
    match = re.search(r"\bstep (\d+)", ended)
    return int(match[1]) if match else -1
