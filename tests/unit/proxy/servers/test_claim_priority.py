"""Ends give way to claims while many groups claim, and never for long."""

import asyncio

import pytest

from proxy.servers.claim_priority import MANY, MAX_DELAY, ClaimPriority


def crowd(priority: ClaimPriority, groups: int = MANY) -> None:
    for _ in range(groups):
        priority.begin()


async def test_few_claims_delay_no_end() -> None:
    priority = ClaimPriority()
    crowd(priority, MANY - 1)
    assert not priority.crowded
    with pytest.raises(StopIteration):  # it ends without a suspension
        priority.turn().send(None)


async def test_ends_continue_when_few_groups_claim() -> None:
    priority = ClaimPriority()
    crowd(priority)
    assert priority.crowded
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(priority.turn()) for _ in range(3)]
        await asyncio.sleep(0)
        assert not any(one.done() for one in waiting)
        priority.end()
    assert not priority.crowded


async def test_no_end_waits_longer_than_the_maximum_delay() -> None:
    priority, loop = ClaimPriority(), asyncio.get_running_loop()
    crowd(priority, 2 * MANY)
    began = loop.time()
    async with asyncio.timeout(60):
        await priority.turn()
        assert loop.time() - began >= MAX_DELAY
        await priority.turn()  # and the next one has a time of its own
    assert loop.time() - began >= 2 * MAX_DELAY


async def test_a_cancelled_end_leaves_the_others_waiting() -> None:
    priority = ClaimPriority()
    crowd(priority)
    async with asyncio.TaskGroup() as group:
        cancelled, stays = group.create_task(priority.turn()), group.create_task(priority.turn())
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.sleep(0)
        assert cancelled.cancelled()
        assert not stays.done()
        priority.end()
    assert stays.done()
