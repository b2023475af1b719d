"""Waiting for a state by name, callbacks, and agreement with an engine that is OFFLINE."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.client.asynchronous import AsyncSwarm
from ajet_swarm.client.synchronous import SwarmClient
from ajet_swarm.client.training import UpdateCalls, ended_before
from ajet_swarm.common.tasks import Tasks
from ajet_swarm.job.agentjet import AgentJetJob
from ajet_swarm.protocol.errors import EngineOff, GaveUp, SwarmError, Unreachable
from ajet_swarm.protocol.schemas import EngineState
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.scripted.threaded_swarm import threaded_swarm


@pytest.fixture
async def swarm(server: ScriptedSwarm) -> AsyncIterator[AsyncSwarm]:
    server.automatic = False
    async with AsyncSwarm(server.url, patience=30) as client:
        yield client


async def _wait_for_state(swarm: AsyncSwarm, state: EngineState) -> None:
    await swarm.watcher.wait_for({state}, 60)


async def test_a_state_is_waited_for_by_name(
    server: ScriptedSwarm, swarm: AsyncSwarm, tasks: Tasks
) -> None:
    await swarm._wait_until_status_change_to()  # ROLLING
    work = swarm._wait_until_status_change_to(desired_status_list=["WEIGHT_SYNCING", "ENGINE.X"])
    with pytest.raises(SwarmError, match=r"'ENGINE\.X' is not a state.*ENGINE\.BOOTING"):
        await work
    names = ["ENGINE.WEIGHT_SYNCING", "ENGINE.BOOTING"]
    waiting = tasks.spawn(swarm._wait_until_status_change_to(desired_status_list=names), "wait")
    server.set_state("WEIGHT_SYNCING")
    async with asyncio.timeout(60):
        await waiting


async def test_an_engine_that_goes_off_ends_the_wait(
    server: ScriptedSwarm, swarm: AsyncSwarm
) -> None:
    await _wait_for_state(swarm, EngineState.ROLLING)
    server.set_state("WEIGHT_SYNCING")
    await _wait_for_state(swarm, EngineState.WEIGHT_SYNCING)
    raised: list[EngineOff] = []

    async def wait() -> None:
        try:
            await swarm._wait_until_status_change_to("ENGINE.ROLLING", timeout=60)
        except EngineOff as error:
            raised.append(error)

    async with asyncio.TaskGroup() as group:
        group.create_task(wait())
        await asyncio.sleep(0)
        server.set_state("OFFLINE", 0)
    assert "went OFFLINE during the wait for ROLLING" in str(raised[0])


async def test_offline_itself_and_a_start_are_waited_for(
    server: ScriptedSwarm, swarm: AsyncSwarm, tasks: Tasks
) -> None:
    await _wait_for_state(swarm, EngineState.ROLLING)
    off = tasks.spawn(swarm._wait_until_status_change_to("ENGINE.OFFLINE", timeout=60), "off")
    server.set_state("OFFLINE", 0)
    await off
    with pytest.raises(GaveUp, match=r"ROLLING did not come in 0\.2 s; the engine is OFFLINE"):
        await swarm._wait_until_status_change_to("ENGINE.ROLLING", timeout=0.2)
    on = tasks.spawn(swarm._wait_until_status_change_to("ENGINE.ROLLING", timeout=60), "on")
    server.set_state("BOOTING")
    await _wait_for_state(swarm, EngineState.BOOTING)
    assert not on.done()
    server.set_state("ROLLING", 1)
    await on


def test_threads_wait_the_same_way() -> None:
    with threaded_swarm() as swarm, SwarmClient(swarm.url) as client:
        client._wait_until_status_change_to(desired_status="ENGINE.ROLLING", verbose=False)
        with pytest.raises(GaveUp, match=r"BOOTING did not come in 0\.1 s; the engine is ROLLING"):
            client._wait_until_status_change_to("ENGINE.BOOTING", timeout=0.1)
        assert client.get_verbose_logs()[0].message == "hello"


async def test_a_callback_at_each_update(server: ScriptedSwarm, swarm: AsyncSwarm) -> None:
    called = threading.Event()
    await swarm.add_entering_weight_sync_callback(called.set)
    await _wait_for_state(swarm, EngineState.ROLLING)
    server.set_state("WEIGHT_SYNCING")
    assert await asyncio.to_thread(called.wait, 60)


OFF, ON, SYNCING = ("OFFLINE", 0), ("ROLLING", 1), "WEIGHT_SYNCING"


@pytest.mark.parametrize(
    ("begin", "states", "calls"),
    [
        (ON, [("WEIGHT_SYNCING", 1), ("ROLLING", 2), ("WEIGHT_SYNCING", 2)], 2),
        (ON, [("ROLLING", 2), ("ROLLING", 3)], 2),
        (ON, [("ROLLING", 5)], 4),
        (ON, [("WEIGHT_SYNCING", 1), ("ROLLING", 4)], 3),
        (ON, [("ROLLING_POST", 1), ("WEIGHT_SYNCING", 1), ("ROLLING", 1), ("ROLLING", 2)], 1),
        (ON, [("WEIGHT_SYNCING", 1), ("WEIGHT_SYNCING", 2), ("ROLLING", 2)], 1),
        (ON, [("ROLLING", 3), OFF, ("BOOTING", 0), ("ROLLING", 1), ("ROLLING", 2)], 3),
        (ON, [("ROLLING", 3), ("ROLLING", 1), ("WEIGHT_SYNCING", 1)], 3),
        (ON, [OFF, ("BOOTING", 0), ("ROLLING", 0), ("ROLLING", 1)], 0),
        (ON, [OFF, ("ROLLING", 7)], 0),
        (ON, [("ROLLING", 2), ("OFFLINE", 0, "training complete: step 3 of 3")], 3),
        (("WEIGHT_SYNCING", 4), [("ROLLING", 5)], 0),  # that update is under way
        (None, [(state, None) for state in ("ROLLING", SYNCING, SYNCING, "ROLLING", SYNCING)], 2),
    ],
)
async def test_each_update_is_called_for_once(
    tasks: Tasks, begin: tuple[str, int] | None, states: list[tuple[Any, ...]], calls: int
) -> None:
    """Without a step the state alone tells."""
    made = Calls(tasks, known(*begin) if begin else ServerStatus())
    for seen in states:
        made.updates.note(known(*seen))
    assert await made.after() == calls


async def test_update_callbacks_run_in_order_and_an_error_does_not_stop_them(tasks: Tasks) -> None:
    made = Calls(tasks, known("ROLLING", 1), faulty=True)
    made.updates.note(known("ROLLING", 4))
    made.updates.note(known("WEIGHT_SYNCING", 4))
    assert await made.after() == 4
    assert made.most == 1


class Calls:
    """Counts the calls, and how many ran at once."""

    def __init__(self, tasks: Tasks, status: ServerStatus, *, faulty: bool = False) -> None:
        self.count = self.most = self._now = 0
        self._faulty, self._tasks = faulty, tasks
        self.updates = UpdateCalls(self._called, ended_before, status, tasks)

    def _called(self) -> None:
        self._now += 1
        self.most = max(self.most, self._now)
        self.count += 1
        self._now -= 1
        if self._faulty:
            raise RuntimeError("a fault of the script")

    async def after(self) -> int:
        """Calls made once none is under way."""
        assert await self._tasks.drain(60)
        return self.count


_stays: list[str] = []


def known(state: str, step: int | None, detail: str = "") -> ServerStatus:
    """The engine as it is seen; another state than before began later."""
    if _stays[-1:] != [state]:
        _stays.append(state)
    at = float(len(_stays))
    return ServerStatus(
        EngineState(state), state, step=step, since=at, seen_at=at, reachable=True, detail=detail
    )


@pytest.mark.slow
async def test_several_engines_by_agentjets_name(server: ScriptedSwarm, swarm: AsyncSwarm) -> None:
    job = AgentJetJob(model="m")
    server.set_state("OFFLINE", 0)
    async with ScriptedSwarm(state="OFFLINE") as second, AsyncSwarm(second.url) as other:
        await AsyncSwarm.async_and_start_multi_engine([(swarm, job), (other, job)])
        assert (server.state, second.state) == ("ROLLING", "ROLLING")
        second.automatic = False
        second.set_state("WEIGHT_SYNCING")
        with pytest.raises(GaveUp, match=r"ROLLING did not come in 0\.2 s"):
            await AsyncSwarm.async_and_start_multi_engine([(other, job)], timeout=0.2)
    await swarm.auto_sync_train_config_and_start_engine(agentjet_job=job)


async def test_agreeing_with_a_stopped_engine_is_an_error(
    server: ScriptedSwarm, swarm: AsyncSwarm
) -> None:
    server.set_state("OFFLINE", 0)
    with pytest.raises(EngineOff, match="OFFLINE: there is no batch"):
        await swarm.agree_sync_weight()


async def test_a_server_frozen_beyond_the_patience_is_named_in_the_error(
    server: ScriptedSwarm,
) -> None:
    server.freeze()
    async with AsyncSwarm(server.url, patience=0.1) as swarm:
        with pytest.raises(Unreachable, match=r"no swarm server answered for 0\.1 s"):
            await swarm.agree_sync_weight()
    server.unfreeze()
