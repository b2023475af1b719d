"""Information about a server's job: as the server reports it, or else as it was last sent."""

import asyncio
import os
from collections.abc import Mapping
from typing import Any, Final

import msgspec

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
from ajet_swarm.job.tree import Job, JobError, dump_job, get, load_job, put
from ajet_swarm.protocol.errors import SwarmError
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
