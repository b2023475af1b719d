"""The loop: virtual time, an order by the seed, kills."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Coroutine
from functools import partial
from typing import Any

import pytest

from tests.simulation.loop import (
    Incarnation,
    SimulatedLoop,
    SimulationError,
    context_of,
    simulated_loop,
)


def run(work: Coroutine[Any, Any, Any], seed: int = 0, **bounds: Any) -> Any:
    """The result of `work`, without an error in the background."""
    with simulated_loop(seed, **bounds) as loop:
        result = loop.run_until_complete(work)
        assert not loop.errors
        return result


def test_an_hour_passes_at_once() -> None:
    async def main() -> float:
        await asyncio.sleep(3_600)
        return asyncio.get_running_loop().time()

    assert run(main()) == 3_600


def test_timers_run_in_the_order_of_their_times() -> None:
    async def main() -> list[str]:
        order: list[str] = []
        loop = asyncio.get_running_loop()
        loop.call_later(2, order.append, "second")
        loop.call_later(1, order.append, "first")
        loop.call_later(2, order.append, "third")
        loop.call_later(1.5, order.append, "cancelled").cancel()
        await asyncio.sleep(3)
        return order

    assert run(main()) == ["first", "second", "third"]


def test_timeouts_groups_events_and_queues_work() -> None:
    async def slow() -> None:
        await asyncio.sleep(10)

    async def group_that_fails() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(slow())
            group.create_task(asyncio.wait_for(slow(), 1))

    async def main() -> float:
        loop = asyncio.get_running_loop()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await slow()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(slow(), 1)
        with pytest.raises(ExceptionGroup):
            await group_that_fails()
        results = await asyncio.gather(asyncio.sleep(1, "a"), asyncio.sleep(2, "b"))
        assert [*results] == ["a", "b"]
        woken, queue = asyncio.Event(), asyncio.Queue[str]()
        loop.call_later(1, woken.set)
        await woken.wait()
        loop.call_later(1, queue.put_nowait, "item")
        assert await queue.get() == "item"
        return loop.time()

    assert run(main()) == 7


def test_a_thread_runs_in_the_loop_and_answers_later() -> None:
    def work(fails: bool) -> str:
        if fails:
            raise ValueError("no")
        return "done"

    async def main() -> list[str]:
        order: list[str] = []
        thread = asyncio.create_task(asyncio.to_thread(work, False))  # noqa: TID251
        thread.add_done_callback(lambda _: order.append("answered"))
        await asyncio.sleep(0)
        order.append("meanwhile")
        assert await thread == "done"
        with pytest.raises(ValueError, match="no"):
            await asyncio.to_thread(work, True)
        return order

    assert run(main()) == ["meanwhile", "answered"]


async def jostle() -> list[str]:
    """Tasks that meet in locks, sleeps and turns; returns their order."""
    order: list[str] = []
    lock = asyncio.Lock()

    async def work(name: str) -> None:
        for delay in (0, 0.5, 0, 1):
            await asyncio.sleep(delay)
            async with lock:
                order.append(name)

    async with asyncio.TaskGroup() as group:
        for name in "abcdef":
            group.create_task(work(name))
    return order


def log_of(seed: int) -> tuple[list[str], list[tuple[float, str]]]:
    with simulated_loop(seed) as loop:
        return loop.run_until_complete(jostle()), loop.log


def test_the_same_seed_gives_the_same_log_and_another_seed_another() -> None:
    logs = [log_of(seed) for seed in range(20)]
    assert logs == [log_of(seed) for seed in range(20)]
    assert len({tuple(order) for order, _ in logs}) > 15


@pytest.mark.parametrize("seed", range(5))
def test_callbacks_keep_their_order(seed: int) -> None:
    async def main() -> list[int]:
        order: list[int] = []
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def add(number: int, _: object) -> None:
            order.append(number)

        for number in range(5):
            future.add_done_callback(partial(add, number))
        future.set_result(None)
        for number in range(5, 10):
            loop.call_soon(order.append, number)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return order

    assert run(main(), seed) == list(range(10))


def test_a_run_ends_when_nothing_is_left_or_a_bound_is_reached() -> None:
    async def spins(seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)

    async def waits() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(SimulationError, match="these tasks wait: main"):
        run(waits())
    with pytest.raises(SimulationError, match="more than 100 steps"):
        run(spins(0), max_steps=100)
    with pytest.raises(SimulationError, match="more than 60 virtual seconds"):
        run(spins(1), max_seconds=60)


def test_sockets_and_processes_are_errors() -> None:
    async def main() -> None:
        with pytest.raises(NotImplementedError):
            await asyncio.open_connection("127.0.0.1", 1)
        with pytest.raises(NotImplementedError):
            await asyncio.create_subprocess_exec("true")

    run(main())


class Victim:
    """A process with every kind of work in it; `effects` are what a `finally` did."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.incarnation = Incarnation("victim")
        self.effects: list[str] = []
        self.ticks = 0

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self.loop.create_task(work, context=context_of(self.incarnation))

    def effect(self) -> None:
        if not self.loop.is_closed():
            self.effects.append("finally")

    async def sleeper(self) -> None:
        try:
            while True:
                await asyncio.sleep(1)
                self.ticks += 1
        finally:
            self.effect()
            logging.error("cleaning up")
            asyncio.get_running_loop().call_soon(self.effect)
            await asyncio.sleep(1)
            self.effect()

    async def waiter(self, future: "asyncio.Future[None]") -> None:
        try:
            async with asyncio.timeout(100), asyncio.TaskGroup() as group:
                group.create_task(self.sleeper())
                await future
                self.ticks += 1
        finally:
            self.effect()

    async def reader(self) -> None:
        async for _ in self.lines():
            await asyncio.sleep(1)

    async def lines(self) -> AsyncIterator[int]:
        try:
            while True:
                yield 1
                await asyncio.sleep(1)
        finally:
            self.effect()
            await asyncio.sleep(1)
            self.effect()


