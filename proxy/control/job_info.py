"""Information about a server's job: as the server reports it, or else as it was last sent."""

import asyncio
import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from ajet_swarm.api.interface import SwarmApi
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
from ajet_swarm.job.tree import Job, JobError, dump_job, flat, get, load_job, put
from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.schemas import PoolInfo
from core.control_payloads import JobInfo
from core.jobs import PRESETS, preset_job, same
from core.settings import SHIPPED_MODEL, EngineSettings
from proxy.context import ProxyContext, ServerHandle
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


async def engine_of(client: SwarmApi, settings: EngineSettings) -> EngineSettings:
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
    if info.backend == "torch":
        return msgspec.structs.replace(settings, backend="torch", model=info.model or SHIPPED_MODEL)
    if info.backend == "numpy":
        return msgspec.structs.replace(settings, backend="numpy", model=SHIPPED_MODEL)
    return settings


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
    sent = last_sent(context, server.name)
    base = _tree(sent)
    masked = await asyncio.to_thread(store.masked, saved[0]) if saved else ""
    reported, reporter = await _reported(server)
    running, differs = _running(base, reported)
    embedded = await _embedded(context, server)
    by_name = await presets(context, server, embedded, saved[0] if saved else "")
    saved_at = saved[1] if saved else 0.0
    return JobInfo(
        server=server.name,
        saved=masked,
        saved_at=saved_at,
        embedded=embedded,
        last=starts_as_it_was(context, server.name, saved_at),
        model="" if embedded else remote_model(),
        running=await asyncio.to_thread(store.masked, dump_job(running)) if running else "",
        source=_source(base is not None, reporter),
        reported=tuple(reported),
        differs=tuple(differs),
        whole=base is not None,
        default=dump_job(by_name["default"]),
        hand=dump_job(by_name["hand"]),
        path=str(store.path(server.name)),
        sent="" if embedded else sent,
    )


async def _embedded(context: ProxyContext, server: ServerHandle) -> bool:
    """Return whether the server is the embedded engine; by the settings if it does not respond."""
    try:
        return await server.client.is_embedded()
    except SwarmError:
        return context.settings.servers().get(server.name) == "embedded"


def _source(sent: bool, reporter: str) -> str:
    if reporter and sent:
        return f"{reporter}, the rest as last sent from here"
    if reporter:
        return reporter
    return "as last sent from here; the server does not report its job" if sent else ""


def _tree(text: str) -> Job | None:
    try:
        return load_job(text)
    except JobError:  # sent by a version that accepted it
        return None


async def _reported(server: ServerHandle) -> tuple[dict[str, Any], str]:
    """Return the values that the server reports, by path, and a description of this source."""
    try:
        if job := (await engine_info(server.client)).job:
            return dict(_values_of(job)), "as the engine has read it"
    except AjetError:
        return {}, ""  # it does not respond: the job that was sent is still known
    pool = server.watcher.pool
    rolling = server.watcher.current.state.rolling
    if pool is None or pool.stale or not rolling:
        return {}, ""
    values = dict(_of_pool(pool))
    return values, f"{len(values)} values reported by the server" if values else ""


def _values_of(info: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, path in _EMBEDDED.items():
        value = get(info, name)
        if value not in (None, ""):
            yield path, value


def _of_pool(pool: PoolInfo) -> Iterator[tuple[str, Any]]:
    """Return the values of the job that a pool report contains."""
    pairs = (
        (MODEL, pool.training_model_path),
        (BATCH, pool.completed_task_target),
        (REPEAT, pool.task_expected_num_repeat),
        (STOP_RULE, pool.sample_collection_method),
    )
    return ((path, value) for path, value in pairs if value)


def _running(base: Job | None, reported: Mapping[str, Any]) -> tuple[Job, list[str]]:
    """Return the job as it runs, and the paths where it differs from the job sent from here.

    A value that the server chose because the job does not set it is not part of the job.
    """
    if base is None:
        job: Job = {}
        for path, value in reported.items():
            put(job, path, value)
        return job, []
    differs = []
    sent_values = dict(flat(base))
    for path, value in reported.items():
        if (
            path in sent_values
            and sent_values[path] is not None
            and not same(sent_values[path], value)
        ):
            differs.append(path)
            put(base, path, value)
    return base, differs
