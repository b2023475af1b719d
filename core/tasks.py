"""Background tasks that always have an owner, a name and an end."""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

log = logging.getLogger(__name__)


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
