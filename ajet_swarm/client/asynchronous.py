"""`AsyncSwarm`, the asyncio client of one swarm server; `SwarmClient` runs it on a thread."""

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from ajet_swarm.api.watcher import ServerStatus, Watcher
from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.client.engine_control import AnyJob, EngineOrders
from ajet_swarm.client.episode import ACCEPTED, LATE, AsyncEpisode, check_claim, wire_output
from ajet_swarm.client.link import PATIENCE, Link
from ajet_swarm.client.throttle import Throttle
from ajet_swarm.client.training import UpdateCalls
from ajet_swarm.episodes.claim import EpisodeClaimer
from ajet_swarm.episodes.holdings import Holding
from ajet_swarm.http.interface import Transport
from ajet_swarm.protocol.errors import EpisodeLost, GaveUp, SwarmError, WrongUse
from ajet_swarm.protocol.models import (
    OpenaiBaseUrlAndApiKey,
    SwarmThrottlePolicy,
    Task,
    WorkflowOutput,
)
from ajet_swarm.protocol.schemas import (
    Claimed,
    EndOutcome,
    EpisodeRecord,
    PoolInfo,
    VerboseLog,
)
from ajet_swarm.runtime import SYSTEM, Runtime

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_URL: Final = "http://localhost:10086"
NONE_FREE = (0.1, 0.5)
"""Seconds between two claims while no episode is free, drawn at random each time."""
THROTTLED = (0.3, 0.6)
"""Seconds before a throttled task checks the batch again."""
POOL_FRESH = 0.1
"""Seconds for which one reading of the batch is used for all throttled tasks."""


