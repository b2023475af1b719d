"""Answers that are lost, episodes that are swept, and one episode more for a group."""

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
from tests.unit.ajet_swarm.helpers import Book, drop, group, uuids, within

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
