"""State machine and training loop of the engine.

OFFLINE -> BOOTING -> ROLLING -> ROLLING_POST -> WEIGHT_SYNCING -> ROLLING (global step + 1), and
from any state back to OFFLINE (protocol section 4.1). Everything runs on one event loop; the state
changes only between awaits, so no locks are needed.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from enum import StrEnum
from types import TracebackType
from typing import Any, Self

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.tasks import Tasks, keep_running
from ajet_swarm.job.tree import JobError
from engine.interface import ExperimentStore, Hyperparameters, PolicyBackend
from engine.server.activity import TokenDrift, UpdateHistory, VerboseLog
from engine.server.batch_rules import (
    cached_over_limit,
    count_batch,
    is_full,
    near_cache_limit,
    pool_counters,
)
from engine.server.job import Job, JobSupport, parse_job
from engine.server.policy_holder import PolicyFactory, PolicyHolder
from engine.server.poll_aid import PollAid
from engine.server.pool import ActiveClients, FinishedEpisode, Pool
from engine.server.trainer import Trainer

SWEEP_SECONDS = 10.0
STOP_BLOCKS_SECONDS = 3.0
"""How long the real server's event loop blocks while it kills its training process."""
_BOOT_PATIENCE = 2.0
_STOP_PATIENCE = 1.0


class EngineStatus(StrEnum):
    """Engine states with their wire names."""

    OFFLINE = "ENGINE.OFFLINE"
    BOOTING = "ENGINE.BOOTING"
    ROLLING = "ENGINE.ROLLING"
    ROLLING_POST = "ENGINE.ROLLING_POST"
    WEIGHT_SYNCING = "ENGINE.WEIGHT_SYNCING"


ROLLING = (EngineStatus.ROLLING, EngineStatus.ROLLING_POST)


def global_step_of(updates: int) -> int:
    """Return the global step that the engine reports while it rolls with weights of `updates`
    updates; the answers of these weights are collected under it."""
    return updates + 1


class EngineError(AjetError):
    """A request that the engine refuses; `status` is the HTTP status.

    `asserts` marks refusals where the real server fails on an assertion instead.
    """

    def __init__(self, status: int, what: str, *, asserts: bool = False) -> None:
        super().__init__(what)
        self.status, self.asserts = status, asserts


