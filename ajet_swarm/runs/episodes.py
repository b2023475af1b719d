"""Run many episodes in threads: retries, ordered results, group limits, resumption."""

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ajet_swarm.client.synchronous import SwarmClient, join
from ajet_swarm.protocol.errors import EpisodeLost, SwarmError, TrainingFinished
from ajet_swarm.protocol.models import OpenaiBaseUrlAndApiKey, Task, WorkflowOutput
from ajet_swarm.runs.executors import Result, Retry, SlidingThreadPoolExecutor, attempt
from ajet_swarm.runs.record import RunRecord

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

DEFAULT_THREADS = 64
"""Largest default number of threads."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a run; `str` gives one line."""

    done: int
    """Finished episodes, including failures."""
    total: int
    failed: int
    resumed: int
    """Those of `done` that were read from the record."""
    running: int
    seconds: float
    """Seconds since the run began."""

    def __str__(self) -> str:
        rate = (self.done - self.resumed) / self.seconds if self.seconds > 0 else 0.0
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.done}/{self.total} episodes{failed}, {self.running} running, {rate:.1f}/s"


OnProgress = Callable[[Progress], None]


class _Run(Generic[T, R]):
    """The queue of one run, and its results.

    A group is open from its first episode until its last has finished; at most `groups` are open.
    """

    def __init__(
        self,
        tasks: Sequence[T],
        func: Callable[[T], R],
        retry: Retry,
        progress: OnProgress | None,
        record: RunRecord | None,
        groups: int | None,
    ) -> None:
        self.tasks, self.func, self.retry = tasks, func, retry
        self.progress, self.record, self.groups = progress, record, groups
        self.results: list[Result[T, R] | None] = [None] * len(tasks)
        self.stop = threading.Event()
        self._keys = [_key(task) for task in tasks]
        if record is not None:
            self._resume(record)
        self.waiting = [at for at, result in enumerate(self.results) if result is None]
        self._resumed = len(tasks) - len(self.waiting)
        self._left = Counter(self._keys[at] for at in self.waiting)
        """Unfinished episodes of each group."""
        self._open: set[str] = set()
        self._running = self._failed = 0
        self._changed = threading.Condition()
        self._began = time.monotonic()
        self._fault: BaseException | None = None

    def _resume(self, record: RunRecord) -> None:
        done: dict[str, Iterator[Any]] = {}
        for index, (task, key) in enumerate(zip(self.tasks, self._keys, strict=True)):
            if not getattr(task, "task_id", ""):
                raise SwarmError(
                    "a task without a task_id cannot be found in a record", f"task {index}"
                )
            values = done.setdefault(key, iter(record.done(key)))
            with contextlib.suppress(StopIteration):
                self.results[index] = Result(task, next(values), None, 0, 0.0)

    def work(self) -> None:
        """Run episodes until none is left: target of each thread."""
        try:
            while (index := self._take()) is not None:
                self._run(index)
        except BaseException as error:  # noqa: BLE001  raised in the caller's thread
            self._fault = self._fault or error
            self.halt()

    def _take(self) -> int | None:
        """Return the index of the next episode, or None at the end; wait while none may start."""
        with self._changed:
            while self.waiting and not self.stop.is_set():
                for index in self.waiting:
                    key = self._keys[index]
                    if self.groups is None or len(self._open) < self.groups or key in self._open:
                        self._open.add(key)
                        self.waiting.remove(index)
                        self._running += 1
                        return index
                self._changed.wait()
            return None

    def _run(self, index: int) -> None:
        task, key = self.tasks[index], self._keys[index]
        tried = attempt(task, lambda: self.func(task), self.retry, self.stop, f"episode of {key}")
        if isinstance(tried.error, TrainingFinished):
            raise tried.error
        if tried.error is None and self.record is not None:
            self.record.add(key, tried.value)
        with self._changed:
            self.results[index] = tried
            self._running -= 1
            self._failed += tried.error is not None
            self._left[key] -= 1
            if not self._left[key]:
                self._open.discard(key)
                self._changed.notify_all()
            if self.progress is not None:
                total, running = len(self.tasks), self._running
                done = total - len(self.waiting) - running
                seconds = time.monotonic() - self._began
                self.progress(Progress(done, total, self._failed, self._resumed, running, seconds))

    def halt(self) -> None:
        """Stop the start of further episodes."""
        self.stop.set()
        with self._changed:
            self._changed.notify_all()

    def finished(self) -> list[Result[T, R]]:
        """Return the results; if training completed, it is the error of the remaining episodes.

        Raises:
            TrainingFinished: no episode is finished.
        """
        ended, left = self._fault, self.results.count(None)
        if ended is not None and (
            not isinstance(ended, TrainingFinished) or left == len(self.tasks)
        ):
            raise ended
        if isinstance(ended, TrainingFinished):
            log.warning("%s; %d of %d episodes are left", ended, left, len(self.tasks))
        pairs = zip(self.tasks, self.results, strict=True)
        return [result or Result(task, None, ended, 0, 0.0) for task, result in pairs]


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
    """Run `func` on each task, in threads, until each has succeeded or has no tries left.

    Args:
        tasks: One entry for each episode: four repeats of a task are four entries.
        func: Runs one episode; its return value is the result's value.
        max_workers: Number of threads; default one for each task, at most 64.
        max_groups: Largest number of tasks (by `task_id`) that run at once; a task counts until
            its last repeat has finished. None for no limit.
        retry: When to try again after a failure; default three tries.
        progress: Called after each episode, from the threads, one call at a time.
        record: Record of finished episodes: those in it are not run again, new ones are added.

    Returns:
        A result for each task, in their order, including failures. If training completes before
        all have finished, the remaining ones have `TrainingFinished` as their error.

    Raises:
        TrainingFinished: training is complete, and no episode has finished.
        SwarmError: an argument is wrong, or the record cannot be used.
    """
    _check_run(tasks, func, max_workers=max_workers, max_groups=max_groups)
    run = _Run(tasks, func, retry or Retry(), progress, record, max_groups)
    count = min(max_workers or DEFAULT_THREADS, len(run.waiting))
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
    """Run `func` on each task, as AgentJet's function of this name does.

    Args:
        tasks, func: As of `run_episodes`.
        max_workers: Number of threads; default one for each task.
        auto_retry: Retry a failed episode without limit, with growing pauses.
        retry: When to try again, instead of `auto_retry`.
        progress, record: As of `run_episodes`.

    Returns:
        The values in the order of the tasks; for a failed episode its error.

    Raises:
        TrainingFinished: as of `run_episodes`.
    """
    _check_run(tasks, func, max_workers=max_workers)
    done = run_episodes(
        tasks,
        func,
        max_workers=max(1, len(tasks)) if max_workers is None else max_workers,
        retry=retry or Retry(tries=None if auto_retry else 1),
        progress=progress,
        record=record,
    )
    return [outcome.value if outcome.error is None else outcome.error for outcome in done]


