"""Which request is served first when a large group cannot get all its episodes."""

import asyncio

import pytest

from ajet_swarm.episodes.claim import EpisodeClaimer
from tests.support.capped_clock import loop_time
from tests.support.scripted.swarm import ScriptedSwarm
from tests.unit.ajet_swarm.helpers import Book, drop, group, uuids


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
        assert not any(one.done() for one in large)
        await drop(claimer.client, book, small)
        server.unclaimed.extend(held)
        for one in asyncio.as_completed(large):
            await drop(claimer.client, book, await one)
    assert server.claimed() == []
