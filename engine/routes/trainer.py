"""Routes of the trainer's side of the protocol (section 2.2), enabled by `--faithful` only.

On the real server its own trainer posts here, without authentication. Here the trainer is this
process: posts that make sense are applied, the others get the real server's response without
effect.
"""

import logging

from fastapi import APIRouter

from engine.routes import schemas as wire
from engine.server.episodes import EpisodeService
from engine.server.lifecycle import ROLLING, Engine, EngineStatus

_STATES = {*EngineStatus, "ENGINE.WEIGHT_EXPORTING"}


def trainer_routes(episodes: EpisodeService) -> APIRouter:
    """Return the five routes; none authenticates its caller."""
    engine = episodes.engine
    router = APIRouter()
    _add_episode_routes(router, engine)

    @router.post("/update_engine_status")
    async def update_engine_status(body: wire.PostedStatus) -> wire.Outcome:
        """Stop the run, close the batch, or start the update; other states have no effect."""
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
        """Return the active clients; the posted counters are ignored, the pool's own are newer."""
        return wire.Instruction.model_validate({"active_clients": engine.clients.as_json()})

    @router.post("/push_verbose_log")
    async def push_verbose_log(body: wire.Pushed) -> wire.Outcome:
        """Add a line to the clients' log."""
        engine.verbose.add(body.tag, body.message)
        return wire.Outcome(success=True)

    return router


def _add_episode_routes(router: APIRouter, engine: Engine) -> None:
    @router.post("/register_episode")
    async def register_episode(body: wire.Registered) -> wire.Outcome:
        """Add one slot under the posted name."""
        if engine.status is not EngineStatus.ROLLING:
            return wire.Outcome(success=False, failure_reason="Engine is not in rolling state.")
        if engine.pool.find(body.episode_uuid) is not None:
            return wire.Outcome(success=False, failure_reason="Episode is registered already.")
        engine.pool.register(body.episode_uuid)
        return wire.Outcome(success=True)

    @router.post("/is_episode_claimed")
    async def is_episode_claimed(body: wire.IsClaimed) -> wire.Outcome:
        """Report whether a client holds the episode; delete an unclaimed one on request."""
        episode = engine.pool.find(body.episode_uuid)
        claimed = episode is not None and episode.status == "claimed"
        if episode is not None and not claimed and body.unregister_if_not_claimed:
            engine.pool.drop(episode)
            engine.advance()
        return wire.Outcome(success=claimed)
