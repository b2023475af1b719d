"""One policy update as the server runs it: samples, training, named checkpoints, log lines."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from ajet_swarm.common.errors import AjetError
from engine.interface import PolicyBackend, SaveError
from engine.server.activity import TokenDrift, UpdateHistory, VerboseLog
from engine.server.batch_rules import TrainBatch, build_train_batch
from engine.server.job import Job
from engine.server.pool import FinishedEpisode

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UpdateOutcome:
    """Result of an update."""

    detail: str | None = None
    """What went wrong, as text for people."""
    failed: bool = False
    """The policy cannot be trained further."""


class Trainer:
    """Runs policy updates on batches.

    Args:
        verbose: Log for clients.
        updates: Receives the figures of each update.
        token_drift: Token drift since the previous update.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        verbose: VerboseLog,
        updates: UpdateHistory,
        token_drift: TokenDrift,
        clock: Callable[[], float],
    ) -> None:
        self._verbose, self._updates, self._token_drift, self._clock = (
            verbose,
            updates,
            token_drift,
            clock,
        )

    async def update(
        self, policy: PolicyBackend, batch: list[FinishedEpisode], job: Job
    ) -> UpdateOutcome:
        """Train on a batch and save a named checkpoint when the job schedules one."""
        began = self._clock()
        train_batch = build_train_batch(batch, job)
        if not train_batch.samples:
            self._verbose.add("train", "the batch holds nothing to train on", logging.WARNING)
            return UpdateOutcome()
        try:
            await self._train(policy, train_batch, job, began)
        except SaveError as error:
            detail = f"The update is done but not saved, the weights are kept in memory: {error}"
            self._verbose.add("train", detail, logging.ERROR)
            return UpdateOutcome(detail)
        except Exception as error:  # a policy error ends the training, not the server
            detail = f"Training failed at step {policy.step + 1}: {error!r}"
            self._verbose.add("train", detail, logging.ERROR)
            log.error("training", exc_info=error)
            return UpdateOutcome(detail, failed=True)
        return UpdateOutcome(await self._checkpoint(policy, job))

    async def _train(
        self, policy: PolicyBackend, train_batch: TrainBatch, job: Job, began: float
    ) -> None:
        stats = await policy.train(train_batch.samples, job.hyper)
        merged = {
            "calls": train_batch.calls,
            "timelines": train_batch.timelines,
            **self._token_drift.take(),
        }
        self._updates.add(stats, self._clock() - began, merged)
        left = (
            f", {train_batch.left_out} episodes without signal left out"
            if train_batch.left_out
            else ""
        )
        unmoved = (
            "; no group has an advantage: the weights stay as they are"
            if stats.dead_groups == stats.groups
            else ""
        )
        self._verbose.add(
            "train",
            f"step {stats.step}: {stats.samples} samples of {train_batch.calls} calls, "
            f"{stats.groups} groups ({stats.dead_groups} dead{left}), "
            f"reward {stats.reward_mean:.3f}{unmoved}",
        )

    async def _checkpoint(self, policy: PolicyBackend, job: Job) -> str | None:
        """Save a named checkpoint; return None, or why it was not saved."""
        if not job.save_freq or policy.step % job.save_freq:
            return None
        try:
            await policy.checkpoint(job.checkpoint_name(policy.step))
        except (SaveError, AjetError) as error:
            detail = f"The checkpoint of step {policy.step} was not saved: {error}"
            self._verbose.add("train", detail, logging.ERROR)
            return detail
        return None
