"""Commands about jobs: save a job, start with one, replace the running one."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from ajet_swarm.api import stable_offline
from ajet_swarm.api.stable_offline import (
    OFF,
    quiet_seconds,
    wait_stable_offline,
)
from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.common.errors import AjetError
from ajet_swarm.job.schema import MODEL
from ajet_swarm.job.server import likely_causes
from ajet_swarm.job.tree import CheckedJob, check_job, dump_job, get, load_job, put
from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.job_secrets import hidden_error
from ajet_swarm.protocol.schemas import EngineState
from core.events import AlertCleared, JobSent
from core.events.alerts import params_of
from core.jobs import (
    votes_text,
)
from proxy.alerts import alert_raised
from proxy.context import ProxyContext, ServerHandle
from proxy.control.job_info import last_sent, presets, starts_as_it_was
from proxy.control.job_operation import JobOperation, OperationCancelled
from proxy.control.job_store import JobStore
from proxy.servers.extensions import INFO, engine_info, offers

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


class JobCommands:
    """The job commands of one proxy; at most one operation runs on a server at a time."""

    def __init__(
        self,
        context: ProxyContext,
        find_server: Callable[[Mapping[str, Any]], ServerHandle],
    ) -> None:
        self.context = context
        self.store = JobStore.beside(context.journal.path)
        self.quiet = stable_offline.QUIET
        """Seconds for which a stopped server with a trainer must stay OFFLINE before a start."""
        self._find_server = find_server
        self._operations: dict[str, JobOperation] = {}
        self.table: Mapping[str, Callable[[dict[str, Any]], Awaitable[str]]] = {
            "engine.start": self._start,
            "engine.job": self._save,
            "engine.apply": self._apply,
            "engine.cancel": self._cancel,
        }

    # --- which job ------------------------------------------------------------------------------

    async def choose(self, server: ServerHandle, args: Mapping[str, Any]) -> tuple[str, str]:
        """Return the text of the job to use, and its origin: given, saved, or the name of a preset.

        In this order: the job in the arguments, the preset they name, the saved job, the job last
        sent to an AgentJet server, the default.

        Raises:
            JobError: the job is invalid; names the line.
            AjetError: the saved job cannot be read, or the server does not respond.
        """
        if (text := args.get("job")) is not None:
            whole = await asyncio.to_thread(self.store.restored, server.name, str(text))
            self._read(whole, "job")
            return whole, "given"
        preset = args.get("preset")
        saved = await asyncio.to_thread(self.store.load, server.name)
        if not preset and saved:
            self._read(saved[0], str(self.store.path(server.name)))
            return saved[0], "saved"
        embedded = await server.client.is_embedded()
        sent = last_sent(self.context, server.name)
        if preset == "last" or (not (preset or embedded) and sent):
            if not sent:
                raise AjetError("no job was sent from here", server.name, "Use `default`")
            return await asyncio.to_thread(self.store.restored, server.name, sent), "last"
        preset = preset or "default"
        jobs = await presets(self.context, server, embedded, saved[0] if saved else "")
        return dump_job(jobs[preset]), preset

    async def _keeps_present_job(self, server: ServerHandle, args: Mapping[str, Any]) -> bool:
        """Return whether a start runs the job that the server has, which another client sent."""
        if args.get("job") is not None or args.get("preset"):
            return False
        saved = await asyncio.to_thread(self.store.load, server.name)
        if not starts_as_it_was(self.context, server.name, saved[1] if saved else 0.0):
            return False
        if not await server.client.is_embedded():
            return True
        return (await engine_info(server.client)).job is not None

    @staticmethod
    def _read(text: str, where: str) -> CheckedJob:
        return check_job(text, where)

    async def _save(self, args: dict[str, Any]) -> str:
        server = self._find_server(args)
        text, origin = await self.choose(server, args)
        notices = self._read(text, "job").notices
        if any(one.of_agentjet for one in notices) and await server.client.is_embedded():
            notices = tuple(one for one in notices if not one.of_agentjet)
        file = await asyncio.to_thread(self.store.save, server.name, text)
        message = f"{server.name}: the job is saved in {file}; the next start takes it"
        if origin != "given":
            message = f"{server.name}: the {origin} job is saved in {file}"
        warnings = [f"line {one.line}: {one.text}" if one.line else one.text for one in notices[:5]]
        rest = [f"and {len(notices) - 5} more"] if len(notices) > 5 else []
        return "; ".join([message, *warnings, *rest])

    # --- operations -----------------------------------------------------------------------------

    def running(self, server: ServerHandle) -> JobOperation | None:
        """Return the operation that runs on the server's engine, or None."""
        operation = self._operations.get(server.name)
        return operation if operation is not None and not operation.ended else None

    async def _cancel(self, args: dict[str, Any]) -> str:
        server = self._find_server(args)
        operation = self.running(server)
        assert operation is not None
        operation.cancel()
        return f"{server.name}: `{operation.title}` ends at its next safe place"

    async def _start(self, args: dict[str, Any]) -> str:
        server = self._find_server(args)
        if await self._keeps_present_job(server, args):
            operation = await self.begin_start(server, "Start", (START, BOOT))
            await self._run(server, operation, lambda: self._start_as_it_was(server, operation))
            return f"{server.name} is starting with the job it had, which another client sent"
        text, origin = await self._choose_and_save(server, args)
        await server.client.prepared(text)  # refuse a job that cannot start before any step
        operation = await self.begin_start(server, "Start", (SEND, START, BOOT))
        await self._run(
            server, operation, lambda: self._send_and_start(server, operation, text, origin)
        )
        return f"{server.name} is starting{_suffix(origin, text)}"

    async def _apply(self, args: dict[str, Any]) -> str:
        server = self._find_server(args)
        text, origin = await self._choose_and_save(server, args)
        operation = self.begin(server, "Apply a job", (CHECK, STOP, WAIT, SEND, START, BOOT))
        await self._run(server, operation, lambda: self._replace(server, operation, text, origin))
        return f"{server.name} is starting{_suffix(origin, text)}: its engine was stopped for it"

    async def _choose_and_save(
        self, server: ServerHandle, args: Mapping[str, Any]
    ) -> tuple[str, str]:
        text, origin = await self.choose(server, args)
        if (model := args.get("model")) and not await server.client.is_embedded():
            tree = load_job(text)
            if not get(tree, MODEL):
                put(tree, MODEL, model)
                text = dump_job(tree)
        if origin == "given":
            await asyncio.to_thread(self.store.save, server.name, text)
        return text, origin

    def begin(self, server: ServerHandle, title: str, steps: tuple[str, ...]) -> JobOperation:
        """Begin an operation on the engine of a server; the caller ends it."""
        operation = self._operations[server.name] = JobOperation(
            self.context, server.name, title, steps
        )
        return operation

    async def begin_start(
        self, server: ServerHandle, title: str, steps: tuple[str, ...]
    ) -> JobOperation:
        """Begin a start; its first step is `WAIT` if the server went OFFLINE a moment ago."""
        wait = (WAIT,) if await self._seconds_to_wait(server) else ()
        return self.begin(server, title, (*wait, *steps))

    async def wait_if_first(self, server: ServerHandle, operation: JobOperation) -> None:
        """Run `WAIT` if it is the first step of an operation: see `begin_start`.

        Raises:
            OperationCancelled: the operator has cancelled the operation.
            TimeoutError: the server did not stay OFFLINE in time.
            SwarmError: the server accepts no connections.
        """
        if operation.steps[0].title == WAIT:
            seconds = await self._seconds_to_wait(server)
            await operation.step(
                WAIT,
                wait_stable_offline(server.watcher, seconds),
                interruptible=True,
            )

    async def _seconds_to_wait(self, server: ServerHandle) -> float:
        """Return the seconds for which a server must stay OFFLINE before it is started.

        They count from the stop that this client sent or from the time at which the server was
        first seen OFFLINE, whichever is later: a trainer may also end by itself.
        """
        status = server.watcher.current
        went_off = max(server.client.stopped_at, status.since if status.is_in(OFF) else 0.0)
        left = min(went_off + self.quiet - server.watcher.clock(), self.quiet)
        return 0.0 if left <= 0 or await _has_no_trainer(server) else left

    async def _run(
        self, server: ServerHandle, operation: JobOperation, work: Callable[[], Awaitable[None]]
    ) -> None:
        """Run an operation in its own task, which outlives the caller; return before the boot.

        Raises:
            AjetError: a step failed or was cancelled; says what state the server is in.
        """
        self.context.bus.publish(AlertCleared(key=f"start:{server.name}"))
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.context.tasks.spawn(
            self._run_operation(server, operation, work, started), f"work:{server.name}"
        )
        await asyncio.shield(started)

    async def _run_operation(
        self,
        server: ServerHandle,
        operation: JobOperation,
        work: Callable[[], Awaitable[None]],
        started: "asyncio.Future[None]",
    ) -> None:
        try:
            await self.wait_if_first(server, operation)
            await work()
        except (AjetError, TimeoutError) as error:
            failure = await self.end_failed(server, operation, error)
            if not started.done():
                started.set_exception(failure)
                started.exception()  # mark it as retrieved: the caller may be gone
            return
        except asyncio.CancelledError:
            operation.end("failed", "the proxy ended meanwhile: look at the engine's state")
            started.cancel()
            raise
        if not started.done():
            started.set_result(None)
        await self._boot(server, operation)

    # --- the steps ------------------------------------------------------------------------------

    async def _replace(
        self, server: ServerHandle, operation: JobOperation, text: str, origin: str
    ) -> None:
        operation.job = text
        await operation.step(CHECK, self._check_accepted(server, text))
        if server.watcher.current.is_in(OFF):
            operation.skip(STOP, "it is OFFLINE")
        else:
            await operation.step(STOP, server.client.stop_engine())
            server.watcher.nudge()
        quiet = quiet_seconds(await _has_no_trainer(server), self.quiet)
        await operation.step(WAIT, wait_stable_offline(server.watcher, quiet), interruptible=True)
        await self._send_and_start(server, operation, text, origin)

    async def _check_accepted(self, server: ServerHandle, text: str) -> None:
        """Refuse a job that the server cannot accept, before anything is stopped."""
        status = await server.watcher.refresh(POLL_LIMIT)
        if not status.reachable:
            raise AjetError(f"{server.name} does not answer: {status.error}")
        await server.client.prepared(text)

    async def _send_and_start(
        self, server: ServerHandle, operation: JobOperation, text: str, origin: str
    ) -> None:
        operation.job = text
        sent = await operation.step(SEND, server.client.sync_train_config(text))
        masked = await asyncio.to_thread(self.store.masked, sent)
        self.context.bus.publish(JobSent(server=server.name, yaml=masked, how=origin))
        await operation.step(START, server.client.start_engine())
        server.watcher.nudge()

    async def _start_as_it_was(self, server: ServerHandle, operation: JobOperation) -> None:
        try:
            await operation.step(START, server.client.start_engine())
        except SwarmError as error:
            if "No training config" not in error.what:
                raise
            raise AjetError(
                "the server has no job any more: it was restarted",
                server.name,
                "Send the one last sent from here: `engine-start --preset last`; the default: "
                "`engine-start --preset default`; or apply a job",
            ) from error
        server.watcher.nudge()

    async def _boot(self, server: ServerHandle, operation: JobOperation) -> None:
        try:
            booted = self._wait_booted(server, operation.job)
            status = await operation.step(BOOT, booted, interruptible=True)
        except (AjetError, TimeoutError) as error:
            await self.end_failed(server, operation, error)
            return
        step = "" if status.step is None else f", step {status.step}"
        operation.end("done", f"{server.name} is {status.raw.rpartition('.')[2]}{step}")

    async def _wait_booted(self, server: ServerHandle, job: str) -> ServerStatus:
        await server.watcher.refresh(POLL_LIMIT)
        status = await server.watcher.wait_for(
            lambda one: one.gone or (one.reachable and one.state is not EngineState.BOOTING),
            BOOT_WAIT,
        )
        if status.gone:
            raise AjetError(
                f"{server.name} does not answer: {status.error}", todo="Check that it runs"
            )
        if status.state is EngineState.OFFLINE:
            has_trainer = not await _has_no_trainer(server)
            raise AjetError(
                f"the engine went back to OFFLINE{': ' if status.detail else ''}{status.detail}",
                todo=likely_causes(job) if has_trainer else "Start it again",
            )
        return status

    # --- the end --------------------------------------------------------------------------------

    async def end_failed(
        self, server: ServerHandle, operation: JobOperation, error: Exception
    ) -> AjetError:
        """End an operation that failed or was cancelled; return the error for the caller."""
        with contextlib.suppress(TimeoutError):
            await server.watcher.refresh(POLL_LIMIT)
        failed_step = next(
            (one for one in operation.steps if one.phase in ("failed", "cancelled")), None
        )
        state = server_state_text(server.watcher.current, operation)
        if isinstance(error, OperationCancelled):
            last = next((one.title for one in reversed(operation.steps) if one.began), "")
            operation.end("cancelled", f"cancelled at `{last}`; {state}")
            return AjetError(f"`{operation.title}` was cancelled at `{last}`; {state}", server.name)
        if isinstance(error, AjetError):
            error = hidden_error(error, operation.job)
        why = (error.what if isinstance(error, AjetError) else "it took too long").rstrip(".")
        step = failed_step.title if failed_step is not None else operation.title
        operation.end("failed", f"`{step}` failed: {why}; {state}")
        off = server.watcher.current.is_in(OFF)
        remedy = error.todo if isinstance(error, AjetError) else ""
        failure = params_of(
            "start", server=server.name, error=why, step=step, remedy=remedy, off=off, left=state
        )
        key = f"start:{server.name}"
        self.context.bus.publish(alert_raised(key, failure))
        todo = remedy or (_REMEDY_OFF if off else _REMEDY_RUNNING)
        return AjetError(f"{server.name}: `{step}` failed: {why}; {state}", todo=todo)


