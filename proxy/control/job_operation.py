"""An operation on an engine in several steps: each one is published, waits can be cancelled."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import InitVar, dataclass
from typing import Final, TypeVar

import msgspec

from ajet_swarm.api.watcher import OFF, ServerStatus, Watcher, quiet_seconds, wait_stable_offline
from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.common.errors import AjetError
from ajet_swarm.job.server import likely_causes
from ajet_swarm.protocol.job_secrets import hidden, hidden_error
from ajet_swarm.protocol.schemas import EngineState
from core.events import Event, OperationStep, WorkChanged
from core.events.alerts import params_of
from proxy.alerts import alert_raised
from proxy.servers.extensions import INFO

T = TypeVar("T")

POLL_LIMIT = 5.0
"""Time limit in seconds of a status poll before or after a command."""
BOOTING: Final = EngineState.BOOTING
BOOT_WAIT = 1800.0
"""Maximum number of seconds to wait for a boot; a large model takes minutes to load."""

ALL_STEPS: Final = (
    "check the job",
    "stop the engine",
    "wait for a stable OFFLINE",
    "send the job",
    "start the engine",
    "boot",
)
CHECK, STOP, WAIT, SEND, START, BOOT = ALL_STEPS
_REMEDY_RUNNING: Final = "Stop it with `engine stop`, correct the job, start it again"
_REMEDY_OFF: Final = "Correct the job, start it again"


async def has_no_trainer(client: SwarmWire) -> bool:
    """Return whether it is the embedded engine; False if it does not answer.

    Only `INFO` is its own: a server with a separate trainer may have the routes of checkpoints.
    """
    with contextlib.suppress(AjetError):
        return INFO in await client.features()
    return False


class OperationCancelled(AjetError):
    """The operator has cancelled the operation."""


@dataclass
class JobOperation:
    """Runs the steps of an operation on an engine and publishes its progress."""

    client: SwarmWire
    """Client of the engine's server."""
    watcher: Watcher
    publish: Callable[[Event], object]
    """Called with each event about it."""
    clock: Callable[[], float]
    """Returns Unix seconds."""
    title: str
    """Title of the operation."""
    titles: InitVar[tuple[str, ...]]
    """Titles of the steps that are shown, in order."""
    phase: str = "doing"
    job: str = ""
    """YAML of the job that is sent; its secrets are removed from every published text."""
    _cancelled: bool = False
    _wait: asyncio.Timeout | None = None
    """Scope of the step that a cancellation interrupts."""

    def __post_init__(self, titles: tuple[str, ...]) -> None:
        self.steps = [OperationStep(title=step) for step in titles]
        self._began = self.clock()
        self._publish()

    @property
    def ended(self) -> bool:
        """Whether the operation has ended."""
        return self.phase != "doing"

    def cancel(self) -> None:
        """Request cancellation: a wait ends at once, a request to the server is completed first."""
        if not self._cancelled and not self.ended:
            self._cancelled = True
            if self._wait is not None:
                self._wait.reschedule(0.0)

    @contextlib.asynccontextmanager
    async def reported(self) -> AsyncIterator[None]:
        """Context of the steps: a failure ends the operation, with an alert.

        Raises:
            AjetError: a step failed or was cancelled; says what state the server is in.
        """
        try:
            yield
        except (AjetError, TimeoutError) as error:
            raise await self._failure(error) from None
        except asyncio.CancelledError:
            self.end("failed", "the proxy ended meanwhile: look at the engine's state")
            raise

    async def step(self, title: str, work: Awaitable[T], *, interruptible: bool = False) -> T:
        """Run one step.

        Args:
            title: Title of the step.
            work: The work of the step.
            interruptible: Whether a cancellation may interrupt it: it only waits.

        Raises:
            OperationCancelled: the operator has cancelled the operation; the step may be complete.
        """
        self._mark(title, "doing")
        try:
            async with asyncio.timeout(None) as scope:
                self._wait = scope if interruptible else None
                result = await work
        except BaseException as error:  # after any failure the step must not be shown as running
            if self._cancelled and interruptible and isinstance(error, TimeoutError):
                self._mark(title, "cancelled")
                raise OperationCancelled("cancelled") from None
            self._mark(title, "failed", str(error) or type(error).__name__)
            raise
        finally:
            self._wait = None
        self._mark(title, "done")
        if self._cancelled:
            raise OperationCancelled("cancelled")
        return result

    async def stop_for(self, job: str, quiet: float | None = None) -> None:
        """Stop an engine that is to start with another job, in the steps before it is sent.

        Args:
            job: The job, as YAML; it is refused before anything is stopped.
            quiet: As of `quiet_seconds`.
        """
        self.job, client, watcher = job, self.client, self.watcher
        await self.step(CHECK, self._check_accepted(job))
        if watcher.current.is_in(OFF):
            self._mark(STOP, "skipped", "it is OFFLINE")
        else:
            await self.step(STOP, client.stop_engine())
            watcher.nudge()
        await self.wait(quiet_seconds(await has_no_trainer(client), quiet))

    async def _check_accepted(self, job: str) -> None:
        status = await self.watcher.refresh(POLL_LIMIT)
        if not status.reachable:
            raise AjetError(f"{self.client.name} does not answer: {status.error}")
        await self.client.prepared(job)

    async def wait(self, seconds: float) -> None:
        """Wait until the server has been OFFLINE for some seconds; 0 for no step.

        Raises:
            OperationCancelled: the operator has cancelled the operation.
            TimeoutError: the server did not stay OFFLINE in time.
            SwarmError: the server accepts no connections.
        """
        if seconds:
            offline = wait_stable_offline(self.watcher, seconds)
            await self.step(WAIT, offline, interruptible=True)

    async def send(self, job: str) -> str:
        """Send a job; return its text as it was sent."""
        self.job = job
        return await self.step(SEND, self.client.sync_train_config(job))

    async def start(self) -> None:
        """Start the engine."""
        await self.step(START, self.client.start_engine())
        self.watcher.nudge()

    async def boot(self) -> str:
        """Wait until a started engine has left BOOTING, and end the operation; return its state.

        Raises:
            AjetError: it is OFFLINE again, gone, or still BOOTING after `BOOT_WAIT` seconds.
        """
        status = await self.step(BOOT, self._booted(), interruptible=True)
        step = "" if status.step is None else f", step {status.step}"
        state = f"{self.client.name} is {status.raw.rpartition('.')[2]}{step}"
        self.end("done", state)
        return state

    async def _booted(self) -> ServerStatus:
        name, watcher, client = self.client.name, self.watcher, self.client
        await watcher.refresh(POLL_LIMIT)
        try:
            status = await watcher.wait_for(
                lambda seen: seen.gone or (seen.reachable and seen.state is not BOOTING), BOOT_WAIT
            )
        except TimeoutError:
            raise AjetError(f"{name} has been BOOTING for {BOOT_WAIT / 60:.0f} min") from None
        if status.gone:
            raise AjetError(f"{name} does not answer: {status.error}", todo="Check that it runs")
        if status.is_in(OFF):
            todo = "Start it again" if await has_no_trainer(client) else likely_causes(self.job)
            detail = f": {status.detail}" if status.detail else ""
            raise AjetError(f"the engine went back to OFFLINE{detail}", todo=todo)
        return status

    def end(self, phase: str, summary: str) -> None:
        """End the operation."""
        self.phase = phase
        self._publish(summary)

    async def _failure(self, error: AjetError | TimeoutError) -> AjetError:
        """End the operation after a failure or a cancellation; return the error for the caller."""
        with contextlib.suppress(TimeoutError):
            await self.watcher.refresh(POLL_LIMIT)
        name, state = self.client.name, self._state_text()
        if isinstance(error, OperationCancelled):
            last = next((step.title for step in reversed(self.steps) if step.began), "")
            self.end("cancelled", f"cancelled at `{last}`; {state}")
            return AjetError(f"`{self.title}` was cancelled at `{last}`; {state}", name)
        if isinstance(error, TimeoutError):
            error = AjetError("it took too long")
        error = hidden_error(error, self.job)
        why = error.what.rstrip(".")
        step = next((step.title for step in self.steps if step.phase == "failed"), self.title)
        what = f"`{step}` failed: {why}; {state}"
        self.end("failed", what)
        off = self.watcher.current.is_in(OFF)
        params = params_of(
            "start", server=name, error=why, step=step, remedy=error.todo, off=off, left=state
        )
        self.publish(alert_raised(f"start:{name}", params))
        todo = error.todo or (_REMEDY_OFF if off else _REMEDY_RUNNING)
        return AjetError(f"{name}: {what}", todo=todo)

    def _state_text(self) -> str:
        """Return the present state of the server as text."""
        status = self.watcher.current
        state = status.raw.rpartition(".")[2] or str(status.state)
        where = f"the engine is {state}" if status.reachable else "the server does not answer now"
        done = {step.title for step in self.steps if step.phase == "done"}
        if SEND not in done:
            return f"{where}, with the job it had" + (" and stopped" if STOP in done else "")
        if START in done or status.state not in OFF:
            return f"{where}, with the job that was sent"
        return f"{where}; the job that was sent is there and waits for a start"

    def _mark(self, title: str, phase: str, detail: str = "") -> None:
        now = self.clock()
        for index, step in enumerate(self.steps):
            if step.title == title:
                self.steps[index] = msgspec.structs.replace(
                    step,
                    phase=phase,
                    began=step.began or now,
                    ended=0.0 if phase == "doing" else now,
                    detail=hidden(detail, self.job),
                )
        self._publish()

    def _publish(self, summary: str = "") -> None:
        self.publish(
            WorkChanged(
                server=self.client.name,
                work=self.title,
                steps=tuple(self.steps),
                phase=self.phase,
                began=self._began,
                said=hidden(summary, self.job),
            )
        )
