"""An operation on an engine in several steps: each one is published, waits can be cancelled."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from typing import Final, TypeVar

import msgspec

from ajet_swarm.api.interface import SwarmApi
from ajet_swarm.api.stable_offline import OFF
from ajet_swarm.api.watcher import ServerStatus, Watcher
from ajet_swarm.common.errors import AjetError
from ajet_swarm.job.server import likely_causes
from ajet_swarm.protocol.job_secrets import hidden, hidden_error
from ajet_swarm.protocol.schemas import EngineState
from core.events import OperationStep, WorkChanged
from core.events.alerts import params_of
from proxy.alerts import alert_raised
from proxy.context import ProxyContext, ServerHandle
from proxy.servers.extensions import INFO

T = TypeVar("T")

POLL_LIMIT = 5.0
"""Time limit in seconds of a status poll before or after a command."""
BOOT_WAIT = 1800.0
"""Maximum number of seconds to wait for a boot; a large model takes minutes to load."""

CHECK, STOP, WAIT, SEND, START, BOOT = (
    "check the job",
    "stop the engine",
    "wait for a stable OFFLINE",
    "send the job",
    "start the engine",
    "boot",
)
_REMEDY_RUNNING: Final = "Stop the engine, correct the job, start it again"
_REMEDY_OFF: Final = "Correct the job, start it again"


async def wait_booted(name: str, watcher: Watcher, job: str) -> ServerStatus:
    """Wait until a started engine has left BOOTING.

    Args:
        name: Name of the server, for errors.
        watcher: Its watcher.
        job: Its job as YAML, for the likely causes of a failure; empty if it is not known.

    Raises:
        AjetError: it is OFFLINE again, gone, or still BOOTING after `BOOT_WAIT` seconds.
    """
    client = watcher.client
    await watcher.refresh(POLL_LIMIT)
    try:
        status = await watcher.wait_for(
            lambda seen: seen.gone or (seen.reachable and seen.state is not EngineState.BOOTING),
            BOOT_WAIT,
        )
    except TimeoutError:
        what = f"{name} has been BOOTING for {BOOT_WAIT / 60:.0f} min"
        raise AjetError(what, client.url, _REMEDY_RUNNING) from None
    if status.gone:
        what = f"{name} does not answer: {status.error}"
        raise AjetError(what, client.url, "Check that it runs")
    if status.state is EngineState.OFFLINE:
        todo = "Start it again" if await has_no_trainer(client) else likely_causes(job)
        detail = f": {hidden(status.detail, job)}" if status.detail else ""
        raise AjetError(f"the engine went back to OFFLINE{detail}", client.url, todo)
    return status


async def has_no_trainer(client: SwarmApi) -> bool:
    """Return whether it is the embedded engine; False if it does not answer.

    Only `INFO` is its own: a server with a separate trainer may have the routes of checkpoints.
    """
    with contextlib.suppress(AjetError):
        return INFO in await client.features()
    return False


class OperationCancelled(AjetError):
    """The operator has cancelled the operation."""


class JobOperation:
    """Runs the steps of an operation and publishes its progress.

    Args:
        context: The proxy's shared parts.
        server: The server.
        title: Title of the operation.
        steps: Titles of the steps that are shown, in order.
    """

    def __init__(
        self, context: ProxyContext, server: ServerHandle, title: str, steps: tuple[str, ...]
    ) -> None:
        self._context = context
        self.server = server
        self.title = title
        self.phase = "doing"
        self.job = ""
        """YAML of the job that is sent; its secrets are removed from every published text."""
        self.steps = [OperationStep(title=step) for step in steps]
        self._began = context.clock()
        self._cancelled = False
        self._wait: asyncio.Timeout | None = None
        """Scope of the step that a cancellation interrupts."""
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

    def skip(self, title: str, why: str) -> None:
        """Mark a step as not needed."""
        self._mark(title, "skipped", why)

    def end(self, phase: str, summary: str) -> None:
        """End the operation."""
        self.phase = phase
        self._publish(summary)

    async def _failure(self, error: AjetError | TimeoutError) -> AjetError:
        """End the operation after a failure or a cancellation; return the error for the caller."""
        with contextlib.suppress(TimeoutError):
            await self.server.watcher.refresh(POLL_LIMIT)
        name, state = self.server.name, self._state_text()
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
        off = self.server.watcher.current.is_in(OFF)
        params = params_of(
            "start", server=name, error=why, step=step, remedy=error.todo, off=off, left=state
        )
        self._context.bus.publish(alert_raised(f"start:{name}", params))
        todo = error.todo or (_REMEDY_OFF if off else _REMEDY_RUNNING)
        return AjetError(f"{name}: {what}", todo=todo)

    def _state_text(self) -> str:
        """Return the present state of the server as text."""
        status = self.server.watcher.current
        state = status.raw.rpartition(".")[2] or str(status.state)
        where = f"the engine is {state}" if status.reachable else "the server does not answer now"
        done = {step.title for step in self.steps if step.phase == "done"}
        if SEND not in done:
            return f"{where}, with the job it had" + (" and stopped" if STOP in done else "")
        if START in done or status.state not in OFF:
            return f"{where}, with the job that was sent"
        return f"{where}; the job that was sent is there and waits for a start"

    def _mark(self, title: str, phase: str, detail: str = "") -> None:
        now = self._context.clock()
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
        self._context.bus.publish(
            WorkChanged(
                server=self.server.name,
                work=self.title,
                steps=tuple(self.steps),
                phase=self.phase,
                began=self._began,
                said=hidden(summary, self.job),
            )
        )
