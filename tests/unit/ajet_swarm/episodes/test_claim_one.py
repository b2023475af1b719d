"""Single claims side by side, and the lock that they share."""

import asyncio

import pytest

from ajet_swarm.api.watcher import Watcher
from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.common.tasks import ReadWriteLock, Tasks
from ajet_swarm.episodes.claim import EpisodeClaimer
from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.schemas import Claimed
from tests.support.scripted.swarm import ScriptedSwarm


def nothing(*_: object) -> None:
    """Record nothing."""


async def test_the_lock_is_shared_by_many_or_exclusive(tasks: Tasks) -> None:
    lock = ReadWriteLock()
    lines: list[str] = []
    leave = asyncio.Event()

    async def share(name: str) -> None:
        async with lock.shared():
            lines.append(name)
            await leave.wait()

    async def alone() -> None:
        async with lock.alone():
            lines.append("alone")

    tasks.spawn(share("a"), "a")
    tasks.spawn(share("b"), "b")
    await asyncio.sleep(0)
    tasks.spawn(alone(), "alone")
    await asyncio.sleep(0)
    tasks.spawn(share("c"), "c")
    await asyncio.sleep(0.01)
    assert lines == ["a", "b"], "it waits for those, and who comes later for it"
    leave.set()
    await tasks.drain(60)
    assert lines == ["a", "b", "alone", "c"]


async def test_reconcile_waits_for_single_claims_in_flight(
    server: ScriptedSwarm, client: SwarmWire, watcher: Watcher, tasks: Tasks
) -> None:
    claimer = EpisodeClaimer(client, watcher)

    server.fail_next("/claim_episode", "late")
    claiming = tasks.spawn(claimer.claim_one("train", 60, nothing), "claim")
    await server.until(server.claimed)
    looking = tasks.spawn(claimer.ends.reconcile(), "look")
    await asyncio.sleep(0.02)
    assert not looking.done(), "the server has it in our name, and we do not know of it yet"
    server.release()
    claimed = await claiming
    assert isinstance(claimed, Claimed)
    assert await looking == []
    assert server.claimed()
    claimer.ends.holdings.by_uuid.clear()
    assert await claimer.ends.reconcile() == [claimed.episode_uuid]
    assert not server.claimed()
    server.fail_next("/get_episode_buffer", 500)
    with pytest.raises(SwarmError):
        await claimer.ends.reconcile()
    await claimer.ends.close()


@pytest.mark.parametrize("caller_leaves", [False, True])
async def test_a_claim_that_waits_while_the_client_closes_is_refused_and_not_logged(
    client: SwarmWire,
    watcher: Watcher,
    tasks: Tasks,
    caplog: pytest.LogCaptureFixture,
    caller_leaves: bool,
) -> None:
    claimer = EpisodeClaimer(client, watcher)
    async with claimer.ends.lock.alone():
        waiting = tasks.spawn(claimer.claim_one("train", 60, nothing), "waits")
        await asyncio.sleep(0)
        closing = tasks.spawn(claimer.refuse_claims(), "close")
        await asyncio.sleep(0)
        if caller_leaves:
            waiting.cancel()
            await asyncio.sleep(0)
    await closing
    with pytest.raises(asyncio.CancelledError if caller_leaves else SwarmError):
        await waiting
    with pytest.raises(SwarmError, match="closed"):
        await claimer.claim_one("train", 60, nothing)
    await claimer.ends.close()
    failures = [one.getMessage() for one in caplog.records if "claims:" in one.getMessage()]
    assert not failures
