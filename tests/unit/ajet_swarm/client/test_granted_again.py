"""A server grants the same uuid again: each claim stands for itself, whoever of a client holds it.

The record of an eval or aborted episode is free before the answer to its end is read, so another
thread of the same client may hold it by then.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from ajet_swarm.client.asynchronous import AsyncSwarm
from ajet_swarm.client.synchronous import SwarmClient
from ajet_swarm.common.tasks import Tasks
from ajet_swarm.episodes import ends
from ajet_swarm.protocol.errors import EpisodeLost
from ajet_swarm.protocol.models import WorkflowOutput
from ajet_swarm.protocol.schemas import Claimed, ClaimRefused, EndKind, EndOutcome
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.scripted.threaded_swarm import threaded_swarm

ABORT, CLAIM, END = "/abort_episode", "/claim_episode", "/end_episode"
FIRST, SECOND = WorkflowOutput(reward=0.9), WorkflowOutput(reward=0.1)


@pytest.fixture
async def server() -> AsyncIterator[ScriptedSwarm]:
    """A server with one episode, which each claim gets."""
    async with ScriptedSwarm(slots=1, repeat=2, batch=9) as server:
        yield server


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
    assert not swarm._ends.holdings.by_uuid


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
    assert await swarm._ends.tasks.drain(60)
    assert server.claims == [uuid, uuid]
    await second_counts(server, swarm, uuid)


async def refused(swarm: AsyncSwarm, uuid: str, why: str = "error") -> None:
    with pytest.raises(EpisodeLost, match=why):
        await swarm.end_episode("first", uuid, FIRST)


async def granted_again(
    server: ScriptedSwarm, swarm: AsyncSwarm, tasks: Tasks, uuid: str, in_flight: bool
) -> None:
    """The server takes the episode back and grants it to another claim of this client.

    That claim has its answer, or it is in flight: granted, and without an answer for 0.05 s.
    """
    server.expire(uuid)
    if not in_flight:
        assert (await swarm.begin_episode())[0] == uuid
        return
    server.fail_next(CLAIM, "late")
    tasks.spawn(swarm.begin_episode(), "second")
    await server.until(server.claimed)
    asyncio.get_running_loop().call_later(0.05, server.release)


@pytest.mark.parametrize("in_flight", [False, True])
async def test_a_refused_end_does_not_give_back_the_next_claim(
    server: ScriptedSwarm,
    swarm: AsyncSwarm,
    tasks: Tasks,
    monkeypatch: pytest.MonkeyPatch,
    in_flight: bool,
) -> None:
    uuid, _ = await swarm.begin_episode(episode_type="eval")

    async def end(*_: object, **__: object) -> EndOutcome:
        await granted_again(server, swarm, tasks, uuid, in_flight)
        return EndOutcome(EndKind.ERROR, "Internal Server Error")

    with monkeypatch.context() as patch:
        patch.setattr(swarm.wire, "end", end)
        await refused(swarm, uuid)
    assert await tasks.drain(60)
    assert not server.aborts
    await second_counts(server, swarm, uuid)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause before the lookups of an end without an answer."""
    monkeypatch.setattr(ends, "BROKEN_PAUSES", (0.0, 0.0))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("kind", "how", "in_flight"),
    [
        ("eval", "drop_after", False),
        ("eval", "drop", False),
        ("train", "drop", False),
        ("eval", "drop", True),
        ("train", "drop", True),
    ],
)
async def test_an_end_without_an_answer_is_not_sent_again_for_the_next_claim(
    server: ScriptedSwarm,
    swarm: AsyncSwarm,
    tasks: Tasks,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    how: str,
    in_flight: bool,
) -> None:
    uuid, _ = await swarm.begin_episode(episode_type=kind)
    server.fail_next(END, how)
    send = swarm.wire.end

    async def end(uuid: str, *arguments: Any, **options: Any) -> EndOutcome:
        monkeypatch.setattr(swarm.wire, "end", send)
        outcome = await send(uuid, *arguments, **options)
        await granted_again(server, swarm, tasks, uuid, in_flight)
        return outcome

    monkeypatch.setattr(swarm.wire, "end", end)
    if kind == "train":  # an end that arrives deletes the episode, so this one did not
        await refused(swarm, uuid, "granted it to this client again")
    else:
        outcome = await swarm.end_episode("first", uuid, FIRST)
        assert outcome.kind is EndKind.UNKNOWN_OUTCOME
        assert in_flight or outcome == EndOutcome(
            EndKind.UNKNOWN_OUTCOME, "no answer came; the server has granted it again"
        )
    assert await tasks.drain(60)
    await second_counts(server, swarm, uuid)
    assert not server.aborts


