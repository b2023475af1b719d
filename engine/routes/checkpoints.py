"""Routes for what is saved of the policy: list, save, go back, prune, export, import."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from ajet_swarm.common.errors import AjetError
from engine.interface import (
    LATEST,
    CheckpointError,
    CheckpointManager,
    NoCheckpointError,
    SaveError,
)
from engine.server.lifecycle import Engine, EngineError

T = TypeVar("T")


class CheckpointName(BaseModel):
    """A checkpoint's name."""

    name: str = Field(min_length=1, max_length=64)


class PruneRequest(BaseModel):
    """How many named checkpoints are kept."""

    keep: Annotated[int, Field(ge=0)]


@contextlib.contextmanager
def _http_errors() -> Iterator[None]:
    """Errors as answers: each says what is wrong, none is a 500."""
    try:
        yield
    except SaveError as error:
        raise EngineError(507, str(error)) from error
    except NoCheckpointError as error:
        raise EngineError(404, str(error)) from error
    except CheckpointError as error:
        raise EngineError(400, str(error)) from error
    except AjetError as error:  # damaged, held by another engine, closed meanwhile
        raise EngineError(409, str(error)) from error


class _CheckpointActions:
    """What the routes do, on one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def keeper(self) -> CheckpointManager:
        """Raises Refused when nothing is saved by this policy."""
        keeper = self._engine.backend.keeper
        if keeper is None:
            raise EngineError(404, "This policy keeps no checkpoints.")
        return keeper

    async def reading(self, work: Callable[[], T]) -> T:
        """Work that does not mind an open policy, off the loop."""
        with _http_errors():
            return await asyncio.to_thread(work)

    async def changing(self, deed: str, work: Callable[[], T]) -> T:
        """Work that wants the policy closed."""
        self._engine.require_offline(deed)
        if self._engine.backend.resetting:
            raise EngineError(
                400, "The checkpoints are being changed already. Try again in a moment."
            )
        with _http_errors():
            return await self._engine.backend.keeping(work)

    async def save(self, name: str) -> int:
        """Of the policy that is open, else of what is saved; returns its step."""
        keeper, policy = self.keeper, self._engine.backend.policy

        def copy() -> int:
            keeper.save(name)
            return keeper.step()

        with _http_errors():
            keeper.check_name(name)
            if policy is not None:
                await policy.checkpoint(name)
        step = policy.step if policy is not None else await self.changing("save it now", copy)
        self.say(f"checkpoint {name} saved", step)
        return step

    async def restore(self, name: str) -> int:
        """Go back to a checkpoint; returns its step."""
        keeper = self.keeper

        def back() -> int:
            keeper.restore(name)
            return keeper.step()

        step = await self.changing("go back to a checkpoint", back)
        self._moved(step)
        self.say(f"the policy is back at {name}", step)
        return step

    async def take(self, name: str, data: bytes) -> int:
        """Keep imported weights and go on from them."""
        keeper = self.keeper

        def keep() -> int:
            keeper.take(name, data)
            keeper.restore(name)
            return keeper.step()

        step = await self.changing("import a checkpoint", keep)
        self._moved(step)
        self.say(f"the policy goes on from the imported weights {name}", step)
        return step

    def say(self, what: str, step: int) -> None:
        """Tell clients."""
        self._engine.verbose.add("engine", f"{what}, global step {step}", logging.INFO)

    def _moved(self, step: int) -> None:
        backend = self._engine.backend
        backend.facts = {**backend.facts, "step": step}
        self._engine.updates.back_to(step)


def add_checkpoint_routes(router: APIRouter, engine: Engine) -> None:
    """Add them to the routes under `/ajetc`."""
    held = _CheckpointActions(engine)

    @router.get("/checkpoints")
    async def checkpoints() -> list[dict[str, Any]]:
        """All that is saved, newest first."""
        found = await held.reading(held.keeper.listed)
        return [asdict(facts) for facts in found]

    @router.post("/checkpoints")
    async def save(body: CheckpointName) -> dict[str, Any]:
        """Save now under a name; an older one of that name is replaced."""
        return {"success": True, "name": body.name, "step": await held.save(body.name)}

    @router.post("/restore")
    async def restore(body: CheckpointName) -> dict[str, Any]:
        """Go back to a checkpoint, or to `base`; only while OFFLINE."""
        return {"success": True, "name": body.name, "step": await held.restore(body.name)}

    @router.post("/prune")
    async def prune(body: PruneRequest) -> dict[str, Any]:
        """Delete all but the newest named checkpoints."""
        keeper = held.keeper
        deleted = await held.reading(lambda: keeper.prune(body.keep))
        return {"success": True, "deleted": list(deleted)}

    @router.post("/reset")
    async def reset() -> dict[str, Any]:
        """Back to the base weights; only while OFFLINE."""
        await engine.reset()
        return {"success": True, "step": engine.backend.facts["step"]}

    @router.get("/export", response_class=Response)
    async def export(name: str = LATEST, half: bool = False) -> Response:
        """A checkpoint's weights, or those of `base`, as a safetensors file."""
        keeper = held.keeper
        data = await held.reading(lambda: keeper.export(name, half))
        return Response(
            data,
            media_type="application/octet-stream",
            headers={"Content-Disposition": f'attachment; filename="{name}.safetensors"'},
        )

    @router.post(
        "/import",
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {
                    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
                },
            }
        },
    )
    async def take(request: Request, name: str = "imported") -> dict[str, Any]:
        """Keep a safetensors file under a name and go on from it; only while OFFLINE."""
        with _http_errors():
            held.keeper.check_name(name)
        step = await held.take(name, await request.body())
        return {"success": True, "name": name, "step": step}