async def _has_no_trainer(server: ServerHandle) -> bool:
    """Return whether it is the embedded engine; False if it does not answer.

    Only `INFO` is its own: a server with a separate trainer may have the routes of checkpoints.
    """
    with contextlib.suppress(AjetError):
        return await offers(server, INFO)
    return False


def server_state_text(status: ServerStatus, operation: JobOperation) -> str:
    """Return the present state of a server after an operation, as text."""
    state = status.raw.rpartition(".")[2] or str(status.state)
    where = f"the engine is {state}" if status.reachable else "the server does not answer now"
    done = {one.title for one in operation.steps if one.phase == "done"}
    if SEND not in done:
        stopped = STOP in done
        return f"{where}, with the job it had" + (" and stopped" if stopped else "")
    if START in done or status.state is not EngineState.OFFLINE:
        return f"{where}, with the job that was sent"
    return f"{where}; the job that was sent is there and waits for a start"


_REMEDY_RUNNING: Final = "Stop the engine, correct the job, start it again"
_REMEDY_OFF: Final = "Correct the job, start it again"


def _suffix(origin: str, text: str) -> str:
    """Return which job a server starts with."""
    if origin == "hand":
        return f" with the job for rating by hand: {votes_text(load_job(text))}"
    return _JOB_SUFFIX.get(origin, "")


_JOB_SUFFIX: Final = {
    "given": " with this job",
    "saved": " with its saved job",
    "last": " with the job last sent from here",
}
"""Suffix of the message about a start, by the job's origin; none for the default job."""
