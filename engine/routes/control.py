"""Routes for clients (protocol section 2.1). The trainer's routes (section 2.2) are in
`engine.routes.trainer`, since the trainer is this process."""

import asyncio
import os
from typing import Annotated, Any

from fastapi import APIRouter, Header

from ajet_swarm.job.tree import JobError
from engine.routes import schemas as wire
from engine.server.episodes import EpisodeService
from engine.server.job import parse_job
from engine.server.lifecycle import EngineError
from engine.server.pool import EpisodeType

_KINDS: dict[str, EpisodeType] = {"train": "train", "eval": "eval"}


def control_routes(episodes: EpisodeService) -> APIRouter:
    """Return the routes that control the engine and its episodes."""
    router = APIRouter()
    _add_engine_routes(router, episodes)
    _add_episode_routes(router, episodes)
    _add_reading_routes(router, episodes)
    return router


def _add_engine_routes(router: APIRouter, episodes: EpisodeService) -> None:
    engine = episodes.engine

    @router.post("/sync_train_config", response_model_exclude_none=True)
    async def sync_train_config(body: wire.SyncConfig) -> wire.ConfigOutcome:
        """Set the training job; an invalid one is refused with the key at fault."""
        engine.require_offline("take a training config")
        if engine.faithful:
            engine.configure_unparsed(body.yaml_as_string)
            return wire.ConfigOutcome(success=True)
        try:
            job = await asyncio.to_thread(
                parse_job, body.yaml_as_string, engine.temperature, engine.recipe
            )
        except JobError as error:
            engine.configure(error)
            return wire.ConfigOutcome(success=False, error=str(error))
        engine.configure(job)
        return wire.ConfigOutcome(success=True)

    @router.post("/sync_train_code")
    async def sync_train_code() -> wire.Outcome:
        """Refuse: this server runs no code that clients send."""
        raise EngineError(
            400,
            "The embedded engine does not run code that is sent to it. "
            "Use an AgentJet swarm server to train with changed code.",
        )

    @router.post("/start_engine", response_model_exclude_none=True)
    async def start_engine() -> wire.Started:
        """Load the policy and start the first batch."""
        reason = await engine.start()
        if reason is not None:
            return wire.Started(success=False, error=reason)
        return wire.Started(success=True, pid=os.getpid())

    @router.post("/stop_engine")
    async def stop_engine() -> wire.Outcome:
        """Go to OFFLINE from any state; the open batch is discarded."""
        await engine.stop()
        return wire.Outcome(success=True)


def _add_episode_routes(router: APIRouter, episodes: EpisodeService) -> None:
    @router.post("/claim_episode")
    async def claim_episode(
        body: wire.Claim, user_agent: Annotated[str, Header()] = ""
    ) -> wire.Claimed:
        """Claim the oldest free episode."""
        if (kind := _KINDS.get(body.episode_type)) is None:
            raise EngineError(400, f"Unknown episode_type {body.episode_type!r}: train or eval")
        await episodes.engine.poll_aid.wait_for_batch(user_agent)
        policy = body.throttle_policy or {}
        task_id = policy.get("current_task_id")
        claimed = episodes.claim(
            body.client_uuid,
            kind,
            body.discard_episode_timeout,
            task_id if isinstance(task_id, str) else "",
        )
        if isinstance(claimed, str):
            return wire.Claimed(success=False, client_uuid=body.client_uuid, fail_cause=claimed)
        status = episodes.episode_status(claimed)
        return wire.Claimed(
            success=True,
            client_uuid=body.client_uuid,
            episode_uuid=claimed.uuid,
            openai_base_url=status["openai_base_url"],
            openai_api_key=status["openai_api_key"],
        )

    @router.post("/end_episode")
    async def end_episode(body: wire.EndEpisode) -> wire.Outcome:
        """End an episode with its reward."""
        episodes.end(
            body.client_uuid,
            body.episode_uuid,
            body.task_id,
            body.workflow_output.reward,
            body.workflow_output.metadata.get("task_id"),
            declare=body.declare_client_active,
        )
        return wire.Outcome(success=True)

    @router.post("/abort_episode")
    async def abort_episode(body: wire.AbortEpisode) -> wire.Outcome:
        """Return an episode unused; only its owner can."""
        episodes.abort(body.client_uuid, body.episode_uuid, declare=body.declare_client_active)
        return wire.Outcome(success=True)

    @router.post("/can_continue_episode")
    async def can_continue_episode(body: wire.CanContinue) -> wire.Continue:
        """Report whether an end by this client would be accepted."""
        return wire.Continue(
            can_continue=episodes.can_continue(body.client_uuid, body.episode_uuid)
        )

    @router.post("/agree_sync_weight")
    async def agree_sync_weight(body: wire.Agree) -> wire.Outcome:
        """Agree to end the batch, under a stop rule that uses agreement."""
        reason = episodes.agree(body.client_uuid)
        return wire.Outcome(success=not reason, failure_reason=reason)


def _add_reading_routes(router: APIRouter, episodes: EpisodeService) -> None:
    engine = episodes.engine

    @router.get("/health")
    async def health() -> dict[str, str]:
        """Report that the process responds."""
        return {"status": "ok"}

    @router.get("/get_engine_status")
    async def get_engine_status(user_agent: Annotated[str, Header()] = "") -> wire.Status:
        """Report the state and the global step."""
        engine.poll_aid.note_poll(user_agent)
        return wire.Status(
            engine_status=engine.status,
            engine_status_detail=engine.detail,
            global_step=engine.global_step,
        )

    @router.post("/get_episode_buffer")
    async def get_episode_buffer() -> wire.Buffer:
        """List every live episode."""
        records = [
            wire.EpisodeStatus(**episodes.episode_status(episode)) for episode in engine.pool
        ]
        return wire.Buffer(buffer=records)

    @router.get("/get_current_batch_rollout_pool_information")
    async def get_current_batch_rollout_pool_information() -> wire.PoolInformation:
        """Report the fill level of the batch and its clients."""
        return wire.PoolInformation.model_validate(episodes.pool_information())

    @router.get("/get_server_experiment_dir")
    async def get_server_experiment_dir() -> wire.ExperimentDir:
        """Report the folder of the weights."""
        store = engine.experiments
        return wire.ExperimentDir(server_experiment_dir=str(store.folder) if store else None)

    @router.get("/get_verbose_logs")
    async def get_verbose_logs() -> wire.VerboseLogs:
        """Return the log lines of the last 30 s."""
        return wire.VerboseLogs.model_validate({"entries": engine.verbose.recent()})

    @router.post("/replay_latest_llm_call")
    async def replay_latest_llm_call() -> dict[str, Any]:
        """Return the latest LLM call of any client and its answer."""
        if engine.latest_call is None:
            raise EngineError(404, "No LLM call has been made yet.")
        return engine.latest_call
