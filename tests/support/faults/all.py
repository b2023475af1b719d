"""The list of all faults, and what more than one of them does."""

import asyncio
from collections.abc import Awaitable, Callable

import httpx

from tests.support.faults.field import Field

Fault = Callable[[Field], Awaitable[None]]

FAULTS: dict[str, Fault] = {}
"""Name -> what breaks it, and mends it again."""

CLAIM, CHAT = "/claim_episode", "/v1/chat/completions"
END, ABORT, BUFFER = "/end_episode", "/abort_episode", "/get_episode_buffer"


def fault(function: Fault) -> Fault:
    FAULTS[function.__name__] = function
    return function


async def hold(f: Field, seconds: float) -> None:
    """How long something lasts."""
    await asyncio.sleep(seconds * f.rng.uniform(0.7, 1.3))


def abort_body(uuid: str) -> dict[str, object]:
    result = {"client_uuid": "other", "episode_uuid": uuid, "task_id": ""}
    output: dict[str, object] = {"reward": None, "metadata": {}}
    return {**result, "workflow_output": output}


async def abort(other: httpx.AsyncClient, uuid: str) -> None:
    await other.post(ABORT, json=abort_body(uuid))


def fail_next(f: Field, route: str, how: int | str, most: int = 4) -> None:
    f.swarm.fail_next(route, how, f.rng.randint(1, most))


async def fails(f: Field, route: str, how: int | str, most: int = 4) -> None:
    await f.moment()
    fail_next(f, route, how, most)
    await f.consumed(route)
