"""Commands about jobs: save a job, start with one, replace the running one.

Information about a server's job: as the server reports it, or else as it was last sent.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from ajet_swarm.api import watcher
from ajet_swarm.api.watcher import OFF
from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.common.errors import AjetError
from ajet_swarm.job.schema import (
    BATCH,
    EPOCHS,
    EXPERIMENT,
    KL,
    LEARNING_RATE,
    MODEL,
    REPEAT,
    STOP_RULE,
    TEMPERATURE,
)
from ajet_swarm.job.server import MODEL_VARIABLE
from ajet_swarm.job.tree import Job, JobError, check_job, dump_job, get, load_job, put
from ajet_swarm.protocol.errors import SwarmError
from core.commands.spec import Handler
from core.control_payloads import JobInfo
from core.events import AlertCleared, JobSent
from core.jobs import PRESETS, preset_job, same, votes_text
from core.settings import SHIPPED_MODEL, EngineSettings
from proxy.context import ProxyContext, ServerHandle
from proxy.control.job_operation import (
    ALL_STEPS,
    BOOT,
    SEND,
    START,
    WAIT,
    JobOperation,
    has_no_trainer,
)
from proxy.control.job_store import JobStore
from proxy.servers.extensions import engine_info

_EMBEDDED: Final = {
    "batch_size": BATCH,
    "num_repeat": REPEAT,
    "method": STOP_RULE,
    "max_env_worker": "ajet.rollout.max_env_worker",
    "max_cached_episodes": "ajet.swarm_mode_sample_collection_max_cached_episodes",
    "temperature": TEMPERATURE,
    "top_p": "ajet.rollout.top_p",
    "max_tokens": "ajet.rollout.max_response_length_in_one_turn",
    "save_freq": "ajet.trainer_common.save_freq",
    "total_training_steps": "ajet.trainer_common.total_training_steps",
    "experiment_name": EXPERIMENT,
    "model_path": MODEL,
    "hyper.lr": LEARNING_RATE,
    "hyper.epochs": EPOCHS,
    "hyper.kl": KL,
    "hyper.grad_clip": "ajet.trainer_common.optim.grad_clip",
    "hyper.advantage": "ajet.embedded.advantage",
    "hyper.damping": "ajet.embedded.damping",
}
"""Name of a value in `/ajetc/info` -> its path in a job."""


async def engine_of(client: SwarmWire, settings: EngineSettings) -> EngineSettings:
    """Return the settings with backend and model of the engine that runs.

    An engine may have been started with other options than the settings have. They are unchanged
    where it does not report them.

    Args:
        client: Client of the server; only the embedded engine has the route.
        settings: Those of this process.
    """
    try:
        info = await engine_info(client)
    except SwarmError:
        return settings
    if info.backend not in ("torch", "numpy"):
        return settings
    model = (info.model if info.backend == "torch" else "") or SHIPPED_MODEL
    return msgspec.structs.replace(settings, backend=info.backend, model=model)


async def presets(
    context: ProxyContext, server: ServerHandle, embedded: bool, saved: str = ""
) -> dict[str, Job]:
    """Return the jobs that come with the program, by name, for the embedded or another engine.

    Those of an AgentJet server have the number of GPUs of its saved job, or of the one last sent.
    """
    engine = await engine_of(server.client, context.settings.engine) if embedded else None
    like = None if embedded else _tree(saved or last_sent(context, server.name))
    return {preset: preset_job(preset, engine, remote_model(), like) for preset in PRESETS}


def last_sent(context: ProxyContext, server: str) -> str:
    """Return the job that this proxy sent last to a server, masked; empty for none."""
    known = context.bus.state.servers.get(server)
    return known.job.yaml if known is not None and known.job is not None else ""


def remote_model() -> str:
    """Return the model that the environment names for AgentJet servers; empty for none."""
    return os.environ.get(MODEL_VARIABLE, "")


def starts_as_it_was(context: ProxyContext, name: str, saved_at: float) -> bool:
    """Return whether a start keeps the server's job: another client started it after the last save.

    Args:
        context: The proxy's shared parts.
        name: Name of the server.
        saved_at: When the server's job was last saved here, in Unix seconds; 0 for never.
    """
    server = context.bus.state.servers.get(name)
    return server is not None and server.foreign_start > saved_at


async def job_info(context: ProxyContext, server: ServerHandle, store: JobStore) -> JobInfo:
    """Return everything known about the jobs of one server.

    Raises:
        AjetError: the saved job cannot be read.
    """
    saved = await asyncio.to_thread(store.load, server.name)
    text, saved_at = saved or ("", 0.0)
    sent = last_sent(context, server.name)
    base = _tree(sent)
    reported, source = await _reported(server)
    job: Job = base or {}
    differs = _take_over(reported, job, whole=base is not None)
    if base is not None and source:
        source = f"{source}, the rest as last sent from here"
    elif base is not None:
        source = "as last sent from here; the server does not report its job"
    try:
        embedded = await server.client.is_embedded()
    except SwarmError:  # it does not respond
        embedded = context.settings.servers().get(server.name) == "embedded"
    by_name = await presets(context, server, embedded, text)
    return JobInfo(
        server=server.name,
        saved=await asyncio.to_thread(store.masked, text),
        saved_at=saved_at,
        embedded=embedded,
        last=starts_as_it_was(context, server.name, saved_at),
        model="" if embedded else remote_model(),
        running=await asyncio.to_thread(store.masked, dump_job(job)) if job else "",
        source=source,
        reported=tuple(reported),
        differs=differs,
        whole=base is not None,
        default=dump_job(by_name["default"]),
        hand=dump_job(by_name["hand"]),
        path=str(store.path(server.name)),
        sent="" if embedded else sent,
    )


def _tree(text: str) -> Job | None:
    try:
        return load_job(text)
    except JobError:  # sent by a version that accepted it
        return None


async def _reported(server: ServerHandle) -> tuple[dict[str, Any], str]:
    """Return the values that the server reports, by path, and a description of this source."""
    try:
        if job := (await engine_info(server.client)).job:
            values = {path: get(job, name) for name, path in _EMBEDDED.items()}
            return _set(values), "as the engine has read it"
    except AjetError:
        return {}, ""  # it does not respond: the job that was sent is still known
    pool = server.watcher.pool
    if pool is None or pool.stale or not server.watcher.current.state.rolling:
        return {}, ""
    values = _set(
        {
            MODEL: pool.training_model_path,
            BATCH: pool.completed_task_target,
            REPEAT: pool.task_expected_num_repeat,
            STOP_RULE: pool.sample_collection_method,
        }
    )
    return values, f"{len(values)} values reported by the server" if values else ""


def _set(values: Mapping[str, Any]) -> dict[str, Any]:
    return {path: value for path, value in values.items() if value not in (None, "")}


def _take_over(reported: Mapping[str, Any], job: Job, *, whole: bool) -> tuple[str, ...]:
    """Put what a server reports into a job; return the paths where it differs from what was sent.

    A value that the server chose because the job does not set it is not part of a whole job.
    """
    differs = []
    for path, value in reported.items():
        sent = get(job, path)
        if whole and (sent is None or same(sent, value)):
            continue
        put(job, path, value)
        if whole:
            differs.append(path)
    return tuple(differs)


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
        publish, clock = self.context.bus.publish, self.context.clock
        operation = JobOperation(server.client, server.watcher, publish, clock, title, steps)
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
