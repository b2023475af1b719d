"""All or none: contention, refusals, boundaries, cancellation, lost answers."""

import asyncio

import pytest

from ajet_swarm.api.watcher import Watcher
from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.common.tasks import ReadWriteLock, Tasks
from ajet_swarm.episodes.claim import EpisodeClaimer
from ajet_swarm.http.transport import HttpTransport
from ajet_swarm.protocol.errors import ClaimTimedOut, SwarmError
from ajet_swarm.protocol.schemas import Claimed, EngineState, WireOutput
from tests.support.capped_clock import loop_time
from tests.support.scripted.swarm import ScriptedSwarm
from tests.unit.ajet_swarm.helpers import HELLO, Book, drop, group, idle, uuids

# -- the plain case -----------------------------------------------------------------------------


async def test_a_group_is_claimed_completely_or_not_at_all(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm
) -> None:
    claims_at_intent: list[int] = []

    async def intent() -> None:
        claims_at_intent.append(server.requests["/claim_episode"])

    episodes = await claimer.claim_group(
        4, episode_type="eval", discard_timeout=77, on_intent=intent, on_claimed=book.on_claimed
    )
    assert len(episodes) == 4
    assert claims_at_intent == [0]
    assert uuids(episodes) == set(book.claimed) == {record.uuid for record in server.claimed()}
    assert {(record.type, record.timeout) for record in server.claimed()} == {("eval", 77.0)}
    assert server.requests["/abort_episode"] == 0
    assert idle(claimer)


# -- not enough free ----------------------------------------------------------------------------


async def test_an_incomplete_group_is_given_back_while_it_waits(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm
) -> None:
    server.slots = 3
    server.set_state("OFFLINE")
    server.set_state("ROLLING", 1)
    with pytest.raises(ClaimTimedOut) as caught:
        await group(claimer, book, 4, 0.5)
    await claimer.ends.tasks.drain(60)
    assert (caught.value.best, caught.value.n) == (3, 4)
    assert caught.value.cause == "none_available"
    assert server.claimed() == []
    assert book.mine == set()
    assert all(not body["declare_client_active"] for body in server.aborts)
    assert server.active_clients == {}
    assert {cause for _, cause in book.returned} >= {server.refusals[0]}


@pytest.mark.parametrize("n", [1, 4])
async def test_a_deadline_with_claims_in_flight_has_a_readable_reason(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm, n: int
) -> None:
    for _ in range(n):
        server.fail_next("/claim_episode", "stall")
    with pytest.raises(ClaimTimedOut, match="last: no answer to the claim") as caught:
        await group(claimer, book, n, 0.5)
    assert caught.value.cause == "no answer to the claim"
    server.release()
    assert await claimer.ends.tasks.drain(60)
    assert server.claimed() == []


async def test_a_group_completes_when_the_missing_episodes_become_free(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm
) -> None:
    server.automatic = False
    held, server.unclaimed = server.unclaimed[2:], server.unclaimed[:2]
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(group(claimer, book))
        await server.until(lambda: server.aborts and not server.claimed())
        server.unclaimed.extend(held)
    assert len(server.claimed()) == 4
    assert uuids(waiting.result()) == book.mine


@pytest.mark.slow
@pytest.mark.parametrize("slots", [4, 6, 11])
async def test_many_groups_of_two_clients_and_few_episodes(
    server: ScriptedSwarm, transport: HttpTransport, tasks: Tasks, slots: int
) -> None:
    """No deadlock, no starving, nothing left behind, and never two halves of groups at once."""
    server.slots = slots
    server.automatic = False
    server.set_state("OFFLINE")
    server.set_state("ROLLING", 1)
    books = [Book(), Book()]
    done = 0

    async def one(claimer: EpisodeClaimer, book: Book, n: int) -> None:
        nonlocal done
        episodes = await group(claimer, book, n, 100)
        assert len(uuids(episodes)) == n
        await asyncio.sleep(0.005)
        await drop(claimer.client, book, episodes)
        done += 1

    claimers = []
    for name, book in zip(("a", "b"), books, strict=True):
        client = SwarmWire(server.url, transport, name)
        watcher = Watcher(client)
        tasks.spawn(watcher.run(), name)
        claimers.append(book.watch(EpisodeClaimer(client, watcher)))
    async with asyncio.timeout(100), asyncio.TaskGroup() as running:
        for n in range(24):
            running.create_task(one(claimers[n % 2], books[n % 2], 2 + n % 3))
    for claimer in claimers:
        await claimer.close()
    assert done == 24
    assert server.claimed() == []
    assert [book.mine for book in books] == [set(), set()]
    assert server.most_claimed <= slots


