"""Running a list of episodes until all are done: retries, results in order, groups, resuming."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ajet_swarm.client.sync_client import SwarmClient
from ajet_swarm.client.waits import join
from ajet_swarm.protocol.errors import EpisodeLost, SwarmError, TrainingFinished
from ajet_swarm.protocol.task import OpenaiBaseUrlAndApiKey, Task, WorkflowOutput
from ajet_swarm.runs.plan import EpisodeSchedule
from ajet_swarm.runs.record import RunRecord, UnstoredValue
from ajet_swarm.runs.retry import FOREVER, ONCE, Retry, attempt

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

__all__ = [
    "Progress",
    "Result",
    "Retry",
    "auto_train_with_dataset",
    "rollout",
    "run_episodes",
    "run_episodes_until_all_complete",
]

DEFAULT_THREADS = 64
"""Threads at most when none are asked for."""


@dataclass(frozen=True, slots=True)
class Result(Generic[T, R]):
    """What came of one episode of a run.

    Attributes:
        value: What the function returned; None when it failed.
        error: Why it was given up or left, or that a record says it is done and has not kept its
            value; None when it did not fail.
        tries: How often it was tried; 0 when a record says it is done, or it was left.
        seconds: From the first try to the end of the last.
    """

    task: T
    value: R | None
    error: Exception | None
    tries: int
    seconds: float

    @property
    def ok(self) -> bool:
        """It did not fail."""
        return self.error is None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is; written out, it is a line."""

    done: int
    """Episodes that are over, failures among them."""
    total: int
    failed: int
    resumed: int
    """Of `done`, those a record says were done before."""
    running: int
    seconds: float
    """Since the run began."""

    def __str__(self) -> str:
        rate = (self.done - self.resumed) / self.seconds if self.seconds > 0 else 0.0
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.done}/{self.total} episodes{failed}, {self.running} running, {rate:.1f}/s"


OnProgress = Callable[[Progress], None]


class _Run(Generic[T, R]):
    """One run under way."""

    def __init__(
        self,
        tasks: Sequence[T],
        func: Callable[[T], R],
        retry: Retry,
        progress: OnProgress | None,
        record: RunRecord | None,
        groups: int | None,
    ) -> None:
        self.tasks = tasks
        self.func = func
        self.retry = retry
        self.progress = progress
        self.record = record
        self.results: list[Result[T, R] | None] = [None] * len(tasks)
        self.stop = threading.Event()
        self.ended: TrainingFinished | None = None
        """Training is complete: what is not done by now is left."""
        self._keys = [_key(task) for task in tasks]
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._done = self._failed = self._resumed = self._running = 0
        self._fault: BaseException | None = None
        if record is not None:
            self._resume(record)
        self._places = [index for index, one in enumerate(self.results) if one is None]
        self.plan = EpisodeSchedule([self._keys[index] for index in self._places], groups)

    @property
    def left(self) -> int:
        return len(self._places)

    def _resume(self, record: RunRecord) -> None:
        done: dict[str, Iterator[Any]] = {}
        for index, (task, key) in enumerate(zip(self.tasks, self._keys, strict=True)):
            if not getattr(task, "task_id", ""):
                raise SwarmError(
                    "a task without a task_id cannot be found in a record", f"task {index}"
                )
            values = done.setdefault(key, iter(record.done(key)))
            with contextlib.suppress(StopIteration):
                self.results[index] = _resumed(task, next(values), record)
                self._done += 1
                self._resumed += 1

    def work(self) -> None:
        """What each thread does."""
        while not self.stop.is_set() and (at := self.plan.take()) is not None:
            try:
                self._one(self._places[at])
            except BaseException as error:  # noqa: BLE001  the caller's thread raises it
                self._fault = self._fault or error
                self.halt()
            finally:
                self.plan.over(at)

    def _one(self, index: int) -> None:
        task, key = self.tasks[index], self._keys[index]
        with self._lock:
            self._running += 1
        tried = attempt(lambda: self.func(task), self.retry, self.stop, f"episode of {key}")
        if isinstance(tried.error, TrainingFinished):
            self.ended = tried.error
            self.halt()
            return
        if tried.error is None and self.record is not None:
            self.record.add(key, tried.value)
        self.results[index] = Result(task, tried.value, tried.error, tried.tries, tried.seconds)
        with self._lock:
            self._running -= 1
            self._done += 1
            self._failed += tried.error is not None
            told = self.told()
            if self.progress is not None:
                self.progress(told)

    def told(self) -> Progress:
        return Progress(
            self._done,
            len(self.tasks),
            self._failed,
            self._resumed,
            self._running,
            time.monotonic() - self._began,
        )

    def halt(self) -> None:
        """Begin nothing more."""
        self.stop.set()
        self.plan.stop()

    def finished(self) -> list[Result[T, R]]:
        if self._fault is not None:
            raise self._fault
        if self.ended is not None:
            self._leave_rest(self.ended)
        return [one for one in self.results if one is not None]

    def _leave_rest(self, why: TrainingFinished) -> None:
        """Give what is not done `why` as its error.

        Raises:
            TrainingFinished: nothing is done.
        """
        left = [index for index, one in enumerate(self.results) if one is None]
        if len(left) == len(self.tasks):
            raise why
        log.warning("%s; %d of %d episodes are left", why, len(left), len(self.tasks))
        for index in left:
            self.results[index] = Result(self.tasks[index], None, why, 0, 0.0)