@pytest.mark.parametrize("seed", range(5))
def test_a_killed_task_never_runs_its_finally(
    seed: int, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    async def main(victim: Victim) -> None:
        future = asyncio.get_running_loop().create_future()
        for work in (victim.sleeper(), victim.waiter(future), victim.reader()):
            victim.start(work)
        victim.loop.call_later(50, victim.effect, context=context_of(victim.incarnation))
        await asyncio.sleep(3.5)
        assert victim.ticks == 6
        victim.start(victim.sleeper())  # a task whose first step never comes
        victim.loop.kill(victim.incarnation)
        future.set_result(None)
        gc.collect()
        await asyncio.sleep(200)
        assert victim.ticks == 6

    with simulated_loop(seed) as loop:
        victim = Victim(loop)
        loop.run_until_complete(main(victim))
        assert not loop.errors
    del loop
    gc.collect()
    assert victim.effects == []
    assert not caplog.records
    assert capsys.readouterr().err == ""


def test_a_killed_task_that_nothing_else_holds_never_runs_its_finally() -> None:
    async def main(victim: Victim) -> None:
        async def waits() -> None:
            try:
                await victim.loop.create_future()  # task and future hold only each other
            finally:
                victim.effect()

        task = victim.loop.create_task(waits(), context=context_of(victim.incarnation))
        await asyncio.sleep(1)
        victim.loop.kill(victim.incarnation)
        del task
        gc.collect()

    with simulated_loop(0) as loop:
        victim = Victim(loop)
        loop.run_until_complete(main(victim))
        assert victim.effects == []
        assert not loop.errors


def test_what_a_killed_process_started_outside_goes_on() -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        process, done = Incarnation("client"), list[str]()

        async def serve() -> None:
            await asyncio.sleep(5)
            done.append("served")

        async def call() -> None:
            await loop.create_task(serve(), context=context_of(None))
            done.append("received")

        client = loop.create_task(call(), context=context_of(process))
        await asyncio.sleep(1)
        loop.kill(process)
        await asyncio.sleep(10)
        assert not client.done()
        return done

    assert run(main()) == ["served"]


def test_a_failed_task_of_which_nobody_asks_is_an_error() -> None:
    async def fails() -> None:
        raise ValueError("lost")

    async def main() -> None:
        asyncio.get_running_loop().create_task(fails())
        await asyncio.sleep(1)
        gc.collect()

    with simulated_loop(0) as loop:
        loop.run_until_complete(main())
        assert [str(error["exception"]) for error in loop.errors] == ["lost"]
