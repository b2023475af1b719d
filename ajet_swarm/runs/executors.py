"""Retries with growing pauses, and thread pools under AgentJet's names, with one that does not idle
between batches.
"""

import logging
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial, wraps
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar, cast

from ajet_swarm.client.synchronous import BEAT, acquire, join
from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.protocol.errors import SwarmError, TrainingFinished
from ajet_swarm.runtime import SYSTEM

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


_REPORTS = threading.RLock()
"""Lock around the log message of a failure and around a stop; see `stop_quietly`."""


class Stopped(Exception):
    """The run has ended, so that the job is not tried."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Number of tries and pauses between them.

    Attributes:
        tries: Largest number of tries; None for no limit, as in AgentJet's executors.
        first: Pause after the first failure, in seconds; it doubles after each further one.
        most: Longest pause in seconds.
        never: Errors that are not retried, in addition to `TrainingFinished`: by default those of a
            script that no further try can cure.
    """

    tries: int | None = 3
    first: float = 0.5
    most: float = 30.0
    never: tuple[type[Exception], ...] = (UsageError, ImportError)

    def pause(self, failures: int) -> float:
        """Return the seconds to wait after `failures` failures, with a random factor."""
        factor = SYSTEM.chance.uniform(0.5, 1.0)  # in threads: the module's state is the script's
        return factor * min(self.most, self.first * 2.0 ** min(failures - 1, 20))

    def ends(self, error: Exception, tried: int) -> bool:
        """Return whether `error` ends the tries, of which `tried` have been made."""
        if isinstance(error, (TrainingFinished, *self.never)):
            return True
        return self.tries is not None and tried >= self.tries


@dataclass(frozen=True, slots=True)
class Result(Generic[T, R]):
    """Result of all tries of one episode, or of another job.

    Attributes:
        task: The task of the episode.
        value: Return value of the function; None after a failure.
        error: The last failure, or the reason why the episode was not run; None on success.
        tries: Number of tries; 0 if the episode was not run, or the record contains it.
        seconds: Seconds from the first try to the end of the last.
    """

    task: T
    value: R | None
    error: Exception | None
    tries: int
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether the episode succeeded."""
        return self.error is None


def stop_quietly(stop: threading.Event) -> None:
    """Set `stop`; after this returns, `attempt` logs no more failures as warnings."""
    with _REPORTS:
        stop.set()


def attempt(
    task: T,
    work: Callable[[], R],
    retry: Retry,
    stop: threading.Event,
    name: str,
    pause_after: Callable[[int], float] | None = None,
) -> Result[T, R]:
    """Run `work` until it succeeds or has no tries left.

    An `Exception` is returned in the result; others, such as an interrupt, are raised.

    Args:
        task: Task of the result.
        work: The function.
        retry: Number of tries and pauses.
        stop: Event that ends the tries.
        name: Name of the work in log messages.
        pause_after: Returns the seconds to wait after so many failures, instead of `retry`.
    """
    tries, began = 0, time.monotonic()
    while True:
        tries += 1
        try:
            return Result(task, work(), None, tries, time.monotonic() - began)
        except Exception as error:  # code of a script may raise anything
            last = retry.ends(error, tries) or stop.is_set()
            pause = 0.0 if last else (pause_after or retry.pause)(tries)
            with _REPORTS:
                ending = stop.is_set() or isinstance(error, TrainingFinished)
                log.log(
                    # A failure while the run ends is most likely caused by its end.
                    logging.INFO if ending else logging.WARNING,
                    "%s failed (try %d)%s: %s",
                    name,
                    tries,
                    "" if last else f", again in {pause:.1f} s",
                    str(error) or type(error).__name__,
                    # Log a traceback only for errors of the script.
                    exc_info=None if isinstance(error, AjetError) else error,
                )
            if last or stop.wait(pause):
                return Result(task, None, error, tries, time.monotonic() - began)


def retry_with_backoff(
    max_retry: int = 3,
    backoff_fn: Callable[[int], float] | None = None,
    max_retry_attr: str | None = None,
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return AgentJet's decorator, which retries a function when it raises.

    Args:
        max_retry: Number of tries in total, at least one.
        backoff_fn: Returns the seconds to wait after failure 0, 1, ...; default 1, 2, 4, ...
        max_retry_attr: Attribute of the first argument (a method's `self`) that replaces
            `max_retry` if it is a positive whole number.

    Returns:
        The decorator. The error of the last try is raised.
    """

    def decorator(func: Callable[P, T]) -> Callable[P, T]:
        @wraps(func)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
            own = getattr(args[0], max_retry_attr, None) if max_retry_attr and args else None
            tries = own if isinstance(own, int) and own > 0 else max(1, max_retry)
            tried = attempt(
                None,
                lambda: func(*args, **kwargs),
                Retry(tries, never=()),
                threading.Event(),
                getattr(func, "__name__", "it"),
                lambda failures: backoff_fn(failures - 1) if backoff_fn else 2.0 ** (failures - 1),
            )
            if tried.error is not None:
                raise tried.error
            return cast("T", tried.value)

        return wrapper

    return decorator