async def test_groups_are_served_in_order_of_request(
    claimer: EpisodeClaimer, book: Book, client: SwarmWire, server: ScriptedSwarm
) -> None:
    server.automatic = False
    held, server.unclaimed = server.unclaimed, []
    order: list[int] = []

    async def one(n: int) -> None:
        episodes = await group(claimer, book)
        order.append(n)
        await drop(client, book, episodes)

    async with asyncio.TaskGroup() as tasks:
        for n in range(5):
            tasks.create_task(one(n))
        await server.until(lambda: len(server.refusals) >= 2)
        server.unclaimed.extend(held[:4])
    assert order == [0, 1, 2, 3, 4]


# -- the engine's states ------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["OFFLINE", "BOOTING", "ROLLING_POST", "WEIGHT_SYNCING"])
async def test_nothing_is_claimed_until_the_engine_rolls(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm, watcher: Watcher, state: str
) -> None:
    server.automatic = False
    server.set_state(state)
    await watcher.refresh(60)
    async with asyncio.TaskGroup() as tasks:
        waits = [tasks.create_task(group(claimer, book, 2)) for _ in range(3)]
        await watcher.refresh(60)
        assert server.requests["/claim_episode"] == 0
        server.set_state("ROLLING", 2)
    assert len(server.claimed()) == 6
    assert sum(len(task.result()) for task in waits) == 6


async def test_a_refusal_that_the_watcher_has_not_seen_yet(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm, watcher: Watcher
) -> None:
    server.automatic = False
    server.set_state("WEIGHT_SYNCING")
    assert watcher.current.state is EngineState.ROLLING
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(group(claimer, book))
        await server.until(lambda: server.refusals)
        await watcher.wait_for({EngineState.WEIGHT_SYNCING}, 60)
        claims = server.requests["/claim_episode"]
        await watcher.refresh(60)
        assert server.requests["/claim_episode"] == claims <= 8
        server.set_state("ROLLING", 2)
    assert len(waiting.result()) == 4


async def test_a_refused_group_waits_for_a_new_status_before_it_retries(
    client: SwarmWire, server: ScriptedSwarm, tasks: Tasks, book: Book
) -> None:
    """The watcher still believes in ROLLING and its poll hangs: no claim is sent meanwhile."""
    server.automatic = False
    watcher = Watcher(client, poll_timeout=1.0)
    tasks.spawn(watcher.run(), "watcher")
    await watcher.wait_for({EngineState.ROLLING}, 60)
    claimer = book.watch(EpisodeClaimer(client, watcher))
    server.set_state("WEIGHT_SYNCING")
    server.fail_next("/get_engine_status", "hang_before")
    polls = server.requests["/get_engine_status"]
    watcher.nudge()
    await server.until(lambda: server.requests["/get_engine_status"] > polls)
    claim_counts: list[int] = []
    watcher.add_listener(lambda _: claim_counts.append(server.requests["/claim_episode"]))
    work = tasks.spawn(group(claimer, book), "group")
    await server.until(lambda: claim_counts)
    assert claim_counts[0] == 4
    server.set_state("ROLLING", 2)
    assert len(await work) == 4


async def test_the_engine_leaves_rolling_between_the_claims(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm, watcher: Watcher
) -> None:
    """One claim hangs; the others must not be held across the boundary until it times out."""
    claimer.ends.timeout = 1.5
    server.sync_seconds = None
    server.fail_next("/claim_episode", "hang_before")
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(group(claimer, book, 4, 100))
        await server.until(lambda: len(server.claimed()) == 3)
        began = loop_time()
        server.set_state("ROLLING_POST")
        watcher.nudge()
        await server.until(lambda: server.state == "WEIGHT_SYNCING")
        assert loop_time() - began < 1.0
        assert server.lost == []
        server.finish_sync()
    assert len(waiting.result()) == 4
    assert len(server.claimed()) == 4


@pytest.mark.slow
async def test_groups_over_many_batches(
    claimer: EpisodeClaimer, book: Book, client: SwarmWire, server: ScriptedSwarm
) -> None:
    """Groups in a row across boundaries: each batch has its groups whole."""
    server.batch, server.repeat, server.sync_seconds = 2, 4, 0.02
    server.set_state("OFFLINE")
    server.set_state("ROLLING", 1)

    async def one(n: int) -> None:
        episodes = await group(claimer, book)
        for k, episode in enumerate(episodes):
            await client.chat(episode, HELLO)
            outcome = await client.end(episode.episode_uuid, f"t{n}", WireOutput(reward=k))
            assert outcome.ended, outcome
            book.forget(episode.episode_uuid)

    async with asyncio.timeout(100), asyncio.TaskGroup() as tasks:
        for n in range(10):
            tasks.create_task(one(n))
    await server.until(lambda: server.step is not None and server.step > 5)
    assert sum(len(batch) for batch in server.batches) <= 10
    assert len({task for _, task, _ in server.reward_log}) == 10
    assert all(len(rewards) == 4 for batch in server.batches for rewards in batch.values())
    assert (server.lost, server.claimed(), server.duplicate_ends) == ([], [], 0)


# -- cancellation -------------------------------------------------------------------------------