def run_episodes(
    tasks: Sequence[T],
    func: Callable[[T], R],
    *,
    max_workers: int | None = None,
    max_groups: int | None = None,
    retry: Retry | None = None,
    progress: OnProgress | None = None,
    record: RunRecord | None = None,
) -> list[Result[T, R]]:
    """Run `func` on each task, in threads, until all are done or given up.

    Args:
        tasks: One entry for each episode: a task of four repeats stands there four times.
        func: Runs one episode; what it returns is the result's value.
        max_workers: Threads; as many as there are tasks, at most 64, when left out.
        max_groups: Tasks (by `task_id`) under way at once; one keeps its place until its last
            repeat is done. None for any number.
        retry: How often, and how long after a failure; three tries when left out.
        progress: Called after each episode, one call at a time, from the threads.
        record: What is done there is not run again; what gets done is added.

    Returns:
        A result for each task, in their order, those that failed included. When training is
        complete before all are done, those that are left have `TrainingFinished` as their error.

    Raises:
        TrainingFinished: training is complete, and none is done.
        SwarmError: an argument cannot be meant, or the record cannot be used.
    """
    _check_run(tasks, func, max_workers=max_workers, max_groups=max_groups)
    run = _Run(tasks, func, retry or Retry(), progress, record, max_groups)
    count = min(max_workers or min(len(tasks), DEFAULT_THREADS), run.left)
    threads = [
        threading.Thread(target=run.work, name=f"episode-{n}", daemon=True) for n in range(count)
    ]
    for thread in threads:
        thread.start()
    try:
        join(threads)
    except BaseException:
        run.halt()
        raise
    return run.finished()


def run_episodes_until_all_complete(
    tasks: Sequence[T],
    func: Callable[[T], R],
    max_workers: int | None = None,
    auto_retry: bool = True,
    *,
    retry: Retry | None = None,
    progress: OnProgress | None = None,
    record: RunRecord | None = None,
) -> list[R | Exception | None]:
    """As AgentJet's: what `func` returned for each task, in order.

    Args:
        tasks, func: As of `run_episodes`.
        max_workers: Threads; as many as there are tasks when left out.
        auto_retry: Try a failed one again for as long as it takes, later each time.
        retry: How, instead of `auto_retry`.
        progress, record: As of `run_episodes`.

    Returns:
        The values; in the place of one that was given up or left, its error.

    Raises:
        TrainingFinished: as of `run_episodes`.
    """
    _check_run(tasks, func, max_workers=max_workers)
    done = run_episodes(
        tasks,
        func,
        max_workers=max(1, len(tasks)) if max_workers is None else max_workers,
        retry=retry or (FOREVER if auto_retry else ONCE),
        progress=progress,
        record=record,
    )
    return [one.value if one.error is None else one.error for one in done]


