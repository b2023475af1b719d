"""Routes under `/ajetc` that AgentJet servers do not have."""

import asyncio
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter

from ajet_swarm.job.tree import JobError
from engine.llm.chat import answer_limit
from engine.routes import schemas as wire
from engine.routes.checkpoints import add_checkpoint_routes
from engine.routes.snapshots import add_snapshot_routes
from engine.server.episodes import EpisodeService
from engine.server.job import parse_job
from engine.server.lifecycle import Engine, EngineError
from engine.server.token_log import live_episode


def check_trainable(engine: Engine, text: str) -> None:
    """Check that a job can be trained from the saved state of its experiment. Reads files.

    Raises:
        JobError: it cannot.
    """
    job = parse_job(text, engine.temperature, engine.recipe)
    if engine.experiments is not None and engine.policy_holder.resumes:
        error = job.already_trained(engine.experiments.saved_step(job.experiment_name))
        if error:
            raise JobError(error)


def ajetc_routes(episodes: EpisodeService, home: str, version: str) -> APIRouter:
    """Return the routes for the embedded engine's description, updates, tokens, checkpoints and
    snapshots."""
    engine = episodes.engine
    router = APIRouter(prefix="/ajetc")

    @router.get("/info")
    async def info() -> wire.Info:
        """Describe this server."""
        policy_info, job = engine.policy_holder.info, engine.job
        policy = engine.policy_holder.policy
        hardware = None if policy is None else policy.hardware
        hyper = engine.recipe if job is None else job.hyper
        context = policy_info["context"]
        whole = engine.job_support.loads_models
        limit = None if job is None or not context else answer_limit(job, context, whole=whole)
        return wire.Info(
            **{**policy_info, "snapshots": policy_info["snapshots"] and not engine.faithful},
            home=home,
            version=version,
            engine_status=engine.status,
            damping=hyper.damping if hyper.advantage == "damped" else 0.0,
            max_tokens=limit,
            job=None if job is None else asdict(job),
            strict_context=engine.strict_context,
            bare_prompts=not engine.faithful,
            backend="torch" if whole else "numpy",
            model=engine.job_support.model,
            hardware=None if hardware is None else wire.HardwareInfo(**asdict(hardware)),
        )

    @router.post("/check_job", response_model_exclude_none=True)
    async def check_job(body: wire.SyncConfig) -> wire.ConfigOutcome:
        """Check whether a job could be trained, in any state; nothing is stored."""
        try:
            await asyncio.to_thread(check_trainable, engine, body.yaml_as_string)
        except JobError as error:
            return wire.ConfigOutcome(success=False, error=str(error))
        return wire.ConfigOutcome(success=True)

    @router.get("/updates")
    async def updates(after: int = -1) -> list[dict[str, Any]]:
        """Return the last policy updates with `step` > `after`, oldest first."""
        return engine.updates.after(after)

    @router.get("/tokens/{episode_uuid}")
    async def tokens(episode_uuid: str) -> dict[str, Any]:
        """Return each token of an episode: id, text, loss mask, log-prob when sampled and now.

        Covers the running episodes and the newest finished ones. Texts and current log-probs are
        null while no policy is loaded.
        """
        policy = engine.policy_holder.policy
        episode = engine.pool.find(episode_uuid)
        if episode is not None and episode.completions:
            return await live_episode(episode_uuid, episode.completions, episode.task_id, policy)
        episode_tokens = await engine.policy_holder.token_log.show(episode_uuid, policy)
        if episode_tokens is None:
            raise EngineError(
                404,
                f"Episode {episode_uuid:.100} has no tokens here: it is unknown, has made no call, "
                "or is older than the stored ones.",
            )
        return episode_tokens

    add_checkpoint_routes(router, engine)
    add_snapshot_routes(router, engine)
    return router
