"""The engine's state machine and its training loop.

OFFLINE -> BOOTING -> ROLLING -> ROLLING_POST -> WEIGHT_SYNCING -> ROLLING (global step + 1), and
back to OFFLINE from any of them (protocol section 4.1). Everything here runs on one event loop;
between two awaits nothing else changes the state, so there are no locks.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from enum import StrEnum
from types import TracebackType
from typing import Any, Self

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.tasks import Tasks
from engine.interface import PolicyBackend
from engine.server.activity import Drift, Updates, VerboseLog
from engine.server.batch_rules import counters, is_full, nearly_over_cached, over_cached, tally
from engine.server.job import Job, JobError, parse_job
from engine.server.policy_holder import Backend, PolicyFactory
from engine.server.poll_aid import Onlookers
from engine.server.pool import ActiveClients, Finished, Pool
from engine.server.trainer import Trainer
from engine.storage.experiments import Experiments

SWEEP_SECONDS = 10.0
STOP_BLOCKS_SECONDS = 3.0
"""The real server stands still that long while it kills its training process."""
_BOOT_PATIENCE = 2.0
_STOP_PATIENCE = 1.0


class Status(StrEnum):
    """States as the wire names them."""

    OFFLINE = "ENGINE.OFFLINE"
    BOOTING = "ENGINE.BOOTING"
    ROLLING = "ENGINE.ROLLING"
    ROLLING_POST = "ENGINE.ROLLING_POST"
    WEIGHT_SYNCING = "ENGINE.WEIGHT_SYNCING"


ROLLING = (Status.ROLLING, Status.ROLLING_POST)


class Refused(AjetError):
    """A request the engine does not serve now or at all; `status` is the HTTP status.

    `asserts`: the real server fails on an assertion there.
    """

    def __init__(self, status: int, what: str, *, asserts: bool = False) -> None:
        super().__init__(what)
        self.status, self.asserts = status, asserts


class Engine:
    """One policy, one job, one pool of episodes.

    Use as an async context manager; leaving it stops the engine and closes the policy.

    Args:
        factory: Opens the policy when the engine is started.
        experiments: Where the policy of each experiment is kept; None where nothing is saved.
        reset: The first start goes to the base weights.
        faithful: Do as the real server does also where it is broken; see docs/guide/engine.md.
        strict_context: Refuse a prompt over the window instead of dropping its middle.
        show_syncs: Help clients that poll; see `engine.server.poll_aid`.
        clock: Monotonic seconds, for idle times.
        sweep_seconds: Period of the idle sweep.
    """

    def __init__(
        self,
        factory: PolicyFactory,
        *,
        experiments: Experiments | None = None,
        reset: bool = False,
        faithful: bool = False,
        strict_context: bool = False,
        show_syncs: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sweep_seconds: float = SWEEP_SECONDS,
    ) -> None:
        self.experiments = experiments
        self.base_url = "http://localhost:10086/v1"
        """Told to clients with each episode; set by whoever binds the port."""
        self.faithful, self.strict_context = faithful, strict_context
        self.temperature = 1.0
        """Of a job that names none."""
        self.clock = clock
        self.status = Status.OFFLINE
        self.detail: str | None = None
        self.global_step: int | None = None
        """None until the first start, as on the real server."""
        self.job: Job | None = None
        self.pool = Pool(clock)
        self.clients = ActiveClients(clock, time.time)
        self.onlookers = Onlookers(clock, helped=show_syncs)
        self.verbose = VerboseLog()
        self.updates = Updates()
        self.drift = Drift()
        self.trainer = Trainer(self.verbose, self.updates, self.drift, clock)
        self.latest_call: dict[str, Any] | None = None
        self.booting_since: float | None = None
        self.tasks = Tasks("engine")
        self.backend = Backend(factory, self.tasks, self.verbose, reset=reset)
        self.backend.keeper = experiments.keeper() if experiments is not None else None
        self._sweep_seconds = sweep_seconds
        self._work: asyncio.Task[Any] | None = None
        self._frozen: dict[str, Any] = {}
        self._unread: str | None = None
        self._refused = ""
        self._warned = False

    async def __aenter__(self) -> Self:
        self.tasks.spawn(self._janitor(), "janitor")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()
        await self.tasks.close()

    # -- what clients order -------------------------------------------------------------------

    def configure(self, job: Job | JobError) -> None:
        """Take the job for the next start.

        A job that is none takes away the one before too: AgentJet's client starts the engine
        although its job was refused, and another one would be trained.
        """
        self.require_offline("take a training config")
        self._require_unchanging()
        self._unread = None
        if isinstance(job, JobError):
            self.job, self._refused = None, str(job)
            return
        self.job, self._refused = job, ""
        self._choose_experiment(job)
        for note in job.notes:
            self.verbose.add("job", note)

    def configure_unread(self, text: str) -> None:
        """Take a job that is read at the start alone, where it may turn out to be none."""
        self.require_offline("take a training config")
        self.job, self._unread = None, text

    async def start(self) -> str | None:
        """OFFLINE -> BOOTING; waits a moment so that a failure is told to the one who asked.

        Returns:
            None, or why the engine is OFFLINE again.
        """
        self.require_offline("start")
        self._require_unchanging()
        if self.job is None and self._unread is None:
            if self._refused:
                return f"No training config found, the last one was refused: {self._refused}"
            return "No training config found. Please sync a training config first."
        self._set(Status.BOOTING)
        self.booting_since = time.time()
        self.detail, self.global_step = None, 0
        if self._unread is not None:
            try:
                self.job = parse_job(self._unread, self.temperature)
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
        """To OFFLINE from any state; calls in flight end, the policy is closed in the background
        when it takes longer than a second."""
        if self.status is not Status.OFFLINE:
            self.halt(None)
            if self.faithful:
                stand_still(STOP_BLOCKS_SECONDS)
        await self.backend.released(_STOP_PATIENCE)

    async def reset(self) -> None:
        """Base weights, step 0, fresh optimizer; only while OFFLINE.

        Raises:
            Refused: not OFFLINE, or the policy could not be opened.
        """
        self.require_offline("reset the policy")
        if self.backend.resetting:
            raise Refused(400, "The policy is being reset already.")
        opened = await self.backend.reset()
        if opened.policy is None:
            raise Refused(500, opened.error)
        self.updates.clear()

    def require_offline(self, deed: str) -> None:
        """Raises Refused unless OFFLINE."""
        if self.status is not Status.OFFLINE:
            raise Refused(400, f"Engine is not offline, cannot {deed}. Status: [{self.status}].")

    def _require_unchanging(self) -> None:
        if self.backend.resetting:
            raise Refused(400, "The policy is being reset or replaced. Try again in a moment.")

    def _choose_experiment(self, job: Job) -> None:
        """Make the policy that of the job's experiment from the next opening on."""
        if self.experiments is not None and self.experiments.choose(job.experiment_name):
            self.backend.replace_keeper(self.experiments.keeper())
            self.updates.clear()

    def require_job(self) -> Job:
        """The job of the run.

        Raises:
            Refused: none was synced.
        """
        if self.job is None:
            raise Refused(400, "No training config found. Please sync a training config first.")
        return self.job

    # -- the pool -----------------------------------------------------------------------------

    def advance(self) -> None:
        """Take the transitions that hold now; call it after every change of the pool."""
        job, policy = self.job, self.backend.policy
        if job is None or policy is None:
            return
        if self.status is Status.ROLLING and is_full(
            job, tally(self.pool, job), self.clients.votes
        ):
            self.close_batch()
        if self.status is Status.ROLLING_POST and not self.pool.claimed:
            self.sync()
        self.refill()

    def close_batch(self) -> None:
        """ROLLING -> ROLLING_POST: no more claims."""
        self.pool.drop_unclaimed()
        self._set(Status.ROLLING_POST)

    def sync(self) -> None:
        """To WEIGHT_SYNCING: what is finished is trained, what is claimed is lost."""
        job, policy = self.job, self.backend.policy
        assert job is not None
        assert policy is not None
        self._frozen = counters(self.pool, job)
        batch = self.pool.take()
        self.pool.wipe()
        self.clients.clear()
        self._set(Status.WEIGHT_SYNCING)
        self._work = self.tasks.spawn(self._sync(policy, batch, job), "sync")

    def refill(self) -> None:
        """Give every slot an episode again while the batch is open; guard the cache limit."""
        job = self.job
        if job is None or self.status is not Status.ROLLING:
            return
        if cached := over_cached(self.pool, job):
            self.pool.take()
            self._warned = False
            self.verbose.add(
                "pool",
                f"{cached} episodes are cached and no batch is full: all are thrown away, as "
                f"swarm_mode_sample_collection_max_cached_episodes={job.max_cached_episodes} says",
                logging.WARNING,
            )
        elif nearly_over_cached(self.pool, job) and not self._warned:
            self._warned = True
            self.verbose.add(
                "pool",
                "more than four fifths of the episodes that may be cached are, and no batch is "
                f"full: above {job.max_cached_episodes} all are thrown away",
                logging.WARNING,
            )
        for _ in range(job.slots - len(self.pool)):
            self.pool.register()

    def sweep(self) -> None:
        """Take back idle episodes and forget idle clients."""
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
        """ROLLING: registered again under the same key. ROLLING_POST: deleted."""
        episode = self.pool.find(name)
        if episode is None or episode.status != "claimed":
            return
        if self.status is Status.ROLLING:
            self.pool.revert(episode)
        else:
            self.pool.drop(episode)

    def counters(self) -> dict[str, Any]:
        """The trainer's part of the pool information; stays as it was after a stop."""
        rolling = self.status in ROLLING and self.job is not None
        return counters(self.pool, self.job or Job()) if rolling else dict(self._frozen)

    # -- inside -------------------------------------------------------------------------------

    async def _boot(self, job: Job) -> str | None:
        opened = await self.backend.open()
        self._work = None
        error = opened.error
        if opened.policy is not None:
            error = job.already_trained(opened.policy.step)
        if opened.policy is None or error:
            if not self.faithful:  # else BOOTING it stays until somebody stops the engine
                self.halt(error)
            return error
        for line in job.told(opened.policy.name, opened.policy.context):
            self.verbose.add("job", line)
        self._roll(opened.policy)
        return None

    def _roll(self, policy: PolicyBackend) -> None:
        self.global_step = policy.step + 1
        self._warned = False
        self.pool.wipe()
        self._set(Status.ROLLING)
        self.refill()

    async def _sync(self, policy: PolicyBackend, batch: list[Finished], job: Job) -> None:
        """One policy update; a failure takes the engine OFFLINE with its reason.

        As on the real server, where a dead training process does; rolling on with a policy that
        cannot learn would waste the episodes of the clients.
        """
        now = asyncio.get_running_loop().time
        until = now() + self.onlookers.shown(job)
        outcome = await self.trainer.update(policy, batch, job)
        if outcome.failed:
            self._work = None
            self.halt(outcome.detail)
            return
        self.backend.note(policy)
        if now() < until:
            await asyncio.sleep(until - now())
        self._work = None
        if job.total_training_steps is not None and policy.step >= job.total_training_steps:
            complete = f"training complete: step {policy.step} of {job.total_training_steps}"
            self.verbose.add("engine", complete)
            self.halt(f"{complete}. {outcome.detail}" if outcome.detail else complete)
            return
        self.detail = outcome.detail
        self._roll(policy)

    def halt(self, detail: str | None) -> None:
        """To OFFLINE now; what runs is cancelled, the policy is closed in the background."""
        if self.status in ROLLING:
            self._frozen = counters(self.pool, self.job or Job())
        self._set(Status.OFFLINE)
        self.detail = detail
        self.global_step = 0
        self.pool.wipe()
        self.clients.clear()
        work, self._work = self._work, None
        if work is not None:
            work.cancel()
        self.backend.release(work)

    def _set(self, status: Status) -> None:
        if status is not Status.BOOTING:
            self.booting_since = None
        if status is not self.status:
            self.verbose.add("engine", f"{self.status} -> {status}")
        self.status = status
        self.onlookers.closed(status in (Status.ROLLING_POST, Status.WEIGHT_SYNCING))

    async def _janitor(self) -> None:
        while True:
            await asyncio.sleep(self._sweep_seconds)
            self.sweep()


def stand_still(seconds: float) -> None:
    """Block the event loop, as the real server's stop does."""
    time.sleep(seconds)
