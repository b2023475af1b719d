"""Tasks end with their owner."""

import asyncio

import pytest

from ajet_swarm.common import tasks as module
from ajet_swarm.common.tasks import Tasks, keep_running


async def test_tasks_end_with_their_owner(caplog: pytest.LogCaptureFixture) -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    async def fail() -> None:
        raise ValueError("broken")

    async with Tasks("t") as tasks:
        tasks.spawn(work(), "work")
        tasks.spawn(fail(), "fail")
        await asyncio.sleep(0.01)
        assert len(tasks) == 1
    assert ended.is_set()
    assert "broken" in caplog.text


async def test_a_drain_waits_for_tasks_that_tasks_start() -> None:
    done: list[str] = []

    async def second() -> None:
        done.append("second")

    async def first() -> None:
        tasks.spawn(second(), "second")
        done.append("first")

    async with Tasks("t") as tasks:
        tasks.spawn(first(), "first")
        assert await tasks.drain(20)
        assert done == ["first", "second"]


async def test_a_loop_that_fails_is_started_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RESTART_AFTER", 0.0)
    failures: list[str] = []
    faults = ["first", "first", "second"]

    async def loop() -> None:
        await asyncio.sleep(0)
        if faults:
            raise ValueError(faults.pop(0))

    await keep_running(loop, "the loop", lambda error: failures.append(str(error)))
    assert failures == ["first", "first", "second"]
    assert caplog.text.count("the loop failed") == 2, "the same error is logged once"
