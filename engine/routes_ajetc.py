"""Routes of our own: what an AgentJet server has no words for."""

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter

from engine import routes_schemas as wire
from engine.chat import answer_limit
from engine.episodes import Episodes
from engine.policy import Hyperparameters


def ajetc_routes(episodes: Episodes, home: str, version: str) -> APIRouter:
    """Facts of the embedded engine and its reset."""
    engine = episodes.engine
    router = APIRouter(prefix="/ajetc")

    @router.get("/info")
    async def info() -> wire.Info:
        """What this server is."""
        facts, job = engine.backend.facts, engine.job
        hyper = Hyperparameters() if job is None else job.hyper
        context = facts["context"]
        limit = None if job is None or context is None else answer_limit(job, context)
        return wire.Info(
            **facts,
            home=home,
            version=version,
            engine_status=engine.status,
            damping=hyper.damping,
            max_tokens=limit,
            job=None if job is None else asdict(job),
        )

    @router.get("/updates")
    async def updates(after: int = -1) -> list[dict[str, Any]]:
        """The last policy updates, oldest first, those with `step` > `after`."""
        return engine.updates.after(after)

    @router.post("/reset")
    async def reset() -> dict[str, Any]:
        """Back to the base weights; only while OFFLINE."""
        await engine.reset()
        return {"success": True, "step": engine.backend.facts["step"]}

    return router
