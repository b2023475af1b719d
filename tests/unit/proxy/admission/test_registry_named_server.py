"""`model: "b"` asks server b: it waits for b, fails with b, and no other server answers it."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from core.dialects.errors import ApiError
from proxy.http.errors import BUSY
from tests.support.proxy.front import BODIES, Front, fronted
from tests.support.proxy.world import World, settings, world
from tests.support.scripted.swarm import ScriptedSwarm

pytestmark = pytest.mark.slow


@pytest.fixture
async def b() -> AsyncIterator[ScriptedSwarm]:
    async with ScriptedSwarm() as swarm:
        yield swarm


@pytest.fixture
async def w(tmp_path: Path, b: ScriptedSwarm) -> AsyncIterator[World]:
    async with world(tmp_path, others={"b": b}) as made:
        yield made


async def has_state(w: World, server: str, state: str) -> None:
    watcher = w.context.servers[server].watcher
    await watcher.wait_for(lambda status: status.display_state.value == state, 20)


async def test_the_model_picks_the_server_and_any_other_name_the_first(
    w: World, b: ScriptedSwarm
) -> None:
    tickets = [await w.ask(f"q {name}", model=name) for name in ("b", "s", "gpt-4o", "")]
    for ticket in tickets:
        assert (await w.reply(ticket)).answers
    await w.closed()
    assert [w.group(ticket).server for ticket in tickets] == ["b", "s", "s", "s"]
    assert len(b.claims) == 4
    assert len(w.swarm.claims) == 12
    assert w.groups.models() == ["scripted", "s", "b"]


async def test_a_request_for_b_waits_for_b_while_the_first_rolls(
    w: World, b: ScriptedSwarm
) -> None:
    b.automatic = False
    b.set_state("WEIGHT_SYNCING")
    await has_state(w, "b", "WEIGHT_SYNCING")
    waiting = await w.ask("for b", model="b")
    assert (await w.reply(await w.ask("for any"))).answers  # the first server serves meanwhile
    assert w.group(waiting).phase == "QUEUED"
    assert not b.claims
    b.set_state("ROLLING")
    assert (await w.reply(waiting)).answers
    await w.closed()
    assert w.group(waiting).server == "b"
    assert (len(b.claims), len(w.swarm.claims)) == (4, 4)


async def test_requests_of_a_server_that_stops_fail_with_its_name(
    w: World, b: ScriptedSwarm
) -> None:
    b.automatic = False
    b.set_state("BOOTING")
    await has_state(w, "b", "BOOTING")
    waiting = await w.ask("for b", model="b")
    b.set_state("OFFLINE")
    refusal = (await w.reply(waiting)).error
    assert refusal is not None
    result = (
        "Server b is OFFLINE: it answers no request until the operator of this server starts it"
    )
    assert (refusal.status, refusal.retry_after) == (503, 60)
    assert refusal.message.startswith(result)
    with pytest.raises(ApiError, match=re.escape(result)):
        await w.ask("for b, later", model="b")
    assert (await w.reply(await w.ask("for any"))).answers
    await w.closed()
    assert not b.claims
    assert len(w.swarm.claims) == 4


async def test_a_stopped_first_server_is_not_replaced_by_another_one(
    w: World, b: ScriptedSwarm
) -> None:
    w.swarm.automatic = False
    w.swarm.set_state("OFFLINE")
    await has_state(w, "s", "OFFLINE")
    with pytest.raises(ApiError) as refused:
        await w.ask("for any")
    assert refused.value.message.startswith("The engine is OFFLINE: ")
    assert BUSY not in refused.value.message
    assert (await w.reply(await w.ask("for b", model="b"))).answers
    await w.closed()
    assert not w.swarm.claims


async def test_a_late_answer_names_the_server(tmp_path: Path, b: ScriptedSwarm) -> None:
    configured = settings(proxy={"answer_budget": 0.2, "answer_limit": 0.2})
    async with world(tmp_path, configured=configured, others={"b": b}) as w:
        b.automatic = False
        b.set_state("WEIGHT_SYNCING")
        await has_state(w, "b", "WEIGHT_SYNCING")
        refusal = (await w.reply(await w.ask("for b", model="b"))).error
        assert refusal is not None
        assert refusal.message.startswith("Server b is WEIGHT_SYNCING. ")
        assert not w.swarm.claims


@pytest.fixture
async def front(tmp_path: Path, b: ScriptedSwarm) -> AsyncIterator[Front]:
    async with fronted(tmp_path, others={"b": b}) as made:
        yield made


@pytest.mark.parametrize("path", BODIES)
async def test_every_dialect_names_the_stopped_server(
    front: Front, b: ScriptedSwarm, path: str
) -> None:
    b.automatic = False
    b.set_state("OFFLINE")
    await has_state(front.world, "b", "OFFLINE")
    body = {**BODIES[path], "model": "b"}
    answer = await asyncio.wait_for(front.client.post(path, json=body), 20)
    assert answer.status_code == 503
    assert "Server b is OFFLINE: " in answer.text
    assert not front.world.swarm.claims