class Engine:
    """One policy, one job, one pool of episodes.

    Use it as an async context manager; leaving it stops the engine and closes the policy.

    Args:
        factory: Opens the policy when the engine starts.
        experiments: Storage of the policy of each experiment; None saves nothing.
        reset: The first start uses the base weights.
        faithful: Reproduce the real server's broken behaviour; see docs/guide/engine.md.
        strict_context: Refuse a prompt over the window instead of dropping its middle.
        show_syncs: Help clients that poll; see `engine.server.poll_aid`.
        clock: Monotonic seconds, for idle times.
        sweep_seconds: Period of the idle sweep.
    """

    def __init__(
        self,
        factory: PolicyFactory,
        *,
        experiments: ExperimentStore | None = None,
        reset: bool = False,
        faithful: bool = False,
        strict_context: bool = False,
        show_syncs: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sweep_seconds: float = SWEEP_SECONDS,
    ) -> None:
        self.experiments = experiments
        self.base_url = "http://localhost:10086/v1"
        """LLM URL that each claim returns; set once the port is bound."""
        self.faithful, self.strict_context = faithful, strict_context
        self.temperature = 1.0
        """Sampling temperature of jobs that set none."""
        self.recipe = Hyperparameters()
        """Hyperparameters of jobs that leave them unset."""
        self.job_support = JobSupport()
        """What the backend does with the values of a job that not every backend uses."""
        self.clock = clock
        self.status = EngineStatus.OFFLINE
        self.detail: str | None = None
        self.global_step: int | None = None
        """None until the first start, as on the real server."""
        self.job: Job | None = None
        self.pool = Pool(clock)
        self.clients = ActiveClients(clock, time.time)
        self.poll_aid = PollAid(clock, enabled=show_syncs)
        self.verbose = VerboseLog()
        self.updates = UpdateHistory()
        self.token_drift = TokenDrift()
        self.trainer = Trainer(self.verbose, self.updates, self.token_drift, clock)
        self.latest_call: dict[str, Any] | None = None
        self.booting_since: float | None = None
        self.tasks = Tasks("engine")
        self.policy_holder = PolicyHolder(factory, self.tasks, self.verbose, reset=reset)
        self.policy_holder.checkpoints = (
            experiments.checkpoints() if experiments is not None else None
        )
        self._sweep_seconds = sweep_seconds
        self._work: asyncio.Task[Any] | None = None
        self._final_counters: dict[str, Any] = {}
        self._unparsed_job: str | None = None
        self._job_error = ""
        self._cache_warned = False

    async def __aenter__(self) -> Self:
        self.tasks.spawn(keep_running(self._janitor, "the expiry of episodes"), "janitor")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()
        await self.tasks.close()

    # -- requests of clients ------------------------------------------------------------------

    def configure(self, job: Job | JobError) -> None:
        """Set the job of the next start.

        An invalid job also removes the previous one: AgentJet's client starts the engine even after
        its job was refused, and would train the previous job.
        """
        self.require_offline("take a training config")
        self._require_unchanging()
        self._unparsed_job = None
        if isinstance(job, JobError):
            self.job, self._job_error = None, str(job)
            return
        self.job, self._job_error = job, ""
        self._choose_experiment(job)
        for note in job.notes:
            self.verbose.add("job", note)

    def configure_unparsed(self, text: str) -> None:
        """Store a job that only `start` parses and validates."""
        self.require_offline("take a training config")
        self.job, self._unparsed_job = None, text

    async def start(self) -> str | None:
        """OFFLINE -> BOOTING; wait briefly so that the caller learns of an early failure.

        Returns:
            None, or why the engine is OFFLINE again.
        """
        self.require_offline("start")
        self._require_unchanging()
        if self.job is None and self._unparsed_job is None:
            if self._job_error:
                return f"No training config found, the last one was refused: {self._job_error}"
            return "No training config found. Please sync a training config first."
        self._set(EngineStatus.BOOTING)
        self.booting_since = time.time()
        self.detail, self.global_step = None, 0
        if self._unparsed_job is not None:
            try:
                self.job = parse_job(self._unparsed_job, self.temperature, self.recipe)
            except JobError as error:
                return str(error)
            self._choose_experiment(self.job)
        assert self.job is not None
        boot: asyncio.Task[str | None] = self.tasks.spawn(self._boot(self.job), "boot")
        self._work = boot
        await asyncio.wait({boot}, timeout=_BOOT_PATIENCE)
        if not boot.done():
            return None
        return "The engine was stopped while it booted." if boot.cancelled() else boot.result()

    async def stop(self) -> None:
        """Go to OFFLINE from any state. Calls in flight end; a policy that takes longer than a
        second to close is closed in the background."""
        if self.status is not EngineStatus.OFFLINE:
            self.halt(None)
            if self.faithful:
                block_event_loop(STOP_BLOCKS_SECONDS)
        await self.policy_holder.wait_released(_STOP_PATIENCE)

    async def reset(self) -> None:
        """Restore the base weights, step 0 and a fresh optimizer; only while OFFLINE.

        Raises:
            EngineError: not OFFLINE, or the policy could not be opened.
        """
        self.require_offline("reset the policy")
        if self.policy_holder.resetting:
            raise EngineError(400, "The policy is being reset already.")
        opened = await self.policy_holder.reset()
        if opened.policy is None:
            raise EngineError(500, opened.error)
        self.updates.clear()

    def require_offline(self, action: str) -> None:
        """Raise EngineError unless the engine is OFFLINE; `action` completes "cannot ..."."""
        if self.status is not EngineStatus.OFFLINE:
            raise EngineError(
                400, f"Engine is not offline, cannot {action}. Status: [{self.status}]."
            )

    def _require_unchanging(self) -> None:
        if self.policy_holder.resetting:
            raise EngineError(400, "The policy is being reset or replaced. Try again in a moment.")

    def _choose_experiment(self, job: Job) -> None:
        """From the next opening on, use the policy of the job's experiment."""
        if self.experiments is not None and self.experiments.choose(job.experiment_name):
            self.policy_holder.set_checkpoints(self.experiments.checkpoints())
            self.updates.clear()

    def require_job(self) -> Job:
        """Return the current job.

        Raises:
            EngineError: no job was synced.
        """
        if self.job is None:
            raise EngineError(400, "No training config found. Please sync a training config first.")
        return self.job

    # -- the pool -----------------------------------------------------------------------------

    def advance(self) -> None:
        """Make the state transitions that are due; call it after every change of the pool."""
        job, policy = self.job, self.policy_holder.policy
        if job is None or policy is None:
            return
        if self.status is EngineStatus.ROLLING and is_full(
            job, count_batch(self.pool, job), self.clients.votes
        ):
            self.close_batch()
        if self.status is EngineStatus.ROLLING_POST and not self.pool.claimed:
            self.sync()
        self.refill()

    def close_batch(self) -> None:
        """ROLLING -> ROLLING_POST: refuse further claims."""
        self.pool.drop_unclaimed()
        self._set(EngineStatus.ROLLING_POST)

    def sync(self) -> None:
        """Go to WEIGHT_SYNCING: train the finished episodes and discard the claimed ones."""
        job, policy = self.job, self.policy_holder.policy
        assert job is not None
        assert policy is not None
        self._final_counters = pool_counters(self.pool, job)
        batch = self.pool.take()
        self.pool.wipe()
        self.clients.clear()
        self._set(EngineStatus.WEIGHT_SYNCING)
        self._work = self.tasks.spawn(self._sync(policy, batch, job), "sync")

    def refill(self) -> None:
        """Register an episode in every free slot while the batch is open; enforce the cache
        limit."""
        job = self.job
        if job is None or self.status is not EngineStatus.ROLLING:
            return
        if count := cached_over_limit(self.pool, job):
            self.pool.take()
            self._cache_warned = False
            self.verbose.add(
                "pool",
                f"{count} episodes are cached and no batch is full: all are thrown away, as "
                f"swarm_mode_sample_collection_max_cached_episodes={job.max_cached_episodes} says",
                logging.WARNING,
            )
        elif near_cache_limit(self.pool, job) and not self._cache_warned:
            self._cache_warned = True
            self.verbose.add(
                "pool",
                "more than four fifths of the episodes that may be cached are, and no batch is "
                f"full: above {job.max_cached_episodes} all are thrown away",
                logging.WARNING,
            )
        for _ in range(job.slots - len(self.pool)):
            self.pool.register()

    def sweep(self) -> None:
        """Reclaim idle episodes and remove idle clients."""
        for episode in self.pool.idle():
            self.verbose.add(
                "pool",
                f"episode {episode.uuid} of client {episode.client!r} was idle for more than "
                f"{episode.timeout:g} s and is taken back",
            )
            self.give_back(episode.uuid)
        self.clients.expire()
        self.advance()

    def give_back(self, name: str) -> None:
        """Make a claimed episode claimable again under the same key (ROLLING), or delete it."""
        episode = self.pool.find(name)
        if episode is None or episode.status != "claimed":
            return
        if self.status is EngineStatus.ROLLING:
            self.pool.revert(episode)
        else:
            self.pool.drop(episode)

    def counters(self) -> dict[str, Any]:
        """Return the trainer's fields of the pool information; a stop freezes their values."""
        rolling = self.status in ROLLING and self.job is not None
        return (
            pool_counters(self.pool, self.job or Job()) if rolling else dict(self._final_counters)
        )

    # -- internals ----------------------------------------------------------------------------

    async def _boot(self, job: Job) -> str | None:
        opened = await self.policy_holder.open()
        self._work = None
        error = opened.error
        if opened.policy is not None:
            error = job.already_trained(opened.policy.step)
        if opened.policy is None or error:
            if not self.faithful:  # the real server stays in BOOTING
                self.halt(error)
            return error
        name, context = opened.policy.name, opened.policy.context
        for line in job.override_notes(name, context, self.job_support):
            self.verbose.add("job", line)
        self._roll(opened.policy)
        return None

    def _roll(self, policy: PolicyBackend) -> None:
        self.global_step = global_step_of(policy.step)
        self._cache_warned = False
        self.pool.wipe()
        self._set(EngineStatus.ROLLING)
        self.refill()

    async def _sync(self, policy: PolicyBackend, batch: list[FinishedEpisode], job: Job) -> None:
        """Run one policy update; a failure takes the engine OFFLINE with its reason.

        The real server does the same when its training process dies; rolling on with a policy that
        cannot learn would waste the clients' episodes.
        """
        clock = asyncio.get_running_loop().time
        until = clock() + self.poll_aid.sync_seconds(job)
        outcome = await self.trainer.update(policy, batch, job)
        if outcome.failed:
            self._work = None
            self.halt(outcome.detail)
            return
        self.policy_holder.update_info(policy)
        if clock() < until:
            await asyncio.sleep(until - clock())
        self._work = None
        if job.total_training_steps is not None and policy.step >= job.total_training_steps:
            complete = f"training complete: step {policy.step} of {job.total_training_steps}"
            self.verbose.add("engine", complete)
            detail = f"{complete}. {outcome.detail}" if outcome.detail else complete
            self.halt(detail, self.global_step)
            return
        self.detail = outcome.detail
        self._roll(policy)

    def halt(self, detail: str | None, global_step: int | None = 0) -> None:
        """Go to OFFLINE now: cancel running work and close the policy in the background.

        Args:
            detail: Why, for the status.
            global_step: Step that the status reports; the last one if training is complete.
        """
        if self.status in ROLLING:
            self._final_counters = pool_counters(self.pool, self.job or Job())
        self._set(EngineStatus.OFFLINE)
        self.detail = detail
        self.global_step = global_step
        self.pool.wipe()
        self.clients.clear()
        work, self._work = self._work, None
        if work is not None:
            work.cancel()
        self.policy_holder.release(work)

    def _set(self, status: EngineStatus) -> None:
        if status is not EngineStatus.BOOTING:
            self.booting_since = None
        if status is not self.status:
            self.verbose.add("engine", f"{self.status} -> {status}")
        self.status = status
        self.poll_aid.set_between_batches(
            status in (EngineStatus.ROLLING_POST, EngineStatus.WEIGHT_SYNCING)
        )

    async def _janitor(self) -> None:
        while True:
            await asyncio.sleep(self._sweep_seconds)
            self.sweep()


def block_event_loop(seconds: float) -> None:
    """Block the event loop, as the real server's stop does."""
    time.sleep(seconds)
