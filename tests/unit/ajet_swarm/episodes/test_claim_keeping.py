"""Other clients take each episode the moment it is free: a group keeps a part, in short windows."""

import asyncio
import random
from collections import Counter

import pytest

import ajet_swarm.episodes.claim
from ajet_swarm.api.watcher import Watcher
from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.common.tasks import Tasks
from ajet_swarm.episodes.claim import EpisodeClaimer
from ajet_swarm.http.transport import HttpTransport
from ajet_swarm.protocol.errors import ClaimTimedOut
from ajet_swarm.protocol.schemas import Claimed
from tests.support.capped_clock import loop_time
from tests.support.scripted.swarm import ScriptedSwarm
from tests.unit.ajet_swarm.helpers import Book, drop, group, idle, uuids, within


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ajet_swarm.episodes.claim, "KEEP_AFTER", 0.2)
    monkeypatch.setattr(ajet_swarm.episodes.claim, "KEEP", (0.3, 0.9))


def only(server: ScriptedSwarm, free: int) -> None:
    """No more than that many episodes, from now on."""
    server.automatic = False
    server.slots = free
    server.set_state("OFFLINE")
    server.set_state("ROLLING", 1)


class Others:
    """Another client: workers that claim, work, give back and claim again without a pause."""

    def __init__(self, server: ScriptedSwarm, transport: HttpTransport, tasks: Tasks) -> None:
        self.server = server
        self.transport = transport
        self.tasks = tasks
        self.done: Counter[int] = Counter()
        self.stop = False

    def work(self, count: int) -> None:
        for number in range(count):
            self.tasks.spawn(self._work(number), f"other {number}")

    async def _work(self, number: int) -> None:
        rng = random.Random(number)
        client = SwarmWire(self.server.url, self.transport, f"other{number}")
        while not self.stop:
            episode = await client.claim("train")
            if isinstance(episode, Claimed):
                await asyncio.sleep(rng.uniform(0.05, 0.15))
                await client.abort(episode.episode_uuid)
                self.done[number] += 1
            else:
                await asyncio.sleep(rng.uniform(0.04, 0.06))


@pytest.mark.slow
@pytest.mark.parametrize("spare", [1, 3])
async def test_a_group_completes_against_steady_workers_of_another_client(
    server: ScriptedSwarm,
    transport: HttpTransport,
    tasks: Tasks,
    claimer: EpisodeClaimer,
    book: Book,
    spare: int,
) -> None:
    """Neither starves the other: we get groups of 4, and each worker continues."""
    server.slots = 8
    server.set_state("OFFLINE")
    server.set_state("ROLLING", 1)
    others = Others(server, transport, tasks)
    others.work(8 - spare)
    await server.until(lambda: len(others.done) == 8 - spare)
    for _ in range(2):
        before = others.done.copy()
        episodes = await group(claimer, book, 4, 100)
        await drop(claimer.client, book, episodes)
        await server.until(lambda: all(others.done[one] > before[one] for one in before))  # noqa: B023
    others.stop = True
    assert book.mine == set()


async def test_of_two_clients_with_a_part_one_gives_up_and_the_other_completes(
    server: ScriptedSwarm, transport: HttpTransport, tasks: Tasks
) -> None:
    only(server, 0)
    books = [Book(), Book()]
    claimers = []
    for name, book in zip(("a", "b"), books, strict=True):
        client = SwarmWire(server.url, transport, name)
        watcher = Watcher(client)
        tasks.spawn(watcher.run(), name)
        claimers.append(book.watch(EpisodeClaimer(client, watcher)))

    async def both(number: int) -> None:
        episodes = await group(claimers[number], books[number])
        assert len(uuids(episodes)) == 4
        await drop(claimers[number].client, books[number], episodes)

    async with asyncio.timeout(100), asyncio.TaskGroup() as running:
        for number in (0, 1):
            running.create_task(both(number))
        await server.until(lambda: all(claimer.keeping for claimer in claimers))
        server.register(5)  # enough for one; each has a part of it at first
    for claimer in claimers:
        await claimer.close()
    assert server.claimed() == []
    assert [book.mine for book in books] == [set(), set()]


@pytest.mark.parametrize("state", ["ROLLING_POST", "WEIGHT_SYNCING", "OFFLINE"])
async def test_a_part_is_given_back_when_the_engine_leaves_rolling(
    claimer: EpisodeClaimer,
    book: Book,
    server: ScriptedSwarm,
    tasks: Tasks,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
) -> None:
    monkeypatch.setattr(ajet_swarm.episodes.claim, "KEEP", (60.0, 60.0))  # no window ends meanwhile
    only(server, 3)
    work = tasks.spawn(group(claimer, book), "group")
    await server.until(lambda: claimer.keeping and len(book.mine) == 3)
    server.set_state(state)
    began = loop_time()
    await server.until(lambda: not book.mine and not server.claimed())
    assert loop_time() - began < 0.5
    assert server.requests["/abort_episode"] >= 3
    server.slots = 4
    server.set_state("OFFLINE")
    server.set_state("ROLLING", 2)
    assert len(await work) == 4


@pytest.mark.slow
async def test_at_the_end_of_a_window_nothing_is_held(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm, tasks: Tasks
) -> None:
    only(server, 3)
    work = tasks.spawn(group(claimer, book), "group")
    await server.until(lambda: claimer.keeping and len(book.mine) == 3)
    began = loop_time()
    assert await claimer.ends.reconcile() == []  # held episodes are known
    await server.until(lambda: not book.mine)
    assert loop_time() - began < 0.3 + ajet_swarm.episodes.claim.KEEP[1]  # the longest there is
    server.register(1)
    assert len(await work) == 4


async def test_a_deadline_or_cancellation_gives_back_a_part(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm, tasks: Tasks
) -> None:
    only(server, 3)
    with pytest.raises(ClaimTimedOut):
        await claimer.claim_group(
            4, deadline=within(0.45), on_claimed=book.on_claimed, on_returned=book.on_returned
        )
    work = tasks.spawn(group(claimer, book), "group")
    await server.until(lambda: claimer.keeping and len(book.mine) == 3)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert await claimer.ends.tasks.drain(60)
    assert server.claimed() == []
    assert book.mine == set()
    assert idle(claimer)