# --- pools ----------------------------------------------------------------------------------------

_POOLS: "weakref.WeakSet[_Pool]" = weakref.WeakSet()


class _Pool:
    """Base of the pools: threads that retry failed jobs.

    Args:
        threads: Number of threads.
        retry: When to try a failed job again, instead of `auto_retry`.
        auto_retry: Retry a failed job without limit.
    """

    def __init__(self, threads: int, retry: Retry | None = None, auto_retry: bool = False) -> None:
        if threads < 1:
            raise SwarmError(f"{threads} threads", type(self).__name__, "At least one")
        self._retry = retry or Retry(tries=None if auto_retry else 1)
        self._stop = threading.Event()
        self._finished: TrainingFinished | None = None
        """Error of a job that failed because training is complete; the next submit raises it."""
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="episode")
        _POOLS.add(self)

    def submit(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> "Future[Any]":
        """Queue a job; its future has the result of the last try.

        Raises:
            TrainingFinished: an earlier job failed because training is complete.
        """
        finished, self._finished = self._finished, None
        if finished is not None:
            raise finished
        work = partial(fn, *args, **kwargs)
        return self._executor.submit(self._try, work, getattr(fn, "__name__", "a job"))

    def _submit_within(
        self, room: threading.Semaphore, fn: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> "Future[Any]":
        """Queue a job as soon as there is room for it; its end makes room again."""
        acquire(room)
        try:
            future = _Pool.submit(self, fn, *args, **kwargs)
        except BaseException:
            room.release()
            raise
        future.add_done_callback(lambda _: room.release())
        return future

    def _try(self, work: Callable[[], Any], name: str) -> Any:
        if self._stop.is_set():
            raise Stopped(name)
        tried = attempt(None, work, self._retry, self._stop, name)
        if isinstance(tried.error, TrainingFinished):
            self._finished = tried.error
        if tried.error is not None:
            raise tried.error
        return tried.value

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads.

        Args:
            wait: Wait until all jobs are done. If False, failed jobs are not retried any more.
            cancel_futures: Cancel jobs that have not started, and retry none.
        """
        if cancel_futures or not wait:
            stop_quietly(self._stop)
        self._executor.shutdown(wait=False, cancel_futures=cancel_futures)
        if wait:
            join(tuple(self._executor._threads))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.shutdown(wait=True, cancel_futures=kind is not None)


class PeriodicDrainThreadPoolExecutor(_Pool):
    """Pool that waits for all jobs after each `workers` jobs, as AgentJet's does.

    Args:
        workers: Number of jobs between two drains, that is of a batch.
        max_parallel: Number of threads; default `workers`.
        auto_retry: Retry a failed job without limit.
        block_first_run: Wait for the first job before accepting others.
        retry: When to try again, instead of `auto_retry`.
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
        super().__init__(max_parallel or workers, retry, auto_retry)
        self.workers = workers
        self._block = block_first_run
        self._batches: deque[list[Future[Any]]] = deque()

    def submit(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> "Future[Any]":
        """Queue a job; its future has the result of the last try."""
        future = super().submit(fn, *args, **kwargs)
        if self._block:
            self._block = False
            while wait([future], BEAT).not_done:
                pass
        return future

    def submit_with_periodic_drain(
        self, fn: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> "tuple[Future[Any], list[Any]]":
        """Queue a job; before that, wait for the last `workers` jobs if a batch is full.

        Returns:
            Its future, and the values of the drained jobs in their order, without failed ones;
            empty when nothing was drained.
        """
        is_full = bool(self._batches) and len(self._batches[-1]) >= self.workers
        drained = self.drain() if is_full else []
        future = self.submit(fn, *args, **kwargs)
        self._add(future)
        return future, drained

    def drain(self) -> list[Any]:
        """Wait for all jobs; return the values not yet returned, without failed jobs."""
        batches, self._batches = self._batches, deque()
        return [value for batch in batches for value in _values(batch)]

    def _add(self, future: "Future[Any]") -> None:
        """Add a job to the last batch, or to a new one."""
        if not self._batches or len(self._batches[-1]) >= self.workers:
            self._batches.append([])
        self._batches[-1].append(future)


class SlidingThreadPoolExecutor(PeriodicDrainThreadPoolExecutor):
    """Pool with the same batches, whose threads start the next batch while a slow job still runs.

    At most `workers` jobs wait for a thread; beyond that `submit_with_periodic_drain` blocks. The
    arguments are those of `PeriodicDrainThreadPoolExecutor`.
    """

    def __init__(
        self,
        workers: int = 100,
        max_parallel: int | None = None,
        auto_retry: bool = True,
        *,
        retry: Retry | None = None,
    ) -> None:
        super().__init__(workers, max_parallel, auto_retry, retry=retry)
        self._room = threading.BoundedSemaphore((max_parallel or workers) + workers)

    def submit_with_periodic_drain(
        self, fn: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> "tuple[Future[Any], list[Any]]":
        """Queue a job.

        Returns:
            Its future, and the values of the oldest batch once all its jobs are done: each batch
            once, in order, without failed jobs.
        """
        future = self._submit_within(self._room, fn, *args, **kwargs)
        self._add(future)
        oldest = self._batches[0]
        if len(oldest) >= self.workers and all(future.done() for future in oldest):
            return future, _values(self._batches.popleft())
        return future, []


class BoundedThreadPoolExecutor(_Pool):
    """Pool whose `submit` blocks while `max_queue_size` jobs are unfinished.

    Args:
        max_workers: Number of threads.
        max_queue_size: Largest number of jobs that wait or run.
    """

    def __init__(self, max_workers: int, max_queue_size: int = 100) -> None:
        super().__init__(max_workers)
        self._room = threading.BoundedSemaphore(max(1, max_queue_size))

    def submit(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> "Future[Any]":
        """Queue a job; its future has the result."""
        return self._submit_within(self._room, fn, *args, **kwargs)


class TaskCountLimitedThreadPoolExecutor(_Pool):
    """Pool with a limit on concurrent groups; a group counts until its last job is done.

    Args:
        max_parallel_groups: Largest number of groups at once.
        max_workers: Number of threads.
        auto_retry: Retry a failed job without limit.
        retry: When to try again, instead of `auto_retry`.
    """

    def __init__(
        self,
        max_parallel_groups: int,
        max_workers: int,
        auto_retry: bool = True,
        *,
        retry: Retry | None = None,
    ) -> None:
        super().__init__(max_workers, retry, auto_retry)
        self._most = max(1, max_parallel_groups)
        self._has_room = threading.Condition()
        self._open: set[object] = set()
        """One token for each group that runs."""

    def submit_group(
        self, task_id: str, fn: Callable[..., Any], args_list: Sequence[Mapping[str, Any]]
    ) -> "list[Future[Any]]":
        """Queue a group's jobs, one for each set of arguments; block at the limit of groups.

        Args:
            task_id: The group.
            fn: The job.
            args_list: Keyword arguments of each job.

        Returns:
            Their futures, in order.
        """
        if not args_list:
            return []
        group = object()
        with self._has_room:
            while len(self._open) >= self._most:
                self._has_room.wait(BEAT)
            self._open.add(group)
        left = len(args_list)

        def on_done(_: "Future[Any] | None") -> None:
            nonlocal left
            with self._has_room:
                left -= 1
                if not left:
                    self._open.discard(group)
                    self._has_room.notify_all()

        futures: list[Future[Any]] = []
        try:
            for args in args_list:
                futures.append(self.submit(fn, **args))
                futures[-1].add_done_callback(on_done)
        except BaseException:
            for _ in range(len(args_list) - len(futures)):
                on_done(None)
            raise
        return futures

    def on_entering_weight_sync(self) -> None:
        """Let the next groups start, even if the running ones are unfinished: the batch has ended.

        Register this with `SwarmClient.add_entering_weight_sync_callback`.
        """
        with self._has_room:
            self._open.clear()
            self._has_room.notify_all()


def _hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Cancel retries at an uncaught error or Ctrl-C, so that the program ends at once.

    An uncaught `TrainingFinished` is a success: print its text and exit with code 0.
    """
    if not hasattr(sys, "ps1"):  # an error at the interactive prompt does not end the program
        for pool in tuple(_POOLS):
            pool.shutdown(wait=False, cancel_futures=True)
        if isinstance(error, TrainingFinished):
            sys.stderr.write(f"{error}\n")
            raise SystemExit(0)
    _before(kind, error, trace)


_before = sys.excepthook
sys.excepthook = _hook


def _values(batch: "Sequence[Future[Any]]") -> list[Any]:
    """Wait for all jobs; return the values of those that succeeded, in order."""
    while wait(batch, BEAT).not_done:
        pass
    return [
        future.result() for future in batch if not future.cancelled() and future.exception() is None
    ]
