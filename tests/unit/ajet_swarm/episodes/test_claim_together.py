"""Groups that claim at the same time, and claims whose answer is lost."""

import asyncio

import pytest

from ajet_swarm.api.watcher import Watcher
from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.common.tasks import Tasks, cancel
from ajet_swarm.episodes.claim import EpisodeClaimer
from ajet_swarm.http.transport import HttpTransport
from ajet_swarm.protocol.errors import ClaimTimedOut, SwarmError
from ajet_swarm.protocol.schemas import Claimed
from tests.support.capped_clock import loop_time
from tests.support.faults.relay import FarSwarm, far_swarm
from tests.support.scripted.swarm import ScriptedSwarm
from tests.unit.ajet_swarm.helpers import Book, drop, group, idle, uuids, within


@pytest.fixture
async def warm(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm, client: SwarmWire
) -> None:
    """All was granted lately, and there is enough."""
    server.register(84)
    for _ in range(4):
        await drop(client, book, await group(claimer, book))


@pytest.mark.usefixtures("warm")
async def test_many_groups_are_served_in_few_turns(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm, tasks: Tasks
) -> None:
    groups = [tasks.spawn(group(claimer, book), "group") for _ in range(20)]
    episodes = [await task for task in groups]
    assert len(set().union(*map(uuids, episodes))) == 80
    assert {record.uuid for record in server.claimed()} == book.mine
    assert not server.aborts[16:]
    assert idle(claimer)


@pytest.mark.usefixtures("warm")
async def test_with_too_few_episodes_as_many_groups_complete_as_can(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm, tasks: Tasks
) -> None:
    server.automatic = False
    held, server.unclaimed = server.unclaimed[14:30], server.unclaimed[:14]
    groups = [tasks.spawn(group(claimer, book), f"group {number}") for number in range(6)]
    await server.until(lambda: sum(task.done() for task in groups) == 3)
    await server.until(lambda: len(server.claimed()) == 12)
    server.unclaimed.extend(held)
    episodes = [await task for task in groups]
    assert len(set().union(*map(uuids, episodes))) == 24
    assert await claimer.ends.tasks.drain(20)
    assert {record.uuid for record in server.claimed()} == book.mine


@pytest.mark.usefixtures("warm")
async def test_a_group_cancelled_in_flight_gives_back_and_the_others_continue(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm, tasks: Tasks
) -> None:
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
@pytest.mark.usefixtures("warm")
async def test_a_request_cancelled_in_the_loop_iteration_that_serves_it(
    claimer: EpisodeClaimer,
    book: Book,
    server: ScriptedSwarm,
    tasks: Tasks,
    late: bool,
) -> None:
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
    for task in groups:
        assert len(await task) == 4
    await asyncio.wait([leaving])
    assert await claimer.ends.tasks.drain(20)
    claimed = set() if leaving.cancelled() else uuids(leaving.result())
    assert claimed == (set(mine) & book.mine)
    assert {record.uuid for record in server.claimed()} == book.mine
    assert idle(claimer)
    assert len(await group(claimer, book)) == 4


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
async def test_while_no_episode_is_free_a_turn_claims_for_one_group(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm, tasks: Tasks
) -> None:
    server.automatic = False
    held, server.unclaimed = server.unclaimed[:], []
    groups = [tasks.spawn(group(claimer, book), "group") for _ in range(3)]
    await server.until(lambda: len(server.refusals) > 12)
    assert (claimer.queue.claiming, claimer.queue.waiting) == (1, 2)
    server.unclaimed.extend(held)
    assert [len(await task) for task in groups] == [4, 4, 4]


@pytest.mark.usefixtures("warm")
async def test_closing_with_claims_in_flight_fails_the_waiting_groups(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm, tasks: Tasks
) -> None:
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


@pytest.mark.usefixtures("warm")
async def test_the_engine_leaves_rolling_with_claims_in_flight(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm, tasks: Tasks
) -> None:
    groups = [tasks.spawn(group(claimer, book), f"group {number}") for number in range(7)]
    await groups[0]
    server.slots = 100
    server.set_state("WEIGHT_SYNCING")
    await server.until(
        lambda: not [record for record in server.claimed() if record.uuid not in book.mine]
    )
    server.set_state("ROLLING", 2)
    _, waiting = await asyncio.wait(groups, timeout=60)
    assert not waiting
    assert await claimer.ends.tasks.drain(20)
    assert {record.uuid for record in server.claimed()} <= book.mine


