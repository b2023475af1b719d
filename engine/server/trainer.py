"""One policy update as the server sees it: samples, training, named saves, and what is told."""

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
    """What an update came to."""

    detail: str | None = None
    """What went wrong, for people."""
    failed: bool = False
    """The policy cannot be trained on."""


class Trainer:
    """Trains batches.

    Args:
        verbose: Where it is told.
        updates: Gets the figures of each update.
        drift: What happened to the calls since the update before.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        verbose: VerboseLog,
        updates: UpdateHistory,
        drift: TokenDrift,
        clock: Callable[[], float],
    ) -> None:
        self._verbose, self._updates, self._drift, self._clock = verbose, updates, drift, clock

    async def update(
        self, policy: PolicyBackend, batch: list[FinishedEpisode], job: Job
    ) -> UpdateOutcome:
        """Train on a batch and save it under a name where the job asks for that."""
        began = self._clock()
        made = build_train_batch(batch, job)
        if not made.samples:
            self._verbose.add("train", "the batch holds nothing to train on", logging.WARNING)
            return UpdateOutcome()
        try:
            await self._train(policy, made, job, began)
        except SaveError as error:
            detail = f"The update is done but not saved, the weights are kept in memory: {error}"
            self._verbose.add("train", detail, logging.ERROR)
            return UpdateOutcome(detail)
        except Exception as error:  # whatever the backend raises ends the training, not the server
            detail = f"Training failed at step {policy.step + 1}: {error!r}"
            self._verbose.add("train", detail, logging.ERROR)
            log.error("training", exc_info=error)
            return UpdateOutcome(detail, failed=True)
        return UpdateOutcome(await self._checkpoint(policy, job))

    async def _train(self, policy: PolicyBackend, made: TrainBatch, job: Job, began: float) -> None:
        stats = await policy.train(made.samples, job.hyper)
        merged = {"calls": made.calls, "timelines": made.timelines, **self._drift.take()}
        self._updates.add(stats, self._clock() - began, merged)
        left = f", {made.left_out} episodes without signal left out" if made.left_out else ""
        self._verbose.add(
            "train",
            f"step {stats.step}: {stats.samples} samples of {made.calls} calls, {stats.groups} "
            f"groups ({stats.dead_groups} dead{left}), reward {stats.reward_mean:.3f}",
        )

    async def _checkpoint(self, policy: PolicyBackend, job: Job) -> str | None:
        """A named save; None, or why there is none."""
        if not job.save_freq or policy.step % job.save_freq:
            return None
        try:
            await policy.checkpoint(job.checkpoint_name(policy.step))
        except (SaveError, AjetError) as error:
            detail = f"The checkpoint of step {policy.step} was not saved: {error}"
            self._verbose.add("train", detail, logging.ERROR)
            return detail
        return None
