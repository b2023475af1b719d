"""Checklist 64: the proxy fuzzed from its own OpenAPI. No 5xx, and it still works."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from core.settings import Settings
from tests.conformance.forms import PATHS, ask
from tests.support.fuzz import fuzz
from tests.support.proxy.front import BODIES, Front, fronted
from tests.support.proxy.world import settings
from tests.support.scripted.swarm import ScriptedSwarm

QUIET = {"session_calls": 0, "session_cap": 0, "repeats": 2}
STATUSES = {200, 400, 401, 404, 405, 413}


async def sound(f: Front, examples: int) -> None:
    """Fuzz a front from a thread, and see that it works after that."""
    statuses = await asyncio.to_thread(fuzz, f.url, examples)
    assert len(statuses) > examples
    assert 200 in statuses
    assert set(statuses) <= STATUSES
    for path in PATHS:
        assert (await ask(f, path, BODIES[path])).status == 200
    await f.world.closed(20.0)
    assert not f.world.swarm.claimed()
    assert len(f.world.context.tasks) == 1


def quiet(**more: Any) -> Settings:
    return settings(proxy={**QUIET, **more})


async def test_64_no_5xx_under_schemathesis(tmp_path: Path) -> None:
    async with (
        ScriptedSwarm(batch=100_000, slots=2000) as swarm,
        fronted(tmp_path, swarm, quiet()) as f,
    ):
        await sound(f, 3)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("answer", ["best", "live"])
async def test_64_no_5xx_under_schemathesis_at_length(tmp_path: Path, answer: str) -> None:
    async with (
        ScriptedSwarm(batch=1_000_000, slots=50_000) as swarm,
        fronted(tmp_path, swarm, quiet(answer=answer)) as f,
    ):
        await sound(f, 400)


async def test_64_without_the_key_everything_of_v1_is_401(tmp_path: Path) -> None:
    async with fronted(tmp_path, configured=quiet(api_key="sk-one")) as f:
        document = (await f.client.get("/openapi.json")).json()
        async with httpx.AsyncClient(base_url=f.url) as client:
            for path, methods in document["paths"].items():
                for method in methods:
                    answer = await client.request(method, path, json={})
                    keyed = path.startswith(("/v1/", "/tokenize", "/detokenize"))
                    assert (answer.status_code == 401) == keyed, path
                    assert answer.status_code < 500
