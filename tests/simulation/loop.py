"""An event loop with virtual time and a seeded order, whose simulated processes can be killed.

with simulated_loop(seed) as loop:
    loop.run_until_complete(scenario())

Time stands still while anything is ready, then jumps to the next timer. The steps of different
tasks that are ready in the same turn run in an order that the seed chooses; callbacks keep theirs.

A kill is not a cancellation: a cancelled task still runs its `finally`. What runs in the context of
a killed `Incarnation` (steps of tasks, timers, callbacks) is never called again and kept until the
loop is closed. What runs in no incarnation, such as the model of the server, always runs.
"""

import asyncio
import contextlib
import heapq
import itertools
import logging
import random
import sys
import warnings
from asyncio import events
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import Executor
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar, TypeVarTuple
from weakref import WeakKeyDictionary

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MAX_CLOSES = 100
"""Number of awaits in its `finally` blocks that a dropped coroutine may attempt."""


class Incarnation:
    """One start of a simulated process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.killed = False
        """Set by `SimulatedLoop.kill`: seams of this incarnation do nothing from then on."""


_current: ContextVar[Incarnation | None] = ContextVar("incarnation", default=None)


def context_of(incarnation: Incarnation | None) -> Context:
    """Return a copy of the present context that belongs to `incarnation`, or to none.

    Pass it as `context` of a task, timer or callback. A server model starts its tasks with
    `context_of(None)`, because the call that makes it do so runs in the context of the client.
    """
    context = copy_context()
    context.run(_current.set, incarnation)
    return context


class SimulationError(Exception):
    """The run cannot go on: nothing is left to run, or it exceeds a bound."""


class _Handle:
    """A callback with the incarnation it belongs to, and the task whose step it is, if any."""

    __slots__ = ("_args", "_callback", "_cancelled", "_context", "_when", "incarnation", "task")

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
    ) -> None:
        self._when, self._callback, self._args = when, callback, args
        self._context = context = context or copy_context()
        self._cancelled = False
        self.incarnation = context.get(_current)
        owner = getattr(callback, "__self__", None)
        self.task: asyncio.Task[Any] | None = owner if isinstance(owner, asyncio.Task) else None

    @property
    def fenced(self) -> bool:
        return self.incarnation is not None and self.incarnation.killed

    def when(self) -> float:
        """See `asyncio.TimerHandle.when`."""
        return self._when

    def cancel(self) -> None:
        """See `asyncio.Handle.cancel`."""
        self._cancelled, self._callback, self._args = True, _nothing, ()

    def cancelled(self) -> bool:
        """See `asyncio.Handle.cancelled`."""
        return self._cancelled

    def call(self) -> None:
        """Call the callback in its context."""
        self._context.run(self._callback, *self._args)


def _nothing() -> None:
    """Stands for the callback of a cancelled handle."""


class SimulatedLoop(asyncio.AbstractEventLoop):
    """Event loop of one run. Sockets, subprocesses and signals raise `NotImplementedError`.

    Args:
        seed: Chooses the order of tasks.
        max_steps: Number of callbacks after which the run fails.
        max_seconds: Virtual time at which the run fails.
    """

    def __init__(self, seed: int, max_steps: float = 1e6, max_seconds: float = 1e5) -> None:
        self.random = random.Random(seed)
        self.log: list[tuple[float, str]] = []
        """Virtual time and name of the task for each step of a task."""
        self.errors: list[dict[str, Any]] = []
        """Contexts of `call_exception_handler`, such as exceptions that nobody retrieved."""
        self.max_steps, self.max_seconds = max_steps, max_seconds
        self._now, self._steps = 0.0, 0
        self._numbers = itertools.count(1)
        self._task_numbers: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()
        self._ready: list[_Handle] = []
        self._timers: list[tuple[float, int, _Handle]] = []
        self._kept: list[object] = []
        """What belongs to killed incarnations."""
        self._owner: dict[int, Incarnation | None] = {}
        """Incarnation of each asynchronous generator, by its `id`."""
        self._running = self._closed = False

    # --- running --------------------------------------------------------------------------------

    def run_until_complete(self, future: Any) -> Any:
        """Run the coroutine `future` and return its result.

        Raises:
            SimulationError: Nothing is left to run, or the run exceeds a bound.
        """
        task = self.create_task(future, name="main", context=context_of(None))
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=self._generator_began, finalizer=self._generator_lost)
        events._set_running_loop(self)
        self._running = True
        try:
            while not task.done():
                self._turn()
        finally:
            self._running = False
            events._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)
        return task.result()

    def _turn(self) -> None:
        """Run what is ready; what becomes ready meanwhile waits for the next turn."""
        if not self._ready:
            self._advance()
        batch, self._ready = self._ready, []
        for is_step, handles in itertools.groupby(batch, lambda handle: handle.task is not None):
            group = list(handles)
            if is_step:
                group.sort(key=self._number_of)  # sets of tasks have no fixed order
                self.random.shuffle(group)
            for handle in group:
                self._run(handle)

    def _advance(self) -> None:
        while self._timers and (not self._ready or self._timers[0][0] <= self._now):
            when, _, handle = heapq.heappop(self._timers)
            if handle.fenced:
                self._kept.append(handle)
            elif not handle.cancelled():
                self._now = max(self._now, when)
                self._ready.append(handle)
        if not self._ready:
            names = sorted(task.get_name() for task in asyncio.all_tasks(self))
            raise SimulationError(f"nothing is left to run; these tasks wait: {', '.join(names)}")
        if self._now > self.max_seconds:
            raise SimulationError(f"the run takes more than {self.max_seconds:g} virtual seconds")

    def _run(self, handle: _Handle) -> None:
        if handle.fenced:
            self._kept.append(handle)
            return
        if handle.cancelled():
            return
        self._steps += 1
        if self._steps > self.max_steps:
            raise SimulationError(f"the run takes more than {self.max_steps:g} steps")
        if handle.task is not None:
            self.log.append((self._now, handle.task.get_name()))
        try:
            handle.call()
        except Exception as error:  # noqa: BLE001  as a handle of asyncio does
            self.call_exception_handler({"message": "a callback failed", "exception": error})

    # --- what tasks call ------------------------------------------------------------------------

    def time(self) -> float:
        """Return the virtual seconds since the loop was made."""
        return self._now

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> Any:
        """See `asyncio.AbstractEventLoop.call_soon`."""
        handle = _Handle(self._now, callback, args, context)
        if not self._closed:
            self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> Any:
        """See `asyncio.AbstractEventLoop.call_later`."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> Any:
        """See `asyncio.AbstractEventLoop.call_at`."""
        handle = _Handle(when, callback, args, context)
        if not self._closed:
            heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        """See `asyncio.AbstractEventLoop.create_future`."""
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        """See `asyncio.AbstractEventLoop.create_task`."""
        if self._closed:
            coro.close()  # it never begins
        name = name or f"{coro.__qualname__}-{next(self._numbers)}"
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        self._task_numbers[task] = next(self._numbers)
        return task

    def _number_of(self, handle: _Handle) -> int:
        return self._task_numbers[handle.task] if handle.task is not None else 0

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Call `func` in the loop, in a later turn, and return its future result."""
        future: asyncio.Future[T] = self.create_future()

        def call() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:  # noqa: BLE001  raised where the result is awaited
                future.set_exception(error)

        self.call_soon(call)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Add the error to `errors`."""
        if not self._closed:
            self.errors.append(context)

    def get_debug(self) -> bool:
        """Return False: asyncio's debug mode reads real clocks."""
        return False

    def is_running(self) -> bool:
        """See `asyncio.AbstractEventLoop.is_running`."""
        return self._running

    def is_closed(self) -> bool:
        """See `asyncio.AbstractEventLoop.is_closed`."""
        return self._closed

    # --- killing --------------------------------------------------------------------------------

    def kill(self, incarnation: Incarnation) -> None:
        """Stop all that runs in `incarnation`, as `kill -9` does."""
        incarnation.killed = True
        self._kept.extend(asyncio.all_tasks(self))  # else the collector might end them

    def _generator_began(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._owner[id(generator)] = _current.get()

    def _generator_lost(self, generator: AsyncGenerator[Any, Any]) -> None:
        incarnation = self._owner.pop(id(generator), None)
        if self._closed or (incarnation is not None and incarnation.killed):
            self._kept.append(generator)  # its finalizer has run: it is dropped without an effect
        else:
            self.create_task(generator.aclose(), context=context_of(incarnation))

    def close(self) -> None:
        """Drop all tasks that have not ended.

        Python runs the `finally` blocks of a coroutine that is dropped. They run here, while no
        callback can be added to the loop and no log record is written, so they have no effect.
        """
        self._closed = True
        for handle in (*self._ready, *(handle for _, _, handle in self._timers)):
            handle.cancel()
        with _without_logging():
            for task in asyncio.all_tasks(self):
                _drop(task.get_coro())
            self._ready.clear()
            self._timers.clear()
            self._kept.clear()


@contextlib.contextmanager
def simulated_loop(seed: int, **bounds: float) -> Iterator[SimulatedLoop]:
    """Yield a loop, and close it afterwards; see `SimulatedLoop`."""
    loop = SimulatedLoop(seed, **bounds)  # type: ignore[abstract]  # what it lacks must not be used
    with contextlib.closing(loop):
        yield loop


def _drop(work: Any) -> None:
    for _ in range(MAX_CLOSES):
        try:
            work.close()
            return
        except BaseException:  # noqa: BLE001  whatever a dropped coroutine raises concerns nobody
            continue
    raise SimulationError(f"{work!r} does not end")


@contextlib.contextmanager
def _without_logging() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # coroutines that never begin
            yield
    finally:
        logging.disable(before)
