"""Many groups at once: several of them claim while all is granted."""

import asyncio

import pytest

from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.common.tasks import Tasks, cancel
from ajet_swarm.episodes.claim import EpisodeClaimer
from tests.support.scripted.swarm import ScriptedSwarm
from tests.unit.ajet_swarm.helpers import Book, drop, group, idle, uuids


async def warm(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm, client: SwarmWire
) -> None:
    """All was granted lately, and there is enough."""
    server.register(84)
    for _ in range(4):
        await drop(client, book, await group(claimer, book))


async def test_many_groups_are_served_in_few_turns(
    claimer: EpisodeClaimer,
    book: Book,
    server: ScriptedSwarm,
    client: SwarmWire,
    tasks: Tasks,
) -> None:
    await warm(claimer, book, server, client)
    groups = [tasks.spawn(group(claimer, book), "group") for _ in range(20)]
    episodes = [await one for one in groups]
    assert len(set().union(*map(uuids, episodes))) == 80
    assert {record.uuid for record in server.claimed()} == book.mine
    assert not server.aborts[16:]
    assert idle(claimer)


async def test_with_too_few_episodes_as_many_groups_complete_as_can(
    claimer: EpisodeClaimer,
    book: Book,
    server: ScriptedSwarm,
    client: SwarmWire,
    tasks: Tasks,
) -> None:
    await warm(claimer, book, server, client)
    server.automatic = False
    held, server.unclaimed = server.unclaimed[14:30], server.unclaimed[:14]
    groups = [tasks.spawn(group(claimer, book), f"group {number}") for number in range(6)]
    await server.until(lambda: sum(one.done() for one in groups) == 3)
    await server.until(lambda: len(server.claimed()) == 12)
    server.unclaimed.extend(held)
    episodes = [await one for one in groups]
    assert len(set().union(*map(uuids, episodes))) == 24
    assert await claimer.ends.tasks.drain(20)
    assert {record.uuid for record in server.claimed()} == book.mine


async def test_a_group_cancelled_in_flight_gives_back_and_the_others_continue(
    claimer: EpisodeClaimer,
    book: Book,
    server: ScriptedSwarm,
    client: SwarmWire,
    tasks: Tasks,
) -> None:
    await warm(claimer, book, server, client)
    server.fail_next("/claim_episode", "late", times=20)
    groups = [tasks.spawn(group(claimer, book), f"group {number}") for number in range(5)]
    await server.until(lambda: len(server.claims) == 16 + 20)
    for leaving in (groups[1], groups[3]):
        await cancel(leaving)
    server.release()
    for staying in (groups[0], groups[2], groups[4]):
        assert len(await staying) == 4
    assert await claimer.ends.tasks.drain(20)
    assert {record.uuid for record in server.claimed()} == book.mine
    assert len(book.mine) == 12
    assert idle(claimer)


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
async def test_a_request_cancelled_in_the_loop_iteration_that_serves_it(
    claimer: EpisodeClaimer,
    book: Book,
    server: ScriptedSwarm,
    client: SwarmWire,
    tasks: Tasks,
    late: bool,
) -> None:
    await warm(claimer, book, server, client)
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
    assert await claimer.ends.tasks.drain(20)
    claimed = set() if leaving.cancelled() else uuids(leaving.result())
    assert claimed == (set(mine) & book.mine)
    assert {record.uuid for record in server.claimed()} == book.mine
    assert idle(claimer)
    assert len(await group(claimer, book)) == 4


@pytest.mark.slow
async def test_while_no_episode_is_free_a_turn_claims_for_one_group(
    claimer: EpisodeClaimer,
    book: Book,
    server: ScriptedSwarm,
    client: SwarmWire,
    tasks: Tasks,
) -> None:
    await warm(claimer, book, server, client)
    server.automatic = False
    held, server.unclaimed = server.unclaimed[:], []
    groups = [tasks.spawn(group(claimer, book), "group") for _ in range(3)]
    await server.until(lambda: len(server.refusals) > 12)
    assert (claimer.queue.claiming, claimer.queue.waiting) == (1, 2)
    server.unclaimed.extend(held)
    assert [len(await one) for one in groups] == [4, 4, 4]


async def test_closing_with_claims_in_flight_fails_the_waiting_groups(
    claimer: EpisodeClaimer,
    book: Book,
    server: ScriptedSwarm,
    client: SwarmWire,
    tasks: Tasks,
) -> None:
    await warm(claimer, book, server, client)
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
    claimer: EpisodeClaimer,
    book: Book,
    server: ScriptedSwarm,
    client: SwarmWire,
    tasks: Tasks,
) -> None:
    await warm(claimer, book, server, client)
    groups = [tasks.spawn(group(claimer, book), f"group {number}") for number in range(7)]
    await groups[0]
    server.slots = 100
    server.set_state("WEIGHT_SYNCING")
    await server.until(lambda: not [one for one in server.claimed() if one.uuid not in book.mine])
    server.set_state("ROLLING", 2)
    _, waiting = await asyncio.wait(groups, timeout=60)
    assert not waiting
    assert await claimer.ends.tasks.drain(20)
    assert {record.uuid for record in server.claimed()} <= book.mine


async def test_a_failing_callback_only_fails_its_own_group(
    claimer: EpisodeClaimer,
    book: Book,
    server: ScriptedSwarm,
    client: SwarmWire,
    tasks: Tasks,
) -> None:
    await warm(claimer, book, server, client)

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
    assert await claimer.ends.tasks.drain(20)
    assert {record.uuid for record in server.claimed()} == book.mine
    assert len(book.mine) == 12
