"""Commands about jobs: save a job, start with one, replace the running one."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from ajet_swarm.api import watcher
from ajet_swarm.api.watcher import OFF
from ajet_swarm.common.errors import AjetError
from ajet_swarm.job.schema import MODEL
from ajet_swarm.job.tree import check_job, dump_job, get, load_job, put
from ajet_swarm.protocol.errors import SwarmError
from core.commands.spec import Handler
from core.events import AlertCleared, JobSent
from core.jobs import votes_text
from proxy.context import ProxyContext, ServerHandle
from proxy.control.job_info import last_sent, presets, starts_as_it_was
from proxy.control.job_operation import (
    ALL_STEPS,
    BOOT,
    SEND,
    START,
    WAIT,
    Engine,
    JobOperation,
    has_no_trainer,
)
from proxy.control.job_store import JobStore
from proxy.servers.extensions import engine_info


class JobCommands:
    """The job commands of one proxy; at most one operation runs on a server at a time."""

    def __init__(self, context: ProxyContext) -> None:
        self.context = context
        self.store = JobStore.beside(context.journal.path)
        self.quiet = watcher.QUIET
        """Seconds for which a stopped server with a trainer must stay OFFLINE before a start."""
        self._operations: dict[str, JobOperation] = {}
        self.table: Mapping[str, Handler] = {
            "engine.start": self._start,
            "engine.job": self._save,
            "engine.apply": self._apply,
            "engine.cancel": self._cancel,
        }

    # --- which job ------------------------------------------------------------------------------

    async def choose(
        self, server: ServerHandle, job: str | None = None, preset: str = ""
    ) -> tuple[str, str]:
        """Return the text of the job to use, and its origin: given, saved, or the name of a preset.

        In this order: the given job, the preset, the saved job, the job last sent to an AgentJet
        server, the default.

        Raises:
            JobError: the job is invalid; names the line.
            AjetError: the saved job cannot be read, or the server does not respond.
        """
        if job is not None:
            whole = await asyncio.to_thread(self.store.restored, server.name, job)
            check_job(whole)
            return whole, "given"
        saved = await asyncio.to_thread(self.store.load, server.name)
        if not preset and saved:
            check_job(saved[0], str(self.store.path(server.name)))
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

    async def _choose_and_save(
        self, server: ServerHandle, job: str | None = None, preset: str = "", model: str = ""
    ) -> tuple[str, str]:
        text, origin = await self.choose(server, job, preset)
        if model and not await server.client.is_embedded():
            tree = load_job(text)
            if not get(tree, MODEL):
                put(tree, MODEL, model)
                text = dump_job(tree)
        if origin == "given":
            await asyncio.to_thread(self.store.save, server.name, text)
        return text, origin

    async def _keeps_present_job(self, server: ServerHandle) -> bool:
        """Return whether a start runs the job that the server has, which another client sent."""
        saved = await asyncio.to_thread(self.store.load, server.name)
        if not starts_as_it_was(self.context, server.name, saved[1] if saved else 0.0):
            return False
        if not await server.client.is_embedded():
            return True
        return (await engine_info(server.client)).job is not None

    async def _save(self, server: str = "", job: str | None = None, preset: str = "") -> str:
        handle = self.context.server_of(server)
        text, origin = await self.choose(handle, job, preset)
        checked = check_job(text)
        notices = checked.notices
        if any(notice.of_agentjet for notice in notices):
            notices = checked.notices_for(embedded=await handle.client.is_embedded())
        file = await asyncio.to_thread(self.store.save, handle.name, text)
        message = f"{handle.name}: the job is saved in {file}; the next start takes it"
        if origin != "given":
            message = f"{handle.name}: the {origin} job is saved in {file}"
        rest = [f"and {len(notices) - 5} more"] if len(notices) > 5 else []
        return "; ".join([message, *map(str, notices[:5]), *rest])

    # --- operations -----------------------------------------------------------------------------

    def running(self, server: ServerHandle) -> JobOperation | None:
        """Return the operation that runs on the server's engine, or None."""
        operation = self._operations.get(server.name)
        return operation if operation is not None and not operation.ended else None

    def _cancel(self, server: str = "") -> str:
        handle = self.context.server_of(server)
        operation = self.running(handle)
        assert operation is not None  # its plan has found it
        operation.cancel()
        return f"{handle.name}: `{operation.title}` ends at its next safe place"

    async def _start(
        self, server: str = "", job: str | None = None, preset: str = "", model: str = ""
    ) -> str:
        handle = self.context.server_of(server)
        if job is None and not preset and await self._keeps_present_job(handle):
            text, origin, steps = "", "present", [START, BOOT]
        else:
            text, origin = await self._choose_and_save(handle, job, preset, model)
            await handle.client.prepared(text)  # refuse a job that cannot start before any step
            steps = [SEND, START, BOOT]
        operation, wait = await self._begin_start(handle, "Start", *steps)
        await self._run(operation, handle, lambda: operation.wait(wait), text, origin)
        return f"{handle.name} is starting{_suffix(origin, text)}"

    async def _apply(
        self, server: str = "", job: str | None = None, preset: str = "", model: str = ""
    ) -> str:
        handle = self.context.server_of(server)
        text, origin = await self._choose_and_save(handle, job, preset, model)
        operation = self._begin(handle, "Apply a job", *ALL_STEPS)
        stop = partial(operation.stop_for, text, self.quiet)
        await self._run(operation, handle, stop, text, origin)
        return f"{handle.name} is starting{_suffix(origin, text)}: its engine was stopped for it"

    async def resume(self, server: ServerHandle, job: str = "", how: str = "") -> None:
        """Start with a job, by default the one that the server has; return before the boot.

        Raises:
            AjetError: a step failed or was cancelled; says what state the server is in.
        """
        self.context.bus.publish(AlertCleared(key=f"start:{server.name}"))
        operation, wait = await self._begin_start(server, "Resume", START)
        async with operation.reported():
            await operation.wait(wait)
            await self._send_and_start(operation, server, job, how)
        operation.end("done", f"{server.name} was started with the job it has")

    def _begin(self, server: ServerHandle, title: str, *steps: str) -> JobOperation:
        engine = Engine(server.name, server.client, server.watcher)
        publish, clock = self.context.bus.publish, self.context.clock
        operation = JobOperation(engine, publish, clock, title, steps)
        self._operations[server.name] = operation
        return operation

    async def _begin_start(
        self, server: ServerHandle, title: str, *steps: str
    ) -> tuple[JobOperation, float]:
        """Begin a start; return it with the seconds that its server must stay OFFLINE before it.

        They count from the stop that this client sent or from the time at which the server was
        first seen OFFLINE, whichever is later: a trainer may also end by itself.
        """
        status = server.watcher.current
        went_off = max(server.client.stopped_at, status.since if status.is_in(OFF) else 0.0)
        left = min(went_off + self.quiet - server.watcher.clock(), self.quiet)
        if left <= 0 or await has_no_trainer(server.client):
            return self._begin(server, title, *steps), 0.0
        return self._begin(server, title, WAIT, *steps), left

    async def _run(
        self,
        operation: JobOperation,
        server: ServerHandle,
        before: Callable[[], Awaitable[None]],
        text: str,
        origin: str,
    ) -> None:
        """Run an operation in its own task, which outlives the caller; return before the boot.

        Args:
            operation: The operation, which has begun.
            server: Its server.
            before: The steps before the job is sent.
            text: The job; empty to start with the one that the server has.
            origin: Where the job is from.

        Raises:
            AjetError: a step failed or was cancelled; says what state the server is in.
        """
        self.context.bus.publish(AlertCleared(key=f"start:{server.name}"))
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            try:
                async with operation.reported():
                    await before()
                    await self._send_and_start(operation, server, text, origin)
                    started.set_result(None)
                    await operation.boot()
            except AjetError as failure:
                if not started.done():
                    started.set_exception(failure)
                    started.exception()  # mark it as retrieved: the caller may be gone
            finally:
                started.cancel()  # without effect once it is done

        self.context.tasks.spawn(run(), f"work:{server.name}")
        await asyncio.shield(started)

    async def _send_and_start(
        self, operation: JobOperation, server: ServerHandle, text: str, origin: str
    ) -> None:
        """Send a job, if there is one to send, and start."""
        if text:
            sent = await operation.send(text)
            masked = await asyncio.to_thread(self.store.masked, sent)
            self.context.bus.publish(JobSent(server=server.name, yaml=masked, how=origin))
        try:
            await operation.start()
        except SwarmError as error:
            if origin != "present" or "No training config" not in error.what:
                raise
            raise AjetError(
                "the server has no job any more: it was restarted",
                server.name,
                "Send the one last sent from here: `engine start --preset last`; the default: "
                "`engine start --preset default`; or apply a job",
            ) from error


_JOB_SUFFIX: Final = {
    "given": " with this job",
    "saved": " with its saved job",
    "last": " with the job last sent from here",
    "present": " with the job it had, which another client sent",
}
"""Suffix of the message about a start, by the job's origin; none for the default job."""


def _suffix(origin: str, text: str) -> str:
    """Return which job a server starts with."""
    if origin == "hand":
        return f" with the job for rating by hand: {votes_text(load_job(text))}"
    return _JOB_SUFFIX.get(origin, "")