Agent = Callable[[Task, OpenaiBaseUrlAndApiKey], WorkflowOutput | float]
"""Function that runs a task with a base URL and a key, and returns its output or reward."""


def rollout(
    client: SwarmClient, agent: Agent, *, discard_episode_timeout: float = 240, **begin: Any
) -> Callable[[Task], float]:
    """Return a function that runs an agent on a task, for `run_episodes`.

    The function claims an episode, runs the agent and ends the episode; it aborts the episode if
    the agent raises. An end that is too late is a failure, so that the task is retried.

    Args:
        client: Client of the server.
        agent: The agent.
        discard_episode_timeout, begin: As of `SwarmClient.begin_episode`.

    Returns:
        The function, which returns the reward and raises `EpisodeLost` if that does not count.
    """

    def run(task: Task) -> float:
        with client.episode(task, discard_episode_timeout, **begin) as episode:
            output = agent(task, episode.api)
            outcome = episode.end(output)
        if not outcome.ended:
            raise EpisodeLost(outcome.kind.value, outcome.text, episode.uuid)
        reward: Any = output.reward if isinstance(output, WorkflowOutput) else output
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
    """Run each training task of a dataset `local_grpo_n` times, without pauses between batches.

    Return early if training completes.

    Args:
        dataset: A task reader.
        swarm_worker: Client of the server.
        execute_agent: The agent; a failed episode is retried without limit.
        local_grpo_n: Episodes of a task.
        remote_batch_size: Tasks of a batch.
        max_parallel: Threads.
    """
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


def _check_run(tasks: object, func: object, **limits: Any) -> None:
    """Check the arguments of a run.

    Raises:
        SwarmError: one of them is wrong.
    """
    where = "run_episodes"
    listed = hasattr(tasks, "__len__") and hasattr(tasks, "__getitem__")
    if isinstance(tasks, str | bytes | Mapping) or not listed:
        raise SwarmError(
            f"tasks is a {type(tasks).__name__}, not a list", where, "Give list(...) of it"
        )
    if not callable(func):
        raise SwarmError(f"func is a {type(func).__name__}, not a function", where)
    for name, limit in limits.items():
        whole = isinstance(limit, int) and not isinstance(limit, bool)
        if limit is not None and not (whole and limit >= 1):
            raise SwarmError(
                f"{name} is {limit!r:.80}", where, "Give a whole number of at least 1, or None"
            )


def _key(task: object) -> str:
    """Return the key of a task's group; a task without an id is a group of its own."""
    return str(getattr(task, "task_id", "") or id(task))
