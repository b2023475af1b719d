"""Rules for when a batch is full, what counts, and what is trained (protocol sections 6 and 7)."""

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
    """Fill level of the batch."""

    episodes: int
    tasks: int
    """Tasks with at least R episodes (R: `Job.num_repeat`)."""
    non_dummy: int
    """Tasks of those whose rewards differ."""


def count_batch(pool: Pool, job: Job) -> BatchCounts:
    """Count the finished episodes and tasks of the pool."""
    full = [group for group in pool.finished.values() if len(group) >= job.num_repeat]
    return BatchCounts(
        episodes=sum(map(len, pool.finished.values())),
        tasks=len(full),
        non_dummy=sum(not is_dummy(group) for group in full),
    )


def is_dummy(group: list[FinishedEpisode]) -> bool:
    """Return whether all rewards are equal, which gives the group no training signal."""
    return len({episode.reward for episode in group}) <= 1


def is_full(job: Job, counts: BatchCounts, votes: list[bool]) -> bool:
    """Apply the job's stop rule. Agreement alone does not fill a batch: it needs an episode too."""
    if job.method == ENOUGH_EPISODES:
        return counts.episodes >= job.batch_size * job.num_repeat
    if job.method == ENOUGH_NON_DUMMY:
        return counts.non_dummy >= job.batch_size
    if job.method == ANY_AGREES:
        return counts.episodes > 0 and any(votes)
    if job.method == ALL_AGREE:
        return counts.episodes > 0 and bool(votes) and all(votes)
    return counts.tasks >= job.batch_size


@dataclass(frozen=True, slots=True)
class TrainBatch:
    """A batch that is ready for training."""

    samples: list[TrainSample]
    calls: int
    """Number of LLM calls in it."""
    left_out: int
    """Episodes that the non-dummy rule excluded."""

    @property
    def timelines(self) -> int:
        """Number of sequences that the calls were merged into."""
        return len(self.samples)


def build_train_batch(batch: Iterable[FinishedEpisode], job: Job) -> TrainBatch:
    """Build one sample per timeline, with the reward of its episode.

    The non-dummy rule excludes full groups without signal.
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
            samples += [
                timeline.sample(name, episode.uuid, episode.reward) for timeline in timelines
            ]
    return TrainBatch(samples, calls, left_out)


def cached_over_limit(pool: Pool, job: Job) -> int:
    """Return the number of cached episodes when it exceeds the job's limit, else 0.

    Only the rules that counts tasks have a limit: they can cache episodes without end.
    """
    if job.method not in (ENOUGH_TASKS, ENOUGH_NON_DUMMY):
        return 0
    cached = count_batch(pool, job).episodes
    return cached if cached > job.max_cached_episodes else 0


def near_cache_limit(pool: Pool, job: Job) -> bool:
    """Return whether more than four fifths of the cache limit are used."""
    if job.method not in (ENOUGH_TASKS, ENOUGH_NON_DUMMY):
        return False
    return 5 * count_batch(pool, job).episodes > 4 * job.max_cached_episodes


def pool_counters(pool: Pool, job: Job) -> dict[str, Any]:
    """Return the trainer's fields of the pool information."""
    counts = count_batch(pool, job)
    finished = pool.finished.items()
    return {
        "sample_collection_method": job.method,
        "completed_episodes": counts.episodes,
        "completed_episode_target": job.batch_size * job.num_repeat,
        "completed_tasks": counts.tasks,
        "completed_task_target": job.batch_size,
        "completed_non_dummy_tasks": counts.non_dummy,
        "completed_non_dummy_task_target": job.batch_size,
        "task_expected_num_repeat": job.num_repeat,
        "completed_tasks_details": {
            name: [episode.uuid for episode in group] for name, group in finished
        },
        "completed_tasks_rewards": {
            name: [episode.reward for episode in group] for name, group in finished
        },
    }
