"""Routes for copies of the weights, to measure the policy at one step while it is trained."""

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from ajet_swarm.common.errors import AjetError
from engine.interface import (
    Completion,
    NoSnapshotError,
    NoSnapshots,
    PolicyBackend,
    WeightSnapshots,
)
from engine.llm.calls import CLIENT_LEFT, prepare_call
from engine.llm.chat import ChatRequest, answer_message, checked, read_chat
from engine.routes.llm import until_disconnected
from engine.server.lifecycle import Engine, EngineError, global_step_of

MOST_ANSWERS = 64
"""Most answers of one request."""


class TakenSnapshot(BaseModel):
    """A copy of the weights."""

    snapshot: str = Field(description="Its id.")
    step: int = Field(description="Global step of an answer of these weights.")


class ChatMessage(BaseModel):
    """A message of a chat completion."""

    model_config = ConfigDict(extra="allow")
    role: str = Field(min_length=1)


class SampleRequest(BaseModel):
    """A request for answers of a snapshot; other fields are ignored."""

    snapshot: str = Field(min_length=1, max_length=64, description="Id of a snapshot.")
    messages: list[ChatMessage] = Field(min_length=1)
    tools: list[dict[str, Any]] | None = None
    n: int = Field(ge=1, le=MOST_ANSWERS, description="Number of answers.")
    seed: int | None = Field(
        default=None, description="Answer i is sampled with seed + i; null: with a fresh seed."
    )
    temperature: float | None = Field(
        default=None, ge=0, le=100, allow_inf_nan=False, description="Null: the job's."
    )
    max_tokens: int | None = Field(default=None, description="Null: as of a chat call.")
    likeliest: bool = Field(
        default=False, description="Whether the answer of temperature 0 follows the others."
    )

    def chat(self) -> ChatRequest:
        """Return the equivalent chat request; raises `ApiError` for an invalid field."""
        used = {"messages", "tools", "temperature", "max_tokens"}
        return read_chat(checked(self.model_dump(include=used)))


class SampledMessage(BaseModel):
    """One answer."""

    message: dict[str, Any]
    finish_reason: str
    tokens: int = Field(description="Number of sampled tokens.")


class SampledMessages(BaseModel):
    """The answers of a snapshot to one conversation."""

    step: int = Field(description="Global step of the weights.")
    answers: list[SampledMessage]
    truncated: bool = Field(description="The middle of the conversation was dropped.")


def add_snapshot_routes(router: APIRouter, engine: Engine) -> None:
    """Add the routes of snapshots to the router of `/ajetc`."""

    @router.post("/snapshot")
    async def snapshot() -> TakenSnapshot:
        """Copy the present weights; the newest two copies are kept while the policy is loaded."""
        _policy, snapshots = _loaded(engine)
        try:
            taken = await snapshots.take()
        except Exception as error:  # route boundary: `_translated` gives the client its status
            raise _translated(engine, error) from error
        return TakenSnapshot(snapshot=taken.name, step=global_step_of(taken.step))

    @router.post("/sample")
    async def sample(body: SampleRequest, request: Request) -> SampledMessages:
        """Sample answers from a snapshot, as a chat call of an eval episode samples one."""
        policy, snapshots = _loaded(engine)
        prompt, params = prepare_call(engine, policy, body.chat(), "eval")
        seeded = [
            replace(params, seed=None if body.seed is None else body.seed + i)
            for i in range(body.n)
        ]
        if body.likeliest:
            seeded.append(replace(params, temperature=0.0))
        work = partial(snapshots.sample, body.snapshot, prompt, seeded)
        completions = await _unless_disconnected(engine, request, work)
        return SampledMessages(
            step=global_step_of(completions[0].step),
            answers=[
                SampledMessage(
                    message=answer_message(completion, f"call_{uuid.uuid4().hex}"),
                    finish_reason=completion.finish_reason,
                    tokens=len(completion.tokens),
                )
                for completion in completions
            ],
            truncated=prompt.truncated,
        )


def _loaded(engine: Engine) -> tuple[PolicyBackend, WeightSnapshots]:
    """Return the policy and its snapshots.

    Raises:
        EngineError: 409, no policy is loaded, or it takes no snapshots.
    """
    if engine.faithful:
        raise EngineError(409, "A faithful engine takes no snapshots, as a real server takes none.")
    policy = engine.policy_holder.policy
    if policy is None:
        raise EngineError(
            409, f"No policy is loaded. Current status: [{engine.status}]. Start the engine first."
        )
    snapshots = policy.snapshots
    if isinstance(snapshots, NoSnapshots):
        raise EngineError(409, snapshots.reason)
    return policy, snapshots


async def _unless_disconnected(
    engine: Engine, request: Request, work: Callable[[], Coroutine[Any, Any, list[Completion]]]
) -> list[Completion]:
    """Return the answers; a client that disconnects cancels the work.

    Raises:
        EngineError: 404 unknown snapshot, 409 the policy was closed meanwhile, 499 the client has
            disconnected, 500 the policy failed.
    """

    async def attempt() -> list[Completion] | Exception:
        try:
            return await work()
        except Exception as error:  # noqa: BLE001 - the client gets it
            return error

    sampling = engine.tasks.spawn(attempt(), "sample a snapshot")
    disconnect = engine.tasks.spawn(until_disconnected(request), "caller of a snapshot")
    try:
        await asyncio.wait({sampling, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        if sampling.cancelled():
            raise EngineError(409, "The engine was stopped before the answers were sampled.")
        if not sampling.done():
            raise EngineError(CLIENT_LEFT, "The client disconnected.")
        result: list[Completion] | Exception = sampling.result()
    finally:
        sampling.cancel()
        disconnect.cancel()
    if isinstance(result, Exception):
        raise _translated(engine, result)
    return result


def _translated(engine: Engine, error: Exception) -> EngineError:
    """Return an error of the policy as an HTTP status."""
    if isinstance(error, NoSnapshotError):
        return EngineError(404, str(error))
    if isinstance(error, AjetError):  # closed meanwhile
        return EngineError(409, str(error))
    engine.verbose.add("snapshots", f"sampling failed: {error!r}", logging.ERROR)
    return EngineError(500, f"The policy failed to answer: {error!r}")