@pytest.mark.usefixtures("warm")
async def test_a_failing_callback_only_fails_its_own_group(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm, tasks: Tasks
) -> None:
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
    for task in groups:
        assert len(await task) == 4
    assert await claimer.ends.tasks.drain(20)
    assert {record.uuid for record in server.claimed()} == book.mine
    assert len(book.mine) == 12


# -- answers that are lost ----------------------------------------------------------------------


@pytest.mark.parametrize("how", ["drop_after", "hang"])
async def test_a_claim_whose_answer_is_lost_is_found_again(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm, how: str
) -> None:
    claimer.ends.timeout = 1.0 if how == "hang" else 30.0
    server.fail_next("/claim_episode", how)
    episodes = await group(claimer, book)
    await server.until(lambda: book.lost)
    assert await claimer.ends.tasks.drain(60)
    assert uuids(episodes) == book.mine == {record.uuid for record in server.claimed()}
    assert len(book.lost) == 1
    assert not set(book.lost) & set(book.claimed[:3])


async def test_closing_does_not_wait_for_the_second_search(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm
) -> None:
    claimer.ends.timeout = 1.0
    claimer.ends.search_again = 60.0
    server.fail_next("/claim_episode", "hang")
    await group(claimer, book, 1)
    await server.until(lambda: book.lost)
    began = loop_time()
    await claimer.close(30.0)
    assert loop_time() - began < 3.0
    assert {record.uuid for record in server.claimed()} == book.mine


async def test_closing_does_not_wait_for_an_unreachable_server(
    transport: HttpTransport, book: Book, tasks: Tasks
) -> None:
    async with far_swarm(FarSwarm()) as far:
        client = SwarmWire(far.url, transport, "me", name="test")
        watcher = Watcher(client)
        tasks.spawn(watcher.run(), "watcher")
        claimer = book.watch(EpisodeClaimer(client, watcher, timeout=60.0))
        far.fail_next("/claim_episode", "hang_before")
        waiting = tasks.spawn(group(claimer, book, 1), "group")
        await far.until(lambda: far.requests["/claim_episode"])
        await cancel(waiting)
        await far.relay.become("gone")
        await watcher.wait_for(lambda status: not status.reachable, 20)
        began = loop_time()
        await claimer.close(30.0)
        assert loop_time() - began < 3.0


async def test_a_claim_executed_after_the_first_search_is_found_by_the_second(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm
) -> None:
    claimer.ends.timeout = 1.0
    claimer.ends.search_again = 0.3
    server.fail_next("/claim_episode", "stall")
    episodes = await group(claimer, book, 1)
    await server.until(lambda: server.requests["/get_episode_buffer"] >= 1)
    assert server.claims == [episodes[0].episode_uuid]
    server.release()
    await server.until(lambda: len(server.claims) == 2)
    assert await claimer.ends.tasks.drain(60)
    assert uuids(episodes) == {record.uuid for record in server.claimed()}
    assert book.lost == server.claims[1:]


async def test_claims_that_a_frozen_server_executes_late_are_given_back(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm
) -> None:
    claimer.ends.timeout = 0.7
    server.freeze()
    with pytest.raises(ClaimTimedOut):
        await group(claimer, book, 4, 2.0)
    server.unfreeze()
    await server.until(lambda: len(server.claims) == 4)
    assert await claimer.ends.tasks.drain(60)
    assert server.claimed() == []
    assert sorted(book.lost) == sorted(server.claims)


