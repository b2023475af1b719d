"""Many groups at once: one batch claims for several of them."""

import asyncio

import pytest

import ajet_swarm.claims.attempts
from ajet_swarm.api.engine import AsyncSwarmClient
from ajet_swarm.claims.claimer import GroupClaimer
from ajet_swarm.claims.request import ClaimRequest
from ajet_swarm.claims.shared_batch import SharedBatch
from ajet_swarm.common.tasks import Tasks, cancel
from tests.support.scripted.swarm import ScriptedSwarm
from tests.unit.ajet_swarm.helpers import Book, drop, group, uuids


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many groups each turn claimed for."""
    numbers: list[int] = []

    class Noted(SharedBatch):
        def __init__(self, requests: list[ClaimRequest], **rest: object) -> None:
            numbers.append(len(requests))
            super().__init__(requests, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(ajet_swarm.claims.attempts, "SharedBatch", Noted)
    return numbers


async def warm(
    claimer: GroupClaimer,
    book: Book,
    server: ScriptedSwarm,
    client: AsyncSwarmClient,
    sizes: list[int],
) -> None:
    """All was granted lately, and there is enough."""
    server.register(84)
    for _ in range(4):
        await drop(client, book, await group(claimer, book))
    sizes.clear()


async def test_many_groups_are_served_in_few_turns(
    claimer: GroupClaimer,
    book: Book,
    server: ScriptedSwarm,
    client: AsyncSwarmClient,
    sizes: list[int],
    tasks: Tasks,
) -> None:
    await warm(claimer, book, server, client, sizes)
    groups = [tasks.spawn(group(claimer, book), "group") for _ in range(20)]
    episodes = [await one for one in groups]
    assert sizes == [1, 8, 8, 3]
    assert len(set().union(*map(uuids, episodes))) == 80
    assert {record.uuid for record in server.claimed()} == book.mine
    assert not server.aborts[16:]
    assert not claimer.waiting


async def test_with_too_few_episodes_the_first_groups_complete(
    claimer: GroupClaimer,
    book: Book,
    server: ScriptedSwarm,
    client: AsyncSwarmClient,
    sizes: list[int],
    tasks: Tasks,
) -> None:
    await warm(claimer, book, server, client, sizes)
    server.automatic = False
    held, server.unclaimed = server.unclaimed[14:30], server.unclaimed[:14]
    groups = [tasks.spawn(group(claimer, book), f"group {number}") for number in range(6)]
    await server.until(lambda: sum(one.done() for one in groups) == 3)
    await server.until(lambda: len(server.claimed()) == 12)
    assert [one.done() for one in groups] == [True, True, True, False, False, False]
    assert sizes[:2] == [1, 5]
    server.unclaimed.extend(held)
    episodes = [await one for one in groups]
    assert len(set().union(*map(uuids, episodes))) == 24
    assert await claimer.settle(20)
    assert {record.uuid for record in server.claimed()} == book.mine


async def test_a_sharing_request_cancelled_in_flight_gives_back_and_the_others_continue(
    claimer: GroupClaimer,
    book: Book,
    server: ScriptedSwarm,
    client: AsyncSwarmClient,
    sizes: list[int],
    tasks: Tasks,
) -> None:
    await warm(claimer, book, server, client, sizes)
    server.freeze()
    groups = [tasks.spawn(group(claimer, book), f"group {number}") for number in range(5)]
    await asyncio.sleep(0)
    server.fail_next("/claim_episode", "late", times=20)
    server.unfreeze()
    await server.until(lambda: len(server.claims) == 16 + 4)
    server.release()
    await groups[0]
    await asyncio.sleep(0)
    for leaving in (groups[1], groups[3]):  # the one that has the turn, and one of those along
        await cancel(leaving)
    for staying in (groups[2], groups[4]):
        assert len(await staying) == 4
    assert await claimer.settle(20)
    assert {record.uuid for record in server.claimed()} == book.mine
    assert len(book.mine) == 12
    assert not claimer.waiting


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
async def test_a_request_cancelled_in_the_loop_iteration_that_serves_it(
    claimer: GroupClaimer,
    book: Book,
    server: ScriptedSwarm,
    client: AsyncSwarmClient,
    sizes: list[int],
    tasks: Tasks,
    late: bool,
) -> None:
    await warm(claimer, book, server, client, sizes)
    mine: list[str] = []

    def last(uuid: str) -> None:
        book.on_claimed(uuid)
        mine.append(uuid)
        if len(mine) == 4:
            if late:
                asyncio.get_running_loop().call_soon(leaving.cancel)
            else:
                leaving.cancel()

    groups = [tasks.spawn(group(claimer, book), "group") for _ in range(2)]
    leaving = tasks.spawn(
        claimer.claim_group(4, on_claimed=last, on_returned=book.on_returned), "leaving"
    )
    groups += [tasks.spawn(group(claimer, book), "group") for _ in range(3)]
    for one in groups:
        assert len(await one) == 4
    await asyncio.wait([leaving])
    assert await claimer.settle(20)
    claimed = set() if leaving.cancelled() else uuids(leaving.result())
    assert claimed == (set(mine) & book.mine)
    assert {record.uuid for record in server.claimed()} == book.mine
    assert not claimer.waiting
    assert len(await group(claimer, book)) == 4


@pytest.mark.slow
async def test_while_no_episode_is_free_a_turn_claims_for_one_group(
    claimer: GroupClaimer,
    book: Book,
    server: ScriptedSwarm,
    client: AsyncSwarmClient,
    sizes: list[int],
    tasks: Tasks,
) -> None:
    await warm(claimer, book, server, client, sizes)
    server.automatic = False
    held, server.unclaimed = server.unclaimed[:], []
    groups = [tasks.spawn(group(claimer, book), "group") for _ in range(3)]
    await server.until(lambda: len(server.refusals) > 12)
    assert set(sizes[2:]) <= {1}
    assert claimer._attempts.most_together == 1
    server.unclaimed.extend(held)
    assert [len(await one) for one in groups] == [4, 4, 4]


async def test_closing_with_claims_in_flight_fails_the_waiting_groups(
    claimer: GroupClaimer,
    book: Book,
    server: ScriptedSwarm,
    client: AsyncSwarmClient,
    sizes: list[int],
    tasks: Tasks,
) -> None:
    await warm(claimer, book, server, client, sizes)
    first = tasks.spawn(group(claimer, book), "group")
    server.freeze()
    groups = [tasks.spawn(group(claimer, book), "group") for _ in range(3)]
    await asyncio.sleep(0)
    server.unfreeze()
    await first
    server.fail_always("/claim_episode", "stall")
    await asyncio.wait(groups, timeout=0.05)
    await cancel(groups[0])
    await claimer.close(0.05)
    _, waiting = await asyncio.wait(groups, timeout=20)
    assert not waiting
    server.release()


async def test_the_engine_leaves_rolling_with_claims_in_flight(
    claimer: GroupClaimer,
    book: Book,
    server: ScriptedSwarm,
    client: AsyncSwarmClient,
    sizes: list[int],
    tasks: Tasks,
) -> None:
    await warm(claimer, book, server, client, sizes)
    groups = [tasks.spawn(group(claimer, book), f"group {number}") for number in range(7)]
    await groups[0]
    server.slots = 100
    server.set_state("WEIGHT_SYNCING")
    await server.until(lambda: not [one for one in server.claimed() if one.uuid not in book.mine])
    server.set_state("ROLLING", 2)
    _, waiting = await asyncio.wait(groups, timeout=60)
    assert not waiting
    assert await claimer.settle(20)
    assert {record.uuid for record in server.claimed()} <= book.mine


async def test_a_failing_callback_only_fails_its_own_group(
    claimer: GroupClaimer,
    book: Book,
    server: ScriptedSwarm,
    client: AsyncSwarmClient,
    sizes: list[int],
    tasks: Tasks,
) -> None:
    await warm(claimer, book, server, client, sizes)

    def fails(uuid: str) -> None:
        book.on_claimed(uuid)
        raise ValueError("the hook's own")

    groups = [tasks.spawn(group(claimer, book), "group") for _ in range(2)]
    broken = tasks.spawn(
        claimer.claim_group(4, on_claimed=fails, on_returned=book.on_returned), "broken"
    )
    groups.append(tasks.spawn(group(claimer, book), "group"))
    with pytest.raises(ValueError, match="the hook's own"):
        await broken
    for one in groups:
        assert len(await one) == 4
    assert sizes[:2] == [1, 3]
    assert await claimer.settle(20)
    assert {record.uuid for record in server.claimed()} == book.mine
    assert len(book.mine) == 12
