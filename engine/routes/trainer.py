"""The trainer's side of the wire (protocol section 2.2), offered by `--faithful` alone.

On the real server its own trainer posts here, and so can anyone. Here the trainer is this process:
what a post can mean it does, the rest is answered as on the real server and changes nothing.
"""

import logging

from fastapi import APIRouter

from engine.routes import schemas as wire
from engine.server.episodes import EpisodeService
from engine.server.lifecycle import ROLLING, Engine, EngineStatus

_STATES = {*EngineStatus, "ENGINE.WEIGHT_EXPORTING"}


def trainer_routes(episodes: EpisodeService) -> APIRouter:
    """The five routes; none asks who posts."""
    engine = episodes.engine
    router = APIRouter()
    _add_episode_routes(router, engine)

    @router.post("/update_engine_status")
    async def update_engine_status(body: wire.PostedStatus) -> wire.Outcome:
        """Stop the run, close the batch, or begin the update; other states are only noted."""
        posted = body.engine_status
        if posted not in _STATES:
            return wire.Outcome(success=False, failure_reason="Invalid engine status")
        engine.verbose.add("engine", f"{posted} was posted from outside", logging.WARNING)
        if posted == EngineStatus.OFFLINE and engine.status is not EngineStatus.OFFLINE:
            engine.halt(body.engine_status_detail)
        elif posted == EngineStatus.ROLLING_POST and engine.status is EngineStatus.ROLLING:
            engine.close_batch()
            engine.advance()
        elif posted == EngineStatus.WEIGHT_SYNCING and engine.status in ROLLING:
            engine.sync()
        return wire.Outcome(success=True)

    @router.post("/update_current_batch_rollout_pool_information_and_fetch_instruction")
    async def fetch_instruction(body: wire.PoolInformation) -> wire.Instruction:
        """Who is active; the pool's own counters are newer than what is posted."""
        return wire.Instruction.model_validate({"active_clients": engine.clients.as_json()})

    @router.post("/push_verbose_log")
    async def push_verbose_log(body: wire.Pushed) -> wire.Outcome:
        """A line for those who read the log."""
        engine.verbose.add(body.tag, body.message)
        return wire.Outcome(success=True)

    return router


def _add_episode_routes(router: APIRouter, engine: Engine) -> None:
    @router.post("/register_episode")
    async def register_episode(body: wire.Registered) -> wire.Outcome:
        """One more slot, under the name that was posted."""
        if engine.status is not EngineStatus.ROLLING:
            return wire.Outcome(success=False, failure_reason="Engine is not in rolling state.")
        if engine.pool.find(body.episode_uuid) is not None:
            return wire.Outcome(success=False, failure_reason="Episode is registered already.")
        engine.pool.register(body.episode_uuid)
        return wire.Outcome(success=True)

    @router.post("/is_episode_claimed")
    async def is_episode_claimed(body: wire.IsClaimed) -> wire.Outcome:
        """Whether a client holds it; an unclaimed one is deleted when that is asked for."""
        episode = engine.pool.find(body.episode_uuid)
        claimed = episode is not None and episode.status == "claimed"
        if episode is not None and not claimed and body.unregister_if_not_claimed:
            engine.pool.drop(episode)
            engine.advance()
        return wire.Outcome(success=claimed)
