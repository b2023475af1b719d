"""A server grants the same uuid again: each claim stands for itself, whoever of a client holds it.

The record of an eval or aborted episode is free before the answer to its end is read, so another
thread of the same client may hold it by then.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from ajet_swarm.api.outcomes import Claimed, ClaimRefused, EndKind, EndOutcome
from ajet_swarm.client.asynchronous import AsyncSwarm
from ajet_swarm.common.tasks import Tasks
from ajet_swarm.protocol.errors import EpisodeLost
from ajet_swarm.protocol.task import WorkflowOutput
from tests.support.scripted.swarm import ScriptedSwarm

ABORT, CLAIM, END = "/abort_episode", "/claim_episode", "/end_episode"
FIRST, SECOND = WorkflowOutput(reward=0.9), WorkflowOutput(reward=0.1)


@pytest.fixture
async def server() -> AsyncIterator[ScriptedSwarm]:
    """A server with one episode, which each claim gets."""
    async with ScriptedSwarm(slots=1, repeat=2, batch=9) as server:
        yield server


@pytest.fixture
async def swarm(server: ScriptedSwarm) -> AsyncIterator[AsyncSwarm]:
    async with AsyncSwarm(server.url, patience=30) as client:
        yield client


async def second_counts(server: ScriptedSwarm, swarm: AsyncSwarm, uuid: str) -> None:
    """Check that the second claim is ended with its own reward, and that nothing else is."""
    assert (await swarm.end_episode("second", uuid, SECOND)).ended
    assert server.reward_log == [(uuid, "second", 0.1)]


async def by_abort(swarm: AsyncSwarm, uuid: str) -> bool:
    return await swarm.abort_episode(uuid)


async def by_end(swarm: AsyncSwarm, uuid: str) -> bool:
    return (await swarm.end_episode("first", uuid, FIRST)).ended


@pytest.mark.parametrize(("route", "leave"), [(ABORT, by_abort), (END, by_end)])
async def test_an_episode_that_is_claimed_before_the_answer_is_read_is_not_forgotten(
    server: ScriptedSwarm,
    swarm: AsyncSwarm,
    tasks: Tasks,
    route: str,
    leave: Callable[[AsyncSwarm, str], Awaitable[bool]],
) -> None:
    uuid, _ = await swarm.begin_episode(episode_type="eval")
    server.fail_next(route, "late")

    async def first() -> None:
        assert await leave(swarm, uuid)

    leaving = tasks.spawn(first(), "first")
    assert (await swarm.begin_episode())[0] == uuid
    server.release()
    await leaving
    await second_counts(server, swarm, uuid)
    assert len(swarm._deadlines) == 0


async def test_a_claim_whose_caller_left_does_not_forget_the_next_one(
    server: ScriptedSwarm, swarm: AsyncSwarm, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = swarm.wire.claim

    async def claim(*arguments: Any, **options: Any) -> Claimed | ClaimRefused:
        answer = await send(*arguments, **options)
        leaving.cancel()
        return answer

    server.fail_next(ABORT, "late")
    with monkeypatch.context() as patch:
        patch.setattr(swarm.wire, "claim", claim)
        leaving = tasks.spawn(swarm.begin_episode(), "leaves")
        await asyncio.wait({leaving})
    uuid, _ = await swarm.begin_episode()
    server.release()
    assert await swarm._claims.releaser.tasks.drain(60)
    assert server.claims == [uuid, uuid]
    await second_counts(server, swarm, uuid)


async def refused(swarm: AsyncSwarm, uuid: str) -> None:
    with pytest.raises(EpisodeLost, match="error"):
        await swarm.end_episode("first", uuid, FIRST)


async def test_a_refused_end_does_not_give_back_the_next_claim(
    server: ScriptedSwarm, swarm: AsyncSwarm, monkeypatch: pytest.MonkeyPatch
) -> None:
    uuid, _ = await swarm.begin_episode(episode_type="eval")

    async def end(*_: object) -> EndOutcome:
        server.expire(uuid)
        assert (await swarm.begin_episode())[0] == uuid
        return EndOutcome(EndKind.ERROR, "Internal Server Error")

    with monkeypatch.context() as patch:
        patch.setattr(swarm.wire, "end", end)
        await refused(swarm, uuid)
    assert not server.aborts
    await second_counts(server, swarm, uuid)


async def test_a_refused_end_does_not_give_back_a_claim_in_flight(
    server: ScriptedSwarm, swarm: AsyncSwarm, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    uuid, _ = await swarm.begin_episode(episode_type="eval")
    server.fail_next(CLAIM, "late")
    claiming: list[asyncio.Task[object]] = []

    async def end(*_: object) -> EndOutcome:
        server.expire(uuid)
        claiming.append(tasks.spawn(swarm.begin_episode(), "second"))
        await server.until(server.claimed)
        asyncio.get_running_loop().call_later(0.05, server.release)
        return EndOutcome(EndKind.ERROR, "Internal Server Error")

    with monkeypatch.context() as patch:
        patch.setattr(swarm.wire, "end", end)
        await refused(swarm, uuid)
    await asyncio.wait(claiming)
    assert not server.aborts
    await second_counts(server, swarm, uuid)
