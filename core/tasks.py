"""Background tasks that always have an owner, a name and an end."""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")


class Tasks:
    """A group of background tasks that live as long as their owner.

    Unlike `asyncio.TaskGroup` a failing task does not take its siblings down: the failure is logged
    and handed to `on_error`. Leaving the context cancels what still runs and waits for it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closing = False

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Start `work`; the owner keeps the reference until it ends."""
        if self._closing:
            work.close()
            raise RuntimeError(f"{self.name} is closing: {name} cannot start")
        task = asyncio.get_running_loop().create_task(work, name=f"{self.name}:{name}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task %s failed", task.get_name(), exc_info=error)

    async def drain(self, seconds: float) -> bool:
        """Wait for all tasks to end by themselves; False when some still run after `seconds`."""
        pending = [task for task in self._tasks if task is not asyncio.current_task()]
        if not pending:
            return True
        _, left = await asyncio.wait(pending, timeout=seconds)
        return not left

    async def close(self) -> None:
        """Cancel all tasks and wait until their clean-up is over."""
        self._closing = True
        current = asyncio.current_task()
        while pending := [task for task in self._tasks if task is not current]:
            for task in pending:
                task.cancel()
            await asyncio.wait(pending, timeout=5)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


async def finish(work: Coroutine[Any, Any, Any], owner: Tasks, name: str) -> Any:
    """Run `work` to its end even when the caller is cancelled meanwhile.

    For clean-up that must happen (an episode given back): the caller's cancellation is passed on,
    the work goes on under `owner`.
    """
    return await asyncio.shield(owner.spawn(work, name))


async def cancel(task: asyncio.Task[Any]) -> None:
    """Cancel one task and wait until it is over."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def together(*works: Coroutine[Any, Any, T]) -> list[T]:
    """The results of all `works`, side by side, in order.

    As `asyncio.gather` at half its cost: one that fails does not take the others down, and its
    error is raised once all are over. Cancelled, it cancels all of them and waits for them.
    """
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(work) for work in works]
    try:
        for task in tasks:
            with contextlib.suppress(Exception):  # raised below, once all are over
                await task
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        raise
    return [task.result() for task in tasks]


class Begun(Generic[T]):
    """A coroutine run up to its first wait, here and now; await it for the rest.

    What never waits is over without a timer or a task made for it.

    Attributes:
        done: It is over.
    """

    __slots__ = ("_result", "_work", "_yielded", "done")

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        """Raises what `work` raises before its first wait."""
        self._work = work
        self._result: T | None = None
        self._yielded: Any = None
        self.done = False
        try:
            self._yielded = work.send(None)
        except StopIteration as stop:
            self._result, self.done = stop.value, True

    def __await__(self) -> Generator[Any, Any, T]:
        if self.done:
            return self._result  # type: ignore[return-value]  # the coroutine's own result
        work, yielded = self._work, self._yielded
        while True:
            try:
                try:
                    sent = yield yielded
                except BaseException as error:  # noqa: BLE001  it is meant for the coroutine
                    yielded = work.throw(error)
                else:
                    yielded = work.send(sent)
            except StopIteration as stop:
                result: T = stop.value
                return result


async def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled after `seconds`.

    Raises:
        TimeoutError: it took longer.
    """
    begun = Begun(work)
    if begun.done:
        return await begun
    async with asyncio.timeout(seconds):
        return await begun