Agent = Callable[[Task, OpenaiBaseUrlAndApiKey], WorkflowOutput | float]
"""Runs a task against a base url and a key, and says what came of it."""


def rollout(
    client: SwarmClient, agent: Agent, *, discard_episode_timeout: float = 240, **begin: Any
) -> Callable[[Task], float]:
    """An agent as a function of a task: claims, runs, ends; aborts when it raises.

    An end that came too late counts as a failure, so that a run tries the episode again.

    Args:
        client: The server.
        agent: What runs in the episode.
        discard_episode_timeout, begin: As of `SwarmClient.begin_episode`.

    Returns:
        What to give `run_episodes`; it returns the reward, and raises `EpisodeLost` when that does
        not count.
    """

    def run(task: Task) -> float:
        with client.episode(task, discard_episode_timeout, **begin) as episode:
            given = agent(task, episode.api)
            outcome = episode.end(given)
        if not outcome.ended:
            raise EpisodeLost(outcome.kind.value, outcome.text, episode.uuid)
        reward: Any = given.reward if isinstance(given, WorkflowOutput) else given
        return float(reward)

    return run


def auto_train_with_dataset(
    dataset: Any,
    swarm_worker: SwarmClient,
    execute_agent: Agent,
    local_grpo_n: int = 2,
    remote_batch_size: int = 8,
    *,
    max_parallel: int = DEFAULT_THREADS,
) -> None:
    """Run each training task of a dataset `local_grpo_n` times; a batch waits for nobody.

    Ends before that when training is complete.

    Args:
        dataset: A task reader.
        swarm_worker: The server.
        execute_agent: What runs in an episode; a failed one is tried again for as long as it takes.
        local_grpo_n: Episodes of a task.
        remote_batch_size: Tasks of a batch.
        max_parallel: Threads.
    """
    from ajet_swarm.runs.executors import SlidingThreadPoolExecutor

    run = rollout(swarm_worker, execute_agent)
    with SlidingThreadPoolExecutor(
        workers=remote_batch_size * local_grpo_n, max_parallel=max_parallel
    ) as executor:
        try:
            for task in dataset.generate_training_tasks():
                for _ in range(local_grpo_n):
                    executor.submit_with_periodic_drain(run, task)
        except TrainingFinished as finished:
            log.warning("%s", finished)


def _resumed(task: T, value: Any, record: RunRecord) -> Result[T, Any]:
    if not isinstance(value, UnstoredValue):
        return Result(task, value, None, 0, 0.0)
    error = SwarmError(
        f"it is done, but what came of it, a {value.kind}, could not be kept",
        str(record.path),
        "Return numbers, text, lists and dicts of them, or models",
    )
    return Result(task, None, error, 0, 0.0)


def _check_run(tasks: object, func: object, **limits: Any) -> None:
    """Raise what is wrong with a run before it begins."""
    where = "run_episodes"
    listed = hasattr(tasks, "__len__") and hasattr(tasks, "__getitem__")
    if isinstance(tasks, str | bytes | Mapping) or not listed:
        told = f"tasks is a {type(tasks).__name__}, not a list"
        raise SwarmError(told, where, "Give list(...) of it")
    if not callable(func):
        raise SwarmError(f"func is a {type(func).__name__}, not a function", where)
    for name, limit in limits.items():
        whole = isinstance(limit, int) and not isinstance(limit, bool)
        if limit is not None and not (whole and limit >= 1):
            raise SwarmError(
                f"{name} is {limit!r:.80}", where, "Give a whole number of at least 1, or None"
            )


def _key(task: object) -> str:
    """What names a task's group; one without an id is a group of its own with its equals."""
    return str(getattr(task, "task_id", "") or id(task))
