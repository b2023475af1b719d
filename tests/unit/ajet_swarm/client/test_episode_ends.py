"""Ends and aborts that a server acknowledges late, or that a front in between cuts off.

A server waits up to 300 s for the runner, and shows the episode as claimed meanwhile. Once it has
the acknowledgement, it may grant the same uuid to another client.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.client.asynchronous import AsyncSwarm
from ajet_swarm.common.tasks import Tasks
from ajet_swarm.episodes import ends
from ajet_swarm.protocol.models import WorkflowOutput
from ajet_swarm.protocol.schemas import EndKind, EndOutcome
from tests.support.capped_clock import skip
from tests.support.scripted.swarm import ScriptedSwarm

ABORT, BUFFER, END = "/abort_episode", "/get_episode_buffer", "/end_episode"
OUTPUT = WorkflowOutput(reward=0.9)


@pytest.fixture
async def server() -> AsyncIterator[ScriptedSwarm]:
    async with ScriptedSwarm(automatic=False) as server:
        yield server


@pytest.fixture
def front(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every end meets the limit of a front in between, while the server goes on with it."""
    monkeypatch.setattr(ends, "BROKEN_PAUSES", (0.0, 0.0))
    plain = SwarmWire.end

    async def end(self: SwarmWire, *arguments: Any, **options: Any) -> EndOutcome:
        outcome = await plain(self, *arguments, **options)
        skip(60.0)
        return outcome

    monkeypatch.setattr(SwarmWire, "end", end)


async def swept(swarm: AsyncSwarm) -> None:
    for _ in range(2):
        assert await swarm._ends.reconcile() == []


async def test_an_end_that_waits_for_the_runner_is_sent_once(
    server: ScriptedSwarm, swarm: AsyncSwarm, tasks: Tasks
) -> None:
    uuid, _ = await swarm.begin_episode()
    server.fail_next(END, "stall")
    ending = tasks.spawn(swarm.end_episode("t", uuid, OUTPUT), "end")
    await server.until(lambda: server.requests[END])
    skip(299.0)
    await swarm.watcher.refresh(20)
    server.release()
    assert (await ending).ended
    assert (server.requests[END], server.requests[BUFFER]) == (1, 0)


async def test_an_abort_during_the_end_changes_nothing(
    server: ScriptedSwarm, swarm: AsyncSwarm, tasks: Tasks
) -> None:
    uuid, _ = await swarm.begin_episode()
    server.fail_next(END, "stall")
    ending = tasks.spawn(swarm.end_episode("t", uuid, OUTPUT), "end")
    await server.until(lambda: server.requests[END])
    assert not await swarm.abort_episode(uuid)
    server.release()
    assert (await ending).ended
    assert server.requests[ABORT] == 0


@pytest.mark.usefixtures("front")
async def test_an_end_that_a_front_cuts_off_twice_is_unknown_and_not_aborted(
    server: ScriptedSwarm, swarm: AsyncSwarm
) -> None:
    uuid, _ = await swarm.begin_episode()
    server.fail_always(END, "front")
    outcome = await swarm.end_episode("t", uuid, OUTPUT)
    assert outcome.kind is EndKind.UNKNOWN_OUTCOME
    assert server.requests[END] == 2
    await swept(swarm)
    await swarm.close(0.2)
    assert not server.requests[ABORT]
    server.release()
    await server.until(lambda: server.rewards)
    assert server.rewards == {uuid: 0.9}


@pytest.mark.usefixtures("front")
async def test_an_eval_end_that_a_front_cuts_off_is_not_aborted(
    server: ScriptedSwarm, swarm: AsyncSwarm
) -> None:
    uuid, _ = await swarm.begin_episode(episode_type="eval")
    server.fail_always(END, "front")
    outcome = await swarm.end_episode("t", uuid, OUTPUT)
    assert outcome.kind is EndKind.UNKNOWN_OUTCOME
    await swept(swarm)
    assert not server.requests[ABORT]
    server.release()
    await server.until(lambda: not server.claimed())
    assert server.requests[END] == 1


@pytest.mark.usefixtures("front")
async def test_an_end_that_a_front_lost_is_given_back_in_the_end(
    server: ScriptedSwarm, swarm: AsyncSwarm
) -> None:
    uuid, _ = await swarm.begin_episode()
    server.fail_always(END, 504)
    assert (await swarm.end_episode("t", uuid, OUTPUT)).kind is EndKind.UNKNOWN_OUTCOME
    skip(310.0)
    await server.until(lambda: not server.claimed())


async def test_closing_does_not_abort_an_episode_that_is_being_ended(
    server: ScriptedSwarm, tasks: Tasks
) -> None:
    client = AsyncSwarm(server.url)
    uuid, _ = await client.begin_episode()
    other, _ = await client.begin_episode()
    server.fail_next(END, "front")
    ending = tasks.spawn(client.end_episode("t", uuid, OUTPUT), "end")
    await server.until(lambda: server.requests[END])
    await client.close(0.2)
    await asyncio.wait({ending})
    assert [body["episode_uuid"] for body in server.aborts] == [other]
    server.release()
    await server.until(lambda: server.rewards)


@pytest.mark.parametrize("active", [False, True])
async def test_an_abort_in_flight_is_not_repeated(
    server: ScriptedSwarm, swarm: AsyncSwarm, tasks: Tasks, active: bool
) -> None:
    uuid, _ = await swarm.begin_episode()
    server.fail_always(ABORT, "stall")
    aborting = tasks.spawn(swarm.abort_episode(uuid, active), "abort")
    await server.until(lambda: server.requests[ABORT])
    skip(31.0)
    assert await aborting
    await swept(swarm)
    await swarm.close(0.2)
    assert server.requests[ABORT] == 1