@pytest.mark.usefixtures("quick")
async def test_an_eval_end_that_did_not_arrive_gives_the_episode_back(
    server: ScriptedSwarm, swarm: AsyncSwarm
) -> None:
    uuid, _ = await swarm.begin_episode(episode_type="eval")
    server.fail_next(END, "drop")
    outcome = await swarm.end_episode("first", uuid, FIRST)
    assert outcome == EndOutcome(EndKind.UNKNOWN_OUTCOME, "no answer came; it was given back")
    assert (len(server.aborts), server.requests[END], server.claimed()) == (1, 1, [])
    assert (await swarm.begin_episode())[0] == uuid
    await second_counts(server, swarm, uuid)


async def test_an_end_that_could_not_be_sent_is_not_sent_for_the_next_claim(
    server: ScriptedSwarm, swarm: AsyncSwarm, monkeypatch: pytest.MonkeyPatch
) -> None:
    uuid, _ = await swarm.begin_episode()
    send = swarm.wire.end

    async def end(*_: object, **__: object) -> EndOutcome:
        monkeypatch.setattr(swarm.wire, "end", send)
        server.expire(uuid)
        assert (await swarm.begin_episode())[0] == uuid
        return EndOutcome(EndKind.UNREACHABLE, "no connection")

    monkeypatch.setattr(swarm.wire, "end", end)
    with pytest.raises(EpisodeLost, match="granted it to this client again"):
        await swarm.end_episode("first", uuid, FIRST)
    await second_counts(server, swarm, uuid)


async def test_after_a_suspend_the_server_is_asked_before_an_abort(
    server: ScriptedSwarm, swarm: AsyncSwarm
) -> None:
    """The monotonic clock stood still meanwhile, and the server has granted the episode again."""
    uuid, _ = await swarm.begin_episode()
    async with AsyncSwarm(server.url) as other:
        server.expire(uuid)
        assert (await other.begin_episode())[0] == uuid
        wall = swarm._ends.holdings.wall
        swarm._ends.holdings.wall = lambda: wall() + 3600.0
        assert not await swarm.abort_episode(uuid)
        assert not server.aborts
        assert (await other.end_episode("other", uuid, SECOND)).ended


# -- contexts: each has its own claim --------------------------------------------------------------


async def test_a_stale_context_does_not_end_the_episode_of_another_task(
    server: ScriptedSwarm, swarm: AsyncSwarm
) -> None:
    async with swarm.episode("first") as first:
        server.expire(first.uuid)
        async with swarm.episode("second") as second:
            assert second.uuid == first.uuid
            with pytest.raises(EpisodeLost, match="granted it to this client again"):
                await first.end(FIRST)
            assert (await second.end(SECOND)).ended
    assert server.reward_log == [(first.uuid, "second", 0.1)]
    assert not server.aborts


async def test_a_stale_context_does_not_abort_the_episode_of_another_task(
    server: ScriptedSwarm, swarm: AsyncSwarm
) -> None:
    async with contextlib.AsyncExitStack() as later:
        async with swarm.episode("first") as first:
            server.expire(first.uuid)
            second = await later.enter_async_context(swarm.episode("second"))
            assert second.uuid == first.uuid
        assert not server.aborts
        assert (await second.end(SECOND)).ended


async def test_an_end_after_the_idle_timeout_waits_for_the_claims_in_flight(
    server: ScriptedSwarm, swarm: AsyncSwarm, tasks: Tasks
) -> None:
    """One of them may get the same uuid."""
    async with swarm.episode("first", 0.05, lifetime=600) as first:
        await asyncio.sleep(0.06)
        server.expire(first.uuid)
        server.fail_next(CLAIM, "late")
        claiming = tasks.spawn(swarm.begin_episode(), "second")
        await server.until(server.claimed)
        asyncio.get_running_loop().call_later(0.05, server.release)
        with pytest.raises(EpisodeLost, match="granted it to this client again"):
            await first.end(FIRST)
    await claiming
    assert not server.requests[END]
    await second_counts(server, swarm, first.uuid)


def test_threads_have_their_own_claims() -> None:
    with (
        threaded_swarm(slots=1, repeat=2, batch=9) as threaded,
        SwarmClient(threaded.url) as client,
        client.episode("first") as first,
    ):
        threaded.do(lambda: threaded.server.expire(first.uuid))
        with client.episode("second") as second:
            assert second.uuid == first.uuid
            with pytest.raises(EpisodeLost, match="granted it to this client again"):
                first.end(FIRST)
            assert second.end(SECOND).ended