async def test_reconcile_only_gives_back_our_unknown_episodes(
    claimer: EpisodeClaimer,
    book: Book,
    client: SwarmWire,
    server: ScriptedSwarm,
    transport: HttpTransport,
) -> None:
    other = SwarmWire(server.url, transport, "other")
    episodes = await group(claimer, book)
    foreign, stray = await other.claim(), await client.claim()
    assert isinstance(foreign, Claimed)
    assert isinstance(stray, Claimed)
    assert await claimer.ends.reconcile() == [stray.episode_uuid] == book.lost
    assert {r.uuid for r in server.claimed()} == uuids(episodes) | {foreign.episode_uuid}
    assert await claimer.ends.reconcile() == []
    server.fail_next("/get_episode_buffer", 500)
    with pytest.raises(SwarmError):
        await claimer.ends.reconcile()


async def test_reconcile_waits_for_claims_in_flight(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm
) -> None:
    """The server has recorded the claims; the claimer does not know them yet."""
    claimer.ends.timeout = 30.0
    server.fail_next("/claim_episode", "late", times=4)
    async with asyncio.TaskGroup() as tasks:
        claiming = tasks.create_task(group(claimer, book))
        await server.until(lambda: len(server.claims) == 4)
        sweeping = tasks.create_task(claimer.ends.reconcile())
        for _ in range(10):
            assert await claimer.client.can_continue(server.claims[0])
        server.release()
    assert sweeping.result() == []
    assert uuids(claiming.result()) == {record.uuid for record in server.claimed()}


@pytest.mark.parametrize("how", ["drop", 500])
async def test_a_failed_abort_is_repeated(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm, tasks: Tasks, how: int | str
) -> None:
    episodes = await group(claimer, book)
    server.fail_next("/abort_episode", how, times=2)
    await claimer.ends.give_back([episode.episode_uuid for episode in episodes], "test")
    assert len(server.claimed()) == 2
    assert await claimer.ends.tasks.drain(60)
    assert server.claimed() == []
    assert len(book.lost) == 2


async def test_an_episode_that_came_back_to_us_is_not_swept(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm
) -> None:
    """The abort worked but its answer was lost; by then the same uuid is ours in a new group."""
    server.automatic = False
    server.unclaimed[4:] = []
    first = await group(claimer, book)
    server.fail_next("/abort_episode", "hang", times=4)
    claimer.ends.holdings.abort_timeout = 1.0
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(
            claimer.ends.give_back([episode.episode_uuid for episode in first], "test")
        )
        await server.until(lambda: not server.claimed())
        book.forget()
        second = await group(claimer, book)
    assert uuids(second) == uuids(first)
    assert await claimer.ends.tasks.drain(60)
    assert await claimer.ends.reconcile() == []
    assert len(server.claimed()) == 4


# -- one more -----------------------------------------------------------------------------------


async def refilled(claimer: EpisodeClaimer, book: Book, seconds: float = 60) -> Claimed | None:
    return await claimer.refill(
        deadline=within(seconds), on_claimed=book.on_claimed, on_returned=book.on_returned
    )


async def test_a_refill_goes_before_a_group_that_waits(
    claimer: EpisodeClaimer, book: Book, client: SwarmWire, server: ScriptedSwarm
) -> None:
    """Else the group that holds three waits for the one that waits for it."""
    server.automatic = False
    server.unclaimed[4:] = []
    held = await group(claimer, book)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(group(claimer, book))
        await server.until(lambda: server.refusals)
        await drop(client, book, held[:1])
        more = await refilled(claimer, book)
        assert more is not None
        assert not waiting.done()
        await drop(client, book, [*held[1:], more])
    assert uuids(waiting.result()) == book.mine == {record.uuid for record in server.claimed()}


@pytest.mark.parametrize("refreshed", [True, False])
async def test_a_refill_does_not_wait_for_a_boundary(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm, watcher: Watcher, refreshed: bool
) -> None:
    server.automatic = False
    held = await group(claimer, book, 3)
    server.set_state("ROLLING_POST")
    if refreshed:
        await watcher.refresh(60)
    assert await refilled(claimer, book, 60) is None
    assert uuids(held) == {record.uuid for record in server.claimed()}


async def test_a_refill_has_a_deadline(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm
) -> None:
    server.unclaimed.clear()
    assert await refilled(claimer, book, 0.15) is None
    assert len(server.refusals) >= 1
    assert await claimer.ends.tasks.drain(60)
