"""A start waits for the late OFFLINE of a trainer that ended, and for nothing else."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from ajet_swarm.api import watcher as watching
from ajet_swarm.api.watcher import Watcher
from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.client.asynchronous import AsyncSwarm
from ajet_swarm.common.tasks import Tasks
from ajet_swarm.job.agentjet import AgentJetJob
from ajet_swarm.protocol.errors import GaveUp, Unreachable
from ajet_swarm.protocol.schemas import EngineState, EngineStatus
from tests.support.scripted.swarm import ScriptedSwarm
from tests.unit.ajet_swarm.helpers import GONE, ScriptedClient, status

JOB = AgentJetJob(batch_size=4, num_repeat=4, model="m")
FOR_EVER = 600.0
START = "/start_engine"


ROLLS, OFF, OFF_AT_0 = status("ROLLING", 3), status("OFFLINE", 3), status("OFFLINE", 0)


@pytest.mark.parametrize(
    ("readings", "ended"),
    [
        ([], None),
        ([OFF], None),
        ([OFF, OFF], None),
        ([ROLLS], None),
        ([ROLLS, OFF], 1),
        ([ROLLS, OFF, OFF], 1),
        ([ROLLS, OFF, OFF_AT_0], 2),
        ([OFF, OFF_AT_0], 1),
        ([status("BOOTING", None), OFF, ROLLS], 1),
        ([ROLLS, GONE, OFF], 2),
        ([OFF, GONE, OFF], None),
    ],
)
async def test_the_last_change_to_offline_counts(
    readings: list[EngineStatus | Exception], ended: int | None
) -> None:
    client = ScriptedClient()
    watcher, last = Watcher(client), None
    for number, reading in enumerate(readings):
        client.next_status, watcher.off_at = reading, 0.0
        await watcher.poll()
        last = number if watcher.off_at else last
    assert last == ended


@pytest.fixture
async def swarm(
    server: ScriptedSwarm, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[AsyncSwarm]:
    monkeypatch.setattr(watching, "QUIET", FOR_EVER)
    async with AsyncSwarm(server.url, patience=30) as client:
        await client.watcher.wait_for(lambda seen: seen.reachable, 60)
        yield client


async def start(swarm: AsyncSwarm) -> None:
    await swarm.start_engine()


async def auto(swarm: AsyncSwarm) -> None:
    await swarm.auto_sync_train_config_and_start_engine(JOB)


async def forced(swarm: AsyncSwarm) -> None:
    await swarm.auto_sync_train_config_and_start_engine(JOB, force_restart=True)


async def own_stop(server: ScriptedSwarm, swarm: AsyncSwarm) -> None:
    await swarm.stop_engine()


async def other_stop(server: ScriptedSwarm, swarm: AsyncSwarm) -> None:
    server.set_state("OFFLINE", 0)
    await swarm.watcher.wait_for({EngineState.OFFLINE}, 60)


@pytest.mark.parametrize("stop", [own_stop, other_stop])
@pytest.mark.parametrize("begin", [start, auto, forced])
async def test_a_late_offline_of_the_stopped_trainer_does_not_end_the_next_start(
    server: ScriptedSwarm,
    swarm: AsyncSwarm,
    monkeypatch: pytest.MonkeyPatch,
    stop: Callable[[ScriptedSwarm, AsyncSwarm], Awaitable[None]],
    begin: Callable[[AsyncSwarm], Awaitable[None]],
) -> None:
    monkeypatch.setattr(watching, "QUIET", 0.6)
    server.config, server.boot_seconds = JOB.to_yaml(), 0.4
    await stop(server, swarm)
    asyncio.get_running_loop().call_later(0.1, server.set_state, "OFFLINE", 0)
    await begin(swarm)
    assert server.state == "ROLLING"
    assert server.requests[START] == 1


@pytest.mark.parametrize("begin", [start, auto, forced])
async def test_an_engine_that_was_offline_before_starts_at_once(
    monkeypatch: pytest.MonkeyPatch, begin: Callable[[AsyncSwarm], Awaitable[None]]
) -> None:
    monkeypatch.setattr(watching, "QUIET", FOR_EVER)
    async with ScriptedSwarm(state="OFFLINE") as server, AsyncSwarm(server.url) as swarm:
        server.config = JOB.to_yaml()
        await begin(swarm)
        assert server.state == "ROLLING"


async def test_the_embedded_engine_has_no_trainer_to_wait_for(
    server: ScriptedSwarm, swarm: AsyncSwarm, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def embedded(_: SwarmWire) -> bool:
        return True

    monkeypatch.setattr(SwarmWire, "is_embedded", embedded)
    server.config, server.strict = JOB.to_yaml(), False
    await swarm.stop_engine()
    await swarm.start_engine()
    assert server.state == "ROLLING"


async def test_a_start_by_another_client_ends_the_wait(
    server: ScriptedSwarm, swarm: AsyncSwarm, tasks: Tasks
) -> None:
    await swarm.stop_engine()
    waiting = tasks.spawn(auto(swarm), "auto")
    await server.until(lambda: server.requests["/get_engine_status"] > 2)
    server.set_state("BOOTING")
    await swarm.watcher.wait_for({EngineState.BOOTING}, 60)
    server.set_state("ROLLING", 1)
    await waiting
    assert not server.requests[START]


async def test_the_wait_ends_in_time(server: ScriptedSwarm, swarm: AsyncSwarm) -> None:
    await swarm.stop_engine()
    with pytest.raises(GaveUp, match=r"ROLLING did not come in 0\.1 s; the engine is OFFLINE"):
        await swarm.start_engine(timeout=0.1)
    assert not server.requests[START]


async def test_a_server_that_is_gone_ends_the_wait(
    server: ScriptedSwarm, swarm: AsyncSwarm, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def embedded(_: SwarmWire) -> bool:
        server.fail_always("/get_engine_status", "drop")
        return False

    monkeypatch.setattr(watching, "GONE_FOR", 0.0)
    monkeypatch.setattr(SwarmWire, "is_embedded", embedded)
    await swarm.stop_engine()
    with pytest.raises(Unreachable):
        await swarm.start_engine()
    assert not server.requests[START]