def _part(
    name: str, method: Callable[Concatenate[Any, P], T]
) -> Callable[Concatenate["AsyncSwarm", P], T]:
    """Return the method of `AsyncSwarm` that is one of its part `name`."""

    @wraps(method)
    def call(self: "AsyncSwarm", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(getattr(self, name), *args, **kwargs)

    return call


class AsyncSwarm:
    """Asyncio client of one swarm server; use it from one event loop only.

    The first call starts it. `close`, or leaving its context, gives back all episodes that it still
    holds.

    Args:
        server_url: `http://host:port`; default `AJET_SWARM_URL`, or AgentJet's port on localhost.
        name: Name of the server in messages; default its address.
        client_uuid: Identity of this client; default a new one. Two clients must not use the same
            one at the same time: each would give back the episodes of the other.
        lifetime: Lifetime of an episode in idle timeouts; after it, an end becomes an abort.
        patience: Seconds to wait for an engine that is OFFLINE, or for a server that was never
            reached; None waits without limit.
        strict: Raise `EpisodeLost` also for an end that is too late for its batch; False only logs
            a warning, as AgentJet's client does.
        runtime: Source of times, ids and pauses.
        transport: Sends the requests, and is closed by its owner; None for the network.
    """

    def __init__(
        self,
        server_url: str | None = None,
        *,
        name: str = "",
        client_uuid: str = "",
        lifetime: float = 2.0,
        patience: float | None = PATIENCE,
        strict: bool = True,
        runtime: Runtime = SYSTEM,
        transport: Transport | None = None,
    ) -> None:
        if not lifetime > 0:
            raise WrongUse(f"a lifetime of {lifetime} idle timeouts", "SwarmClient")
        from ajet_swarm.http.transport import HttpTransport  # aiohttp takes long to import

        self._network = HttpTransport()
        url = server_url or os.environ.get("AJET_SWARM_URL") or DEFAULT_URL
        uuid = client_uuid or runtime.chance.uuid()
        self.wire = SwarmWire(url, transport or self._network, uuid, name=name, runtime=runtime)
        """Single requests to the same server, without waiting for its engine."""
        self.server_url, self.client_uuid, self.name = self.wire.url, uuid, self.wire.name
        self.lifetime = lifetime
        self.strict = strict
        self._link = Link(self.wire, patience, runtime)
        self._engine = EngineOrders(self._link)
        self._claimer = EpisodeClaimer(
            self.wire, self._link.watched, back_off=NONE_FREE, runtime=runtime
        )
        self._ends = self._claimer.ends
        self._throttle = Throttle(uuid, runtime.clock.monotonic)
        self._throttling = asyncio.Lock()
        self._pool: tuple[float, PoolInfo] | None = None

    # -- start and end --------------------------------------------------------------------------

    @property
    def watcher(self) -> Watcher:
        """The status watcher of the server."""
        return self._link.watcher

    async def start(self) -> None:
        """Start to poll the server; every other method does this first.

        Raises:
            WrongUse: the client is closed, or was started in another event loop.
        """
        self._link.start()

    async def close(self, seconds: float = 5.0) -> None:
        """Give back all held episodes, then stop; takes about `seconds` at most.

        Raises:
            WrongUse: the client was started in another event loop.
        """
        link, ends = self._link, self._ends
        if link.closed:
            return
        link.check_loop()
        link.closed = True
        if link.started:
            with contextlib.suppress(TimeoutError, SwarmError):
                async with asyncio.timeout(seconds):
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(seconds / 4):
                            await self._claimer.refuse_claims()
                    await ends.sending.drain(seconds / 2)
                    reachable = link.watched.current.reachable
                    if ends.holdings.ever_claimed and (ends.holdings.by_uuid or reachable):
                        ends.holdings.forget_all()
                        await ends.reconcile()
            await self._claimer.close(min(seconds, 1.0))
            await link.tasks.close()
        await self._network.close()

    async def __aenter__(self) -> Self:
        self._link.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- begin ----------------------------------------------------------------------------------

    async def begin_episode(
        self,
        discard_episode_timeout: float = 240,
        episode_type: str = "train",
        throttle_policy: SwarmThrottlePolicy | None = None,
        *,
        timeout: float | None = None,
        lifetime: float | None = None,
    ) -> tuple[str, OpenaiBaseUrlAndApiKey]:
        """Claim an episode; wait for the engine to roll and for an episode to be free.

        Args:
            discard_episode_timeout: Seconds without a call after which the server takes the episode
                back.
            episode_type: `train`, or `eval` for an episode that is not trained on.
            throttle_policy: This client's share of the batch.
            timeout: Seconds before giving up; None waits with the client's patience.
            lifetime: Seconds after which an end becomes an abort; default the client's `lifetime`
                times `discard_episode_timeout`.

        Returns:
            The episode's uuid, and the address and key of its model.

        Raises:
            GaveUp: no episode was free within `timeout` seconds; none is held.
            TrainingFinished: the engine is OFFLINE because training is complete.
            EngineOff: the engine stayed OFFLINE beyond the client's patience.
            Unreachable: the server was never reached.
        """
        api, _ = await self._claim_episode(
            discard_episode_timeout, episode_type, throttle_policy, timeout, lifetime
        )
        return api.episode_uuid, api

    async def _claim_episode(
        self,
        idle: float,
        kind: str,
        policy: SwarmThrottlePolicy | None,
        timeout: float | None,
        lifetime: float | None,
    ) -> tuple[OpenaiBaseUrlAndApiKey, Holding]:
        """Claim an episode, see `begin_episode`; return its holding, too."""
        check_claim(idle, kind, policy, timeout, lifetime)
        link, claimer = self._link, self._claimer
        limit = policy if kind == "train" else None
        since, why, claimed = link.clock.wall(), "", None

        async def until_rolling() -> None:
            nonlocal since
            since = max(since, (await link.until_rolling(since)).seen_at)

        try:
            async with asyncio.timeout(timeout):
                await until_rolling()
                while limit is not None and (why := await self._why_throttled(limit)):
                    await asyncio.sleep(link.chance.uniform(*THROTTLED))
                    await until_rolling()
                try:
                    (claimed,) = await claimer.claim_group(
                        1,
                        episode_type=kind,
                        discard_timeout=float(idle),
                        policy=policy.wire if policy is not None else None,
                        until_rolling=until_rolling,
                    )
                finally:
                    if limit is not None:
                        self._throttle.end(limit, claimed=claimed is not None)
        except TimeoutError:
            if not why and (refusal := claimer.refusal) is not None:
                why = refusal.text or refusal.kind.value
            refusal_text = f"; last refusal: {why}" if why else ""
            raise link.gave_up("an episode", timeout, refusal_text) from None
        uuid, holdings = claimed.episode_uuid, self._ends.holdings
        if (holding := holdings.by_uuid.get(uuid)) is None:  # given back by `close`
            raise SwarmError("this client was closed meanwhile", self.name)
        holding.lifetime = idle * self.lifetime if lifetime is None else lifetime
        holdings.forget_expired()
        return OpenaiBaseUrlAndApiKey(claimed.base_url, claimed.api_key, uuid), holding

    async def _why_throttled(self, policy: SwarmThrottlePolicy) -> str:
        """Return why a task has to wait; empty if its claim is admitted to the batch."""
        async with self._throttling:
            now = self._link.clock.monotonic()
            if self._pool is None or now - self._pool[0] > POOL_FRESH:
                self._pool = (now, await self.get_rollout_stat())
            read_at, pool = self._pool
            if pool.is_default:  # the reading failed
                return "the server reports nothing about its batch"
            admitted = self._throttle.admit(policy, pool, read_at)
            return "" if admitted else "throttled by its policy"

    # -- end ------------------------------------------------------------------------------------

    async def end_episode(
        self,
        task: Task | str,
        episode_uuid: str,
        workflow_output: WorkflowOutput,
        declare_client_active: bool = True,
    ) -> EndOutcome:
        """Send an episode's reward; send it again only if the same claim still holds the episode.

        An episode whose lifetime has passed is given back instead. The end of an eval episode is
        never sent again after it may have arrived.

        Args:
            task: The task, or its id, which names the GRPO group.
            episode_uuid: The episode.
            workflow_output: Its reward, one finite number.
            declare_client_active: Count this client among those that agree on updates.

        Returns:
            The outcome. Only `ENDED` means that the reward counts. With `strict` the only other
            outcome is `UNKNOWN_OUTCOME`: no response, but the end was most likely accepted.

        Raises:
            EpisodeLost: the server no longer holds the episode, or refused its end; the episode is
                not claimed any more.
            WrongUse: the reward or the task cannot be sent; the episode was given back.
        """
        holding = self._holding(episode_uuid)
        return await self._end_claim(task, holding, workflow_output, declare_client_active)

    def _holding(self, uuid: str) -> Holding:
        """Return the holding of an episode; for an unknown one, one whose time is over."""
        return self._ends.holdings.by_uuid.get(uuid) or Holding(uuid, idle=0.0, lifetime=0.0)

    async def _end_claim(
        self, task: Task | str, holding: Holding, output: WorkflowOutput, active: bool = True
    ) -> EndOutcome:
        """End the episode of one claim, see `EpisodeEnds.end`."""
        self._link.start()
        uuid = holding.uuid
        if holding.left_by and self._ends.holdings.by_uuid.get(uuid) is holding:
            raise SwarmError("this episode is already being ended", uuid)
        try:
            task_id, wire = wire_output(task, uuid, output)
            outcome = await self._ends.end(holding, task_id, wire, active=active)
        except Exception as error:  # give the episode back after any error
            await self._ends.abort([holding], "it could not be ended")
            if isinstance(error, SwarmError):
                raise
            text = f"it could not be ended: {type(error).__name__}: {error}"
            raise SwarmError(text, f"episode {uuid}", "It was given back") from error
        late = outcome.kind in LATE and not self.strict
        if outcome.kind not in ACCEPTED and not late:
            raise EpisodeLost(outcome.kind.value, outcome.text, uuid)
        if not outcome.ended:
            log.warning("episode %s: %s: %s", uuid, outcome.kind.value, outcome.text)
        return outcome

    async def abort_episode(self, episode_uuid: str, declare_client_active: bool = False) -> bool:
        """Give an episode back without a reward; never raises for a fault of the server.

        Returns:
            False when this client no longer holds the episode, or is already ending it.
        """
        self._link.start()
        holding = self._holding(episode_uuid)
        return bool(await self._ends.abort([holding], "aborted", active=declare_client_active))

    async def can_continue_episode(self, episode_uuid: str) -> bool:
        """Return whether the client holds the episode and the engine rolls; False if unknown."""
        wire = self._link.wire
        if self._ends.holdings.is_expired(self._holding(episode_uuid)):
            return False
        return bool(await wire.can_continue(episode_uuid))

    @asynccontextmanager
    async def episode(
        self,
        task: Task | str,
        discard_episode_timeout: float = 240,
        episode_type: str = "train",
        throttle_policy: SwarmThrottlePolicy | None = None,
        *,
        timeout: float | None = None,
        lifetime: float | None = None,
    ) -> AsyncIterator[AsyncEpisode]:
        """Context of one episode, which is aborted if the context is left without an end.

        Its end and its abort are refused here if the server took the episode back and granted the
        same uuid to another task of this client.

        Arguments and errors are those of `begin_episode`.
        """
        api, holding = await self._claim_episode(
            discard_episode_timeout, episode_type, throttle_policy, timeout, lifetime
        )
        episode = AsyncEpisode(
            task, api.episode_uuid, api, lambda task, output: self._end_claim(task, holding, output)
        )
        try:
            yield episode
        finally:
            if episode.outcome is None and not self._link.closed:
                await self._ends.abort([holding], "aborted")

    async def _remember(self, uuid: str, idle: float, kind: str) -> None:
        """Add an episode that was claimed for this client without `begin_episode`."""
        claimed = Claimed(uuid, "", "", kind, self._link.clock.wall(), idle)
        self._ends.holdings.granted(claimed).lifetime = idle * self.lifetime

    # -- engine ---------------------------------------------------------------------------------

    sync_train_config = _part("_engine", EngineOrders.sync_train_config)
    start_engine = _part("_engine", EngineOrders.start_engine)
    stop_engine = _part("_engine", EngineOrders.stop_engine)
    auto_sync_train_config_and_start_engine = _part(
        "_engine", EngineOrders.auto_sync_train_config_and_start_engine
    )
    agree_sync_weight = _part("_engine", EngineOrders.agree_sync_weight)
    wait_until_rolling = _part("_engine", EngineOrders.wait_until_rolling)
    _wait_until_status_change_to = _part("_engine", EngineOrders._wait_until_status_change_to)

    @staticmethod
    async def async_and_start_multi_engine(
        client_job_pairs: "Sequence[tuple[AsyncSwarm, AnyJob]]",
        force_restart: bool = False,
        *,
        timeout: float | None = None,
    ) -> None:
        """Make several engines roll, in parallel.

        Args:
            client_job_pairs: Each server's client, and its job.
            force_restart: Stop running engines first, also when other clients use them.
            timeout: Seconds in total; None waits without limit.

        Raises:
            SwarmError: some engines failed; the text names them and the reasons. The others roll.
            GaveUp: some engines did not roll in time, and none failed for another reason.
        """
        done = await asyncio.gather(
            *(
                client.auto_sync_train_config_and_start_engine(job, force_restart, timeout=timeout)
                for client, job in client_job_pairs
            ),
            return_exceptions=True,
        )
        failed = []
        for (client, _), error in zip(client_job_pairs, done, strict=True):
            if isinstance(error, BaseException) and not isinstance(error, Exception):
                raise error
            if error is not None:  # most error texts already begin with the server's name
                text = str(error).removeprefix(f"{client.name}: ")
                failed.append((f"{client.name}: {text}", isinstance(error, GaveUp)))
        if failed:
            kind = GaveUp if all(late for _, late in failed) else SwarmError
            reasons = "; ".join(text for text, _ in failed)
            raise kind(f"{len(failed)} of {len(done)} engines did not start: {reasons}")

    # -- status of the server -------------------------------------------------------------------

    get_engine_status = _part("_link", Link.get_engine_status)
    get_rollout_stat = _part("_link", Link.get_rollout_stat)

    async def get_global_step(self) -> int:
        """Return the number of policy updates that have begun; 0 while it is unknown."""
        return (await self.get_engine_status())[1].get("global_step") or 0

    async def get_episode_buffer(self) -> list[EpisodeRecord]:
        """Return all live episodes of all clients.

        Raises:
            SwarmError: no usable response.
        """
        return await self._link.wire.buffer()

    async def server_experiment_dir(self) -> str | None:
        """Return the folder in which the server writes its run.

        Raises:
            SwarmError: no usable response.
        """
        return await self._link.wire.experiment_dir()

    async def get_verbose_logs(self) -> list[VerboseLog]:
        """Return the server's latest log lines.

        Raises:
            SwarmError: no usable response.
        """
        return await self._link.wire.verbose_logs()

    async def print_rollout_stat(self) -> None:
        """Write the progress of the batch to standard output, on one line."""
        sys.stdout.write(rollout_line(await self.get_rollout_stat()) + "\n")

    def add_listener(self, listener: Callable[[ServerStatus], None]) -> Callable[[], None]:
        """Call `listener` with each changed status of the server; return its remover."""
        return self.watcher.add_listener(listener)

    async def add_entering_weight_sync_callback(self, callback: Callable[[], object]) -> None:
        """Call `callback` once for each policy update, in order, on a separate thread.

        The call is made when the engine begins to update its weights. An update that ends between
        two polls is detected by the global step, and `callback` is called for it afterwards.
        """
        link = self._link
        calls = UpdateCalls(callback, link.completion.ended, link.watcher.current, link.tasks)
        link.watcher.add_listener(calls.note)


def rollout_line(pool: PoolInfo) -> str:
    """Return the progress of a batch on one line."""
    if pool.is_default:
        return "the server reports nothing about its batch"
    repeats = [len(done) for done in (pool.completed_tasks_details or {}).values()]
    mean = sum(repeats) / len(repeats) if repeats else 0.0
    return (
        f"step {pool.global_step}: tasks {pool.completed_tasks}/{pool.completed_task_target}, "
        f"episodes {pool.completed_episodes}/{pool.completed_episode_target}, "
        f"{mean:.2f}/{pool.repeat} a task, {len(pool.running_episode_details or {})} running, "
        f"{pool.completed_non_dummy_tasks} tasks with unequal rewards"
    )
