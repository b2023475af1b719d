"""Tasks with an end: who is cancelled, who is not, and whose error is raised."""

import asyncio
import gc

import pytest

from ajet_swarm.common.tasks import cancel, run_all


async def forever() -> None:
    await asyncio.Event().wait()


async def test_cancel_waits_until_the_task_has_ended() -> None:
    over = False

    async def slow_to_end() -> None:
        nonlocal over
        try:
            await forever()
        finally:
            await asyncio.sleep(0)
            over = True

    task = asyncio.get_running_loop().create_task(slow_to_end())
    await asyncio.sleep(0)
    await cancel(task)
    assert over
    assert task.cancelled()


async def test_cancel_raises_what_the_task_fails_with() -> None:
    async def fails() -> None:
        try:
            await forever()
        finally:
            raise ValueError("while it was cleaned up")

    task = asyncio.get_running_loop().create_task(fails())
    await asyncio.sleep(0)
    with pytest.raises(ValueError, match="cleaned up"):
        await cancel(task)


async def test_a_caller_cancelled_during_cancel_is_cancelled() -> None:
    loop, release = asyncio.get_running_loop(), asyncio.Event()

    async def holds_on() -> None:
        try:
            await forever()
        finally:
            await release.wait()

    task = loop.create_task(holds_on())
    await asyncio.sleep(0)
    caller = loop.create_task(cancel(task))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    release.set()
    await asyncio.wait([task])


async def test_a_member_that_is_cancelled_does_not_take_the_others_down() -> None:
    go = asyncio.Event()
    lines: list[str] = []

    async def waits() -> None:
        await go.wait()
        lines.append("it came to its end")

    member = asyncio.get_running_loop().create_task(forever())
    results = asyncio.get_running_loop().create_task(run_all(member, waits()))
    await asyncio.sleep(0)
    member.cancel()
    await asyncio.sleep(0)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await results
    assert lines == ["it came to its end"]


async def test_a_batch_of_tasks_ends_when_its_owner_is_cancelled() -> None:
    members = [asyncio.get_running_loop().create_task(forever()) for _ in range(2)]
    results = asyncio.get_running_loop().create_task(run_all(*members))
    await asyncio.sleep(0)
    results.cancel()
    with pytest.raises(asyncio.CancelledError):
        await results
    assert all(member.cancelled() for member in members)


async def test_the_first_error_in_order_is_raised_after_all_have_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    result = []

    async def fails(text: str) -> None:
        raise ValueError(text)

    async def late() -> None:
        await asyncio.sleep(0)
        result.append("late")

    with pytest.raises(ValueError, match="one"):
        await run_all(late(), fails("one"), fails("two"))
    assert result == ["late"]
    gc.collect()
    assert "never retrieved" not in caplog.text
