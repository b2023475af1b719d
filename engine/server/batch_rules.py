"""When a batch is full, what is counted and what is trained (protocol sections 6 and 7)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from engine.interface import TrainSample
from engine.server.job import (
    ALL_AGREE,
    ANY_AGREES,
    ENOUGH_EPISODES,
    ENOUGH_NON_DUMMY,
    ENOUGH_TASKS,
    Job,
)
from engine.server.pool import FinishedEpisode, Pool
from engine.server.timelines import merge_calls


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """How full the batch is."""

    episodes: int
    tasks: int
    """Tasks with at least R episodes."""
    non_dummy: int
    """Such tasks whose rewards are not all equal."""


def count_batch(pool: Pool, job: Job) -> BatchCounts:
    """Count what is finished."""
    full = [group for group in pool.finished.values() if len(group) >= job.num_repeat]
    return BatchCounts(
        episodes=sum(map(len, pool.finished.values())),
        tasks=len(full),
        non_dummy=sum(not is_dummy(group) for group in full),
    )


def is_dummy(group: list[FinishedEpisode]) -> bool:
    """Whether all rewards are equal, so that the group teaches nothing."""
    return len({episode.reward for episode in group}) <= 1


def is_full(job: Job, count: BatchCounts, votes: list[bool]) -> bool:
    """The job's stop rule. Agreement alone is not enough: there must be something to train on."""
    if job.method == ENOUGH_EPISODES:
        return count.episodes >= job.batch_size * job.num_repeat
    if job.method == ENOUGH_NON_DUMMY:
        return count.non_dummy >= job.batch_size
    if job.method == ANY_AGREES:
        return count.episodes > 0 and any(votes)
    if job.method == ALL_AGREE:
        return count.episodes > 0 and bool(votes) and all(votes)
    return count.tasks >= job.batch_size


@dataclass(frozen=True, slots=True)
class TrainBatch:
    """A batch ready to train on."""

    samples: list[TrainSample]
    calls: int
    """Answers in it."""
    left_out: int
    """Episodes of full groups without signal, under the non-dummy rule."""

    @property
    def timelines(self) -> int:
        """Sequences that the calls were merged into."""
        return len(self.samples)


def build_train_batch(batch: Iterable[FinishedEpisode], job: Job) -> TrainBatch:
    """The samples of a batch: one a timeline, with its episode's reward.

    Under the non-dummy rule full groups without signal are left out.
    """
    groups: dict[str, list[FinishedEpisode]] = {}
    for episode in batch:
        groups.setdefault(episode.task_id, []).append(episode)
    samples: list[TrainSample] = []
    calls = left_out = 0
    for name, group in groups.items():
        full = len(group) >= job.num_repeat
        if job.method == ENOUGH_NON_DUMMY and full and is_dummy(group):
            left_out += len(group)
            continue
        for episode in group:
            timelines = merge_calls(episode.completions)
            calls += sum(timeline.calls for timeline in timelines)
            samples += [one.sample(name, episode.uuid, episode.reward) for one in timelines]
    return TrainBatch(samples, calls, left_out)


def cached_over_limit(pool: Pool, job: Job) -> int:
    """How many finished episodes are too many to keep; 0 while they are not.

    The rules that count tasks alone can cache without an end.
    """
    if job.method not in (ENOUGH_TASKS, ENOUGH_NON_DUMMY):
        return 0
    cached = count_batch(pool, job).episodes
    return cached if cached > job.max_cached_episodes else 0


def near_cache_limit(pool: Pool, job: Job) -> bool:
    """Whether more than four fifths of what may be cached is."""
    if job.method not in (ENOUGH_TASKS, ENOUGH_NON_DUMMY):
        return False
    return 5 * count_batch(pool, job).episodes > 4 * job.max_cached_episodes


def pool_counters(pool: Pool, job: Job) -> dict[str, Any]:
    """The trainer's part of the pool information."""
    count = count_batch(pool, job)
    finished = pool.finished.items()
    return {
        "sample_collection_method": job.method,
        "completed_episodes": count.episodes,
        "completed_episode_target": job.batch_size * job.num_repeat,
        "completed_tasks": count.tasks,
        "completed_task_target": job.batch_size,
        "completed_non_dummy_tasks": count.non_dummy,
        "completed_non_dummy_task_target": job.batch_size,
        "task_expected_num_repeat": job.num_repeat,
        "completed_tasks_details": {
            name: [episode.uuid for episode in group] for name, group in finished
        },
        "completed_tasks_rewards": {
            name: [episode.reward for episode in group] for name, group in finished
        },
    }