async def test_cancelled_while_claims_are_on_their_way(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm, tasks: Tasks
) -> None:
    claimer.ends.timeout = 5.0
    server.freeze()
    work = tasks.spawn(group(claimer, book), "group")
    await server.until(lambda: server.connections >= 5)  # 4 claims, the watcher
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    server.unfreeze()
    assert await claimer.ends.tasks.drain(60)
    assert len(server.claims) == 4
    assert server.claimed() == []
    assert book.mine == set()
    assert sorted(book.claimed) == sorted(u for back, _ in book.returned for u in back)


@pytest.mark.slow
async def test_cancelled_at_any_moment(
    claimer: EpisodeClaimer,
    book: Book,
    client: SwarmWire,
    server: ScriptedSwarm,
    tasks: Tasks,
) -> None:
    """A cancel at every step of the loop: the caller has all episodes or none is claimed."""
    outcomes = set()
    for steps in range(0, 120, 2):
        work = tasks.spawn(group(claimer, book), "group")
        for _ in range(steps):
            await asyncio.sleep(0)
        work.cancel()
        try:
            episodes = await work
        except asyncio.CancelledError:
            episodes = []
        outcomes.add(len(episodes))
        assert await claimer.ends.tasks.drain(60)
        assert uuids(episodes) == book.mine == {record.uuid for record in server.claimed()}
        await drop(client, book, episodes)
    assert outcomes == {0, 4}


async def test_cancelled_while_queueing(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm, tasks: Tasks
) -> None:
    server.automatic = False
    held, server.unclaimed = server.unclaimed, []
    works = [tasks.spawn(group(claimer, book), f"group {n}") for n in range(4)]
    await server.until(lambda: server.refusals)
    for work in works[:3]:
        work.cancel()
    server.unclaimed.extend(held)
    assert len(await works[3]) == 4
    assert len(server.claimed()) == 4


async def test_a_hook_that_fails_leaves_nothing_claimed(
    claimer: EpisodeClaimer, server: ScriptedSwarm, caplog: pytest.LogCaptureFixture
) -> None:
    def full(_: str) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        await claimer.claim_group(4, on_claimed=full)
    assert await claimer.ends.tasks.drain(60)
    assert server.claimed() == []
    assert "could not be recorded" in caplog.text


async def test_claims_come_within_a_quarter_second_of_rolling(
    server: ScriptedSwarm, claimer: EpisodeClaimer, book: Book
) -> None:
    server.automatic = False
    for state in ("WEIGHT_SYNCING", "ROLLING_POST", "BOOTING"):
        server.set_state(state)
        claims = len(server.claims)
        work = asyncio.get_running_loop().create_task(group(claimer, book, 2))
        await asyncio.sleep(0.6)
        assert len(server.claims) == claims
        began = loop_time()
        server.set_state("ROLLING", 2)
        episodes = await work
        assert loop_time() - began < 0.25
        await drop(claimer.client, book, episodes)


async def test_waiting_for_a_free_episode_is_reported(
    server: ScriptedSwarm, claimer: EpisodeClaimer, book: Book
) -> None:
    flags: list[bool] = []
    claimer.queue.on_starved = lambda: flags.append(claimer.queue.starved)
    first = await group(claimer, book, 14)
    work = asyncio.get_running_loop().create_task(group(claimer, book, 4))
    await server.until(lambda: flags)
    assert claimer.queue.starved
    await drop(claimer.client, book, first)
    await work
    assert flags == [True]
    assert not claimer.queue.starved


async def test_a_group_that_cannot_complete_does_not_block_a_smaller_one(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm
) -> None:
    server.automatic = False
    held, server.unclaimed = server.unclaimed[6:], server.unclaimed[:6]
    async with asyncio.TaskGroup() as tasks:
        large = tasks.create_task(group(claimer, book, 8))
        await server.until(lambda: server.aborts and not server.claimed())
        began = loop_time()
        small = await group(claimer, book)
        assert loop_time() - began < 3.0
        assert not large.done()
        server.unclaimed.extend(held)
    assert len(small) == 4
    assert len(large.result()) == 8
    assert uuids(small).isdisjoint(uuids(large.result()))


@pytest.mark.slow
async def test_all_large_groups_step_aside_together(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm
) -> None:
    server.automatic = False
    held, server.unclaimed = server.unclaimed[6:], server.unclaimed[:6]
    async with asyncio.TaskGroup() as tasks:
        large = [tasks.create_task(group(claimer, book, 8)) for _ in range(6)]
        await server.until(lambda: server.aborts and not server.claimed())
        began = loop_time()
        small = await group(claimer, book)
        assert loop_time() - began < 3.0  # one's patience, not that of all six
        assert not any(claim.done() for claim in large)
        await drop(claimer.client, book, small)
        server.unclaimed.extend(held)
        for claim in asyncio.as_completed(large):
            await drop(claimer.client, book, await claim)
    assert server.claimed() == []


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
    failures = [
        record.getMessage() for record in caplog.records if "claims:" in record.getMessage()
    ]
    assert not failures
