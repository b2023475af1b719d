"""Ends give way to claims while many groups claim, and never for long."""

import asyncio

from ajet_swarm.common.tasks import EagerCoroutine
from proxy.servers.claim_priority import MANY, MAX_DELAY, ClaimPriority


def crowd(way: ClaimPriority, groups: int = MANY) -> None:
    for _ in range(groups):
        way.begin()


async def test_few_claims_delay_no_end() -> None:
    way = ClaimPriority()
    crowd(way, MANY - 1)
    assert not way.crowded
    assert EagerCoroutine(way.turn()).done  # without a turn of the loop


async def test_ends_continue_when_few_groups_claim() -> None:
    way = ClaimPriority()
    crowd(way)
    assert way.crowded
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(way.turn()) for _ in range(3)]
        await asyncio.sleep(0)
        assert not any(one.done() for one in waiting)
        way.end()
    assert not way.crowded


async def test_no_end_waits_longer_than_the_maximum_delay() -> None:
    way, loop = ClaimPriority(), asyncio.get_running_loop()
    crowd(way, 2 * MANY)
    began = loop.time()
    async with asyncio.timeout(60):
        await way.turn()
        assert loop.time() - began >= MAX_DELAY
        await way.turn()  # and the next one has a time of its own
    assert loop.time() - began >= 2 * MAX_DELAY


async def test_a_cancelled_end_leaves_the_others_waiting() -> None:
    way = ClaimPriority()
    crowd(way)
    async with asyncio.TaskGroup() as group:
        gone, stays = group.create_task(way.turn()), group.create_task(way.turn())
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        assert gone.cancelled()
        assert not stays.done()
        way.end()
    assert stays.done()
