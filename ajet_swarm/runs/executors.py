"""Thread pools of the shapes AgentJet scripts use, and one that does not idle at a drain."""

import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from types import TracebackType
from typing import Any, Self

from ajet_swarm.client.waits import BEAT, acquire, join
from ajet_swarm.protocol.errors import SwarmError, TrainingFinished
from ajet_swarm.runs.retry import FOREVER, ONCE, Retry, Stopped, attempt

__all__ = [
    "BoundedThreadPoolExecutor",
    "PeriodicDrainThreadPoolExecutor",
    "SlidingThreadPoolExecutor",
    "TaskCountLimitedThreadPoolExecutor",
]


_POOLS: "weakref.WeakSet[_Pool]" = weakref.WeakSet()


class _Pool:
    """Threads that try a job again, later each time.

    Args:
        threads: How many.
        retry: How often a job is tried.
    """

    def __init__(self, threads: int, retry: Retry) -> None:
        if threads < 1:
            raise SwarmError(f"{threads} threads", type(self).__name__, "At least one")
        self._retry = retry
        self._stop = threading.Event()
        self._finished: TrainingFinished | None = None
        """Why a job ended that found training complete, until a submit has raised it."""
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="episode")
        _POOLS.add(self)

    def submit(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> "Future[Any]":
        """Queue a job; its future has what came of the last try.

        Raises:
            TrainingFinished: a job before found training complete.
        """
        finished, self._finished = self._finished, None
        if finished is not None:
            raise finished
        work = partial(fn, *args, **kwargs)
        return self._executor.submit(self._try, work, getattr(fn, "__name__", "a job"))

    def _try(self, work: Callable[[], Any], name: str) -> Any:
        if self._stop.is_set():
            raise Stopped(name)
        tried = attempt(work, self._retry, self._stop, name)
        if isinstance(tried.error, TrainingFinished):
            self._finished = tried.error
        if tried.error is not None:
            raise tried.error
        return tried.value

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads.

        Args:
            wait: Until the jobs are done; else nothing is tried again from now on.
            cancel_futures: Drop jobs that have not begun, and try none again.
        """
        if cancel_futures or not wait:
            self._stop.set()
        self._executor.shutdown(wait=False, cancel_futures=cancel_futures)
        if wait:
            join(tuple(self._executor._threads))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown(wait=True, cancel_futures=kind is not None)


class PeriodicDrainThreadPoolExecutor(_Pool):
    """Waits for everything after each `workers` jobs, as AgentJet's does: a straggler idles all.

    Args:
        workers: Jobs between two drains: a batch.
        max_parallel: Threads; `workers` when left out.
        auto_retry: Try a failed job again for as long as it takes.
        block_first_run: Wait for the first job before the others are taken.
        retry: How, instead of `auto_retry`.
    """

    def __init__(
        self,
        workers: int = 100,
        max_parallel: int | None = None,
        auto_retry: bool = True,
        block_first_run: bool = False,
        *,
        retry: Retry | None = None,
    ) -> None:
        super().__init__(max_parallel or workers, retry or (FOREVER if auto_retry else ONCE))
        self.workers = workers
        self._block = block_first_run
        self._batch: list[Future[Any]] = []

    def submit(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> "Future[Any]":
        """Queue a job; its future has what came of the last try."""
        future = super().submit(fn, *args, **kwargs)
        if self._block:
            self._block = False
            while wait([future], BEAT).not_done:
                pass
        return future

    def submit_with_periodic_drain(
        self, fn: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> "tuple[Future[Any], list[Any]]":
        """Queue a job; before each `workers`-th one, wait for all that were queued before.

        Returns:
            Its future, and what the drained jobs returned, in their order, without those that
            failed; empty when nothing was drained.
        """
        drained = self.drain() if len(self._batch) >= self.workers else []
        future = self.submit(fn, *args, **kwargs)
        self._batch.append(future)
        return future, drained

    def drain(self) -> list[Any]:
        """Wait for what was queued since the last drain; what it returned, without failures."""
        batch, self._batch = self._batch, []
        return _values(batch)


class SlidingThreadPoolExecutor(_Pool):
    """The same batches without the wait: threads go on with the next one behind a straggler.

    At most `workers` jobs wait for a thread; a further one waits for that.

    Args: as of `PeriodicDrainThreadPoolExecutor`.
    """

    def __init__(
        self,
        workers: int = 100,
        max_parallel: int | None = None,
        auto_retry: bool = True,
        *,
        retry: Retry | None = None,
    ) -> None:
        threads = max_parallel or workers
        super().__init__(threads, retry or (FOREVER if auto_retry else ONCE))
        self.workers = workers
        self._room = threading.BoundedSemaphore(threads + workers)
        self._batches: deque[list[Future[Any]]] = deque()

    def submit_with_periodic_drain(
        self, fn: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> "tuple[Future[Any], list[Any]]":
        """Queue a job.

        Returns:
            Its future, and what the jobs of the oldest batch returned once all of that are done:
            each batch once, in order, without those that failed.
        """
        acquire(self._room)
        try:
            future = self.submit(fn, *args, **kwargs)
        except BaseException:
            self._room.release()
            raise
        future.add_done_callback(lambda _: self._room.release())
        if not self._batches or len(self._batches[-1]) >= self.workers:
            self._batches.append([])
        self._batches[-1].append(future)
        oldest = self._batches[0]
        if len(oldest) >= self.workers and all(one.done() for one in oldest):
            return future, _values(self._batches.popleft())
        return future, []

    def drain(self) -> list[Any]:
        """Wait for all; what the batches not yet told returned, without failures."""
        batches, self._batches = self._batches, deque()
        return [value for batch in batches for value in _values(batch)]


class BoundedThreadPoolExecutor(_Pool):
    """`submit` waits while `max_queue_size` jobs are not done.

    Args:
        max_workers: Threads.
        max_queue_size: Jobs that wait or run, at most.
    """

    def __init__(self, max_workers: int, max_queue_size: int = 100) -> None:
        super().__init__(max_workers, ONCE)
        self._room = threading.BoundedSemaphore(max(1, max_queue_size))

    def submit(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> "Future[Any]":
        """Queue a job; its future has what came of it."""
        acquire(self._room)
        try:
            future = super().submit(fn, *args, **kwargs)
        except BaseException:
            self._room.release()
            raise
        future.add_done_callback(lambda _: self._room.release())
        return future


class TaskCountLimitedThreadPoolExecutor(_Pool):
    """At most so many groups under way; one keeps its place until its last job is done.

    Args:
        max_parallel_groups: Groups at once.
        max_workers: Threads.
        auto_retry: Try a failed job again for as long as it takes.
        retry: How, instead of `auto_retry`.
    """

    def __init__(
        self,
        max_parallel_groups: int,
        max_workers: int,
        auto_retry: bool = True,
        *,
        retry: Retry | None = None,
    ) -> None:
        super().__init__(max_workers, retry or (FOREVER if auto_retry else ONCE))
        self._most = max(1, max_parallel_groups)
        self._places = threading.Condition()
        self._open: set[object] = set()
        """A token of each group that has a place."""

    def submit_group(
        self, task_id: str, fn: Callable[..., Any], args_list: Sequence[Mapping[str, Any]]
    ) -> "list[Future[Any]]":
        """Queue a group's jobs, one for each set of arguments; waits for a place.

        Args:
            task_id: The group.
            fn: The job.
            args_list: Its arguments, by name, for each time.

        Returns:
            Their futures, in order.
        """
        if not args_list:
            return []
        group = object()
        with self._places:
            while len(self._open) >= self._most:
                self._places.wait(BEAT)
            self._open.add(group)
        left = len(args_list)

        def over(_: "Future[Any] | None") -> None:
            nonlocal left
            with self._places:
                left -= 1
                if not left:
                    self._open.discard(group)
                    self._places.notify_all()

        futures: list[Future[Any]] = []
        try:
            for args in args_list:
                futures.append(self.submit(fn, **args))
                futures[-1].add_done_callback(over)
        except BaseException:
            for _ in range(len(args_list) - len(futures)):
                over(None)
            raise
        return futures

    def on_entering_weight_sync(self) -> None:
        """The batch is over: what is under way keeps no place, and the next groups may begin.

        For `SwarmClient.add_entering_weight_sync_callback`.
        """
        with self._places:
            self._open.clear()
            self._places.notify_all()


def _hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """A program that ends with an error, or Ctrl-C, does not wait for jobs tried for ever.

    With `TrainingFinished` it has done its work: a sentence, and exit code 0.
    """
    if not hasattr(sys, "ps1"):  # at a prompt an error ends nothing
        for pool in tuple(_POOLS):
            pool.shutdown(wait=False, cancel_futures=True)
        if isinstance(error, TrainingFinished):
            sys.stderr.write(f"{error}\n")
            raise SystemExit(0)
    _before(kind, error, trace)


_before = sys.excepthook
sys.excepthook = _hook


def _values(batch: "Sequence[Future[Any]]") -> list[Any]:
    """What those that did not fail returned, in order; waits for all."""
    while wait(batch, BEAT).not_done:
        pass
    return [one.result() for one in batch if not one.cancelled() and one.exception() is None]
