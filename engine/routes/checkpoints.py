"""Routes for the saved states of the policy: list, save, restore, prune, export, import."""

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
    """How many named checkpoints to keep."""

    keep: Annotated[int, Field(ge=0)]


@contextlib.contextmanager
def _http_errors() -> Iterator[None]:
    """Translate errors of saved states to HTTP statuses; none becomes a 500."""
    try:
        yield
    except SaveError as error:
        raise EngineError(507, str(error)) from error
    except NoCheckpointError as error:
        raise EngineError(404, str(error)) from error
    except CheckpointError as error:
        raise EngineError(400, str(error)) from error
    except AjetError as error:  # damaged, locked by another engine, or closed meanwhile
        raise EngineError(409, str(error)) from error


class _CheckpointActions:
    """What the routes do on one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def checkpoints(self) -> CheckpointManager:
        """The policy's saved states; raises EngineError when it saves none."""
        checkpoints = self._engine.policy_holder.checkpoints
        if checkpoints is None:
            raise EngineError(404, "This policy keeps no checkpoints.")
        return checkpoints

    async def read(self, work: Callable[[], T]) -> T:
        """Run work that is independent of the open policy, off the event loop."""
        with _http_errors():
            return await asyncio.to_thread(work)

    async def change(self, action: str, work: Callable[[], T]) -> T:
        """Run work that requires the policy to be closed."""
        self._engine.require_offline(action)
        if self._engine.policy_holder.resetting:
            raise EngineError(
                400, "The checkpoints are being changed already. Try again in a moment."
            )
        with _http_errors():
            return await self._engine.policy_holder.change_saved(work)

    async def save(self, name: str) -> int:
        """Save the open policy, else copy the saved one; return the step."""
        checkpoints, policy = self.checkpoints, self._engine.policy_holder.policy

        def copy() -> int:
            checkpoints.save(name)
            return checkpoints.step()

        with _http_errors():
            checkpoints.check_name(name)
            if policy is not None:
                await policy.checkpoint(name)
        step = policy.step if policy is not None else await self.change("save it now", copy)
        self.log(f"checkpoint {name} saved", step)
        return step

    async def restore(self, name: str) -> int:
        """Restore a checkpoint; return its step."""
        checkpoints = self.checkpoints

        def back() -> int:
            checkpoints.restore(name)
            return checkpoints.step()

        step = await self.change("restore a checkpoint", back)
        self._stepped_back(step)
        self.log(f"the policy was restored from {name}", step)
        return step

    async def import_weights(self, name: str, data: bytes) -> int:
        """Save imported weights and continue from them; return their step."""
        checkpoints = self.checkpoints

        def keep() -> int:
            checkpoints.import_weights(name, data)
            checkpoints.restore(name)
            return checkpoints.step()

        step = await self.change("import a checkpoint", keep)
        self._stepped_back(step)
        self.log(f"the policy continues from the imported weights {name}", step)
        return step

    def log(self, what: str, step: int) -> None:
        """Add a line to the clients' log."""
        self._engine.verbose.add("engine", f"{what}, global step {step}", logging.INFO)

    def _stepped_back(self, step: int) -> None:
        self._engine.policy_holder.step_back(step)
        self._engine.updates.back_to(step)


def add_checkpoint_routes(router: APIRouter, engine: Engine) -> None:
    """Add the checkpoint routes to the router of `/ajetc`."""
    actions = _CheckpointActions(engine)

    @router.get("/checkpoints")
    async def checkpoints() -> list[dict[str, Any]]:
        """List every saved state, newest first."""
        entries = await actions.read(actions.checkpoints.list_all)
        # `kept` is the name of the field on the wire.
        return [{**asdict(entry), "kept": entry.internal} for entry in entries]

    @router.get("/checkpoints/model")
    async def model() -> dict[str, Any] | None:
        """Describe the base model and the trained tensors; null when the program contains it."""
        description = await actions.read(actions.checkpoints.model)
        return None if description is None else dict(description)

    @router.post("/checkpoints")
    async def save(body: CheckpointName) -> dict[str, Any]:
        """Save now under a name; replaces an older checkpoint of that name."""
        return {"success": True, "name": body.name, "step": await actions.save(body.name)}

    @router.post("/restore")
    async def restore(body: CheckpointName) -> dict[str, Any]:
        """Restore a checkpoint, or `base`; only while OFFLINE."""
        return {"success": True, "name": body.name, "step": await actions.restore(body.name)}

    @router.post("/prune")
    async def prune(body: PruneRequest) -> dict[str, Any]:
        """Delete all but the newest named checkpoints."""
        checkpoints = actions.checkpoints
        deleted = await actions.read(lambda: checkpoints.prune(body.keep))
        return {"success": True, "deleted": list(deleted)}

    @router.post("/reset")
    async def reset() -> dict[str, Any]:
        """Restore the base weights; only while OFFLINE."""
        await engine.reset()
        return {"success": True, "step": engine.policy_holder.info["step"]}

    @router.get("/export", response_class=Response)
    async def export(name: str = LATEST, half: bool = False) -> Response:
        """Return the weights of a checkpoint, or of `base`, as a safetensors file."""
        checkpoints = actions.checkpoints
        data = await actions.read(lambda: checkpoints.export(name, half))
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
    async def import_weights(request: Request, name: str = "imported") -> dict[str, Any]:
        """Save a safetensors file under a name and continue from it; only while OFFLINE."""
        with _http_errors():
            actions.checkpoints.check_name(name)
        step = await actions.import_weights(name, await request.body())
        return {"success": True, "name": name, "step": step}
