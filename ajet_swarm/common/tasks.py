"""Background tasks with an owner, parallel coroutines, a lock, a timeout that can be postponed."""

import asyncio
import concurrent.futures
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Self, TypeVar, cast

log = logging.getLogger(__name__)

T = TypeVar("T")

RESTART_AFTER = 1.0
"""Seconds between the failure of a loop and its next start."""


class Tasks:
    """A group of background tasks that end with their owner.

    Unlike in `asyncio.TaskGroup`, a failing task does not cancel the others: its error is logged.
    Leaving the context cancels all running tasks and waits for them.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.closing = False
        """No task can be started any more."""

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Start a task; the group holds a reference until it ends."""
        if self.closing:
            work.close()
            raise RuntimeError(f"{self.name} is closing: {name} cannot start")
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        task = self._loop.create_task(work, name=f"{self.name}:{name}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task %s failed", task.get_name(), exc_info=error)

    async def drain(self, seconds: float) -> bool:
        """Wait until all tasks have ended, with those that they start; return False when some still
        run after `seconds`."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while pending := [task for task in self._tasks if task is not asyncio.current_task()]:
            _, left = await asyncio.wait(pending, timeout=max(until - loop.time(), 0.0))
            if left:
                return False
        return True

    async def close(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        self.closing = True
        current = asyncio.current_task()
        while pending := [task for task in self._tasks if task is not current]:
            for task in pending:
                task.cancel()
            await asyncio.wait(pending, timeout=5)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def run_to_end(work: Coroutine[Any, Any, Any], owner: Tasks, name: str) -> Any:
    """Run `work` to its end even when the caller is cancelled.

    It is for clean-up that must happen, such as giving an episode back. The caller's cancellation
    is raised, and the work goes on as a task of `owner`.
    """
    return await asyncio.shield(owner.spawn(work, name))


async def keep_running(
    work: Callable[[], Coroutine[Any, Any, None]],
    name: str,
    failed: Callable[[Exception], None] | None = None,
) -> None:
    """Run a loop until cancelled; after an unexpected error log it, and start the loop again.

    Args:
        work: Returns the loop, which others rely on for as long as the process runs.
        name: Name of the loop in the log.
        failed: Called with each error.
    """
    logged = ""
    while True:
        try:
            return await work()
        except Exception as error:  # boundary of a worker
            text = f"{type(error).__name__}: {error}"
            if text != logged:  # the same error may return each time
                log.exception("%s failed, it is started again every %g s", name, RESTART_AFTER)
            logged = text
            if failed is not None:
                failed(error)
        await asyncio.sleep(RESTART_AFTER)


def in_thread(function: Callable[[], T]) -> "asyncio.Future[T]":
    """Call `function` on a thread of its own and return its future result.

    Unlike an executor, this also works while the interpreter ends: it waits for threads that a
    script has started, and accepts no more work for executors.
    """
    result: concurrent.futures.Future[T] = concurrent.futures.Future()
    result.set_running_or_notify_cancel()

    def call() -> None:
        try:
            result.set_result(function())
        except BaseException as error:  # noqa: BLE001  raised where the result is awaited
            result.set_exception(error)

    try:
        threading.Thread(target=call, daemon=True).start()
    except RuntimeError:  # some versions of Python start no thread while they end
        call()
    return asyncio.wrap_future(result)


async def cancel(task: asyncio.Task[Any]) -> None:
    """Cancel one task and wait until it has ended; raise its error if it fails meanwhile.

    A cancellation of the caller is raised.
    """
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


async def run_all(*works: Awaitable[T]) -> list[T]:
    """Run coroutines in parallel and return their results, or raise the first error in order.

    A failure does not cancel the others: it is raised when all have ended. A cancellation cancels
    all of them and waits for them.
    """
    results = await asyncio.gather(*works, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return cast("list[T]", results)


class ReadWriteLock:
    """A lock with shared and exclusive holders; an exclusive one goes before later shared ones."""

    def __init__(self) -> None:
        self._alone = asyncio.Lock()
        self._sharing = 0
        self._free = asyncio.Event()
        self._free.set()

    @contextlib.asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Hold the lock together with other shared holders."""
        async with self._alone:
            self._sharing += 1
            self._free.clear()
        try:
            yield
        finally:
            self._sharing -= 1
            if not self._sharing:
                self._free.set()

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Hold the lock exclusively."""
        async with self._alone:
            await self._free.wait()
            yield


Deadline = float | Callable[[], float]
"""A time on the loop's clock, or a function that returns it: a deadline may be postponed."""


@contextlib.asynccontextmanager
async def timeout_at(deadline: Deadline | None) -> AsyncIterator[None]:
    """Cancel the body at a deadline that may be postponed meanwhile.

    Args:
        deadline: Time on the loop's clock; None for never. A function is called again at the time
            it returned, and may return a later one.

    Raises:
        TimeoutError: on leaving the context, if the time has come.
    """
    async with asyncio.timeout(None) as scope:
        alarm = _Alarm(deadline, scope)
        alarm.check()
        try:
            yield
        finally:
            alarm.cancel()


class _Alarm:
    """Timer of a deadline that may be postponed; it leaves no reference cycle."""

    def __init__(self, deadline: Deadline | None, scope: asyncio.Timeout) -> None:
        self._deadline = deadline
        self._scope = scope
        self._timer: asyncio.TimerHandle | None = None

    def check(self) -> None:
        """End the scope if the time has come; else wait for it."""
        loop = asyncio.get_running_loop()
        when = self._deadline() if callable(self._deadline) else self._deadline
        if when is not None and when > loop.time():
            self._timer = loop.call_at(when, self.check)
        else:
            self._scope.reschedule(when)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
