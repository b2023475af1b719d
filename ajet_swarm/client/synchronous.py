"""`SwarmClient`: `AsyncSwarm` for threads, on an event loop of its own thread."""

import atexit
import logging
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ajet_swarm.api.outcomes import EndOutcome
from ajet_swarm.api.stable_offline import OFF_LIMIT
from ajet_swarm.client.asynchronous import AsyncSwarm
from ajet_swarm.client.base import PATIENCE
from ajet_swarm.client.direct import LazyHttpClient
from ajet_swarm.client.engine_control import AnyJob, check_started
from ajet_swarm.client.episode import Episode
from ajet_swarm.client.loop_thread import LoopThread
from ajet_swarm.client.termination import guard, release
from ajet_swarm.episodes.deadlines import EpisodeDeadline
from ajet_swarm.protocol.claim_models import SwarmThrottlePolicy
from ajet_swarm.protocol.schemas import EpisodeRecord, PoolInfo, VerboseLog
from ajet_swarm.protocol.task import OpenaiBaseUrlAndApiKey, Task, WorkflowOutput
from ajet_swarm.runtime import SYSTEM, Runtime

if TYPE_CHECKING:
    import httpx

log = logging.getLogger(__name__)

_OPEN: "weakref.WeakSet[SwarmClient]" = weakref.WeakSet()


class SwarmClient:
    """A client of one swarm server, for any number of threads.

    `close`, leaving its context, and the end of the program give back all episodes that it still
    holds. So does SIGTERM, if the client was created in the main thread before the script set a
    handler of its own.

    Args:
        server_url: `http://host:port`; default `AJET_SWARM_URL`, or AgentJet's port on localhost.
        verbose: Accepted for compatibility with AgentJet; messages go to `logging`.
        agentjet_job: Accepted for compatibility with AgentJet; the server reports its job.
        auto_start_swarm_server: Accepted for compatibility with AgentJet; start a server with
            `ajet-console engine`, or with AgentJet's own command.
        name, client_uuid, lifetime, patience, strict, runtime: As of `AsyncSwarm`.
    """

    _http_client = LazyHttpClient()
    """An `httpx.Client` for scripts that call the server directly, as in AgentJet's client."""

    def __init__(
        self,
        server_url: str | None = None,
        verbose: bool = True,
        agentjet_job: AnyJob | None = None,
        auto_start_swarm_server: bool = False,
        *,
        name: str = "",
        client_uuid: str = "",
        lifetime: float = 2.0,
        patience: float | None = PATIENCE,
        strict: bool = False,
        runtime: Runtime = SYSTEM,
    ) -> None:
        self.verbose = verbose
        if auto_start_swarm_server:
            log.warning("no server is started from here: `ajet-console engine` starts one")
        self._swarm = AsyncSwarm(
            server_url,
            name=name,
            client_uuid=client_uuid,
            lifetime=lifetime,
            patience=patience,
            strict=strict,
            runtime=runtime,
        )
        self.server_url = self._swarm.server_url
        self.client_uuid = self._swarm.client_uuid
        self.name = self._swarm.name
        self._thread = LoopThread(self.name)
        self._http: httpx.Client | None = None
        _OPEN.add(self)
        guard(_closers)
        self._thread.run(self._swarm.start())

    # -- episodes -------------------------------------------------------------------------------

    def begin_episode(
        self,
        discard_episode_timeout: float = 240,
        episode_type: str = "train",
        throttle_policy: SwarmThrottlePolicy | None = None,
        *,
        timeout: float | None = None,
        lifetime: float | None = None,
    ) -> tuple[str, OpenaiBaseUrlAndApiKey]:
        """See `AsyncSwarm.begin_episode`."""
        return self._thread.run(
            self._swarm.begin_episode(
                discard_episode_timeout,
                episode_type,
                throttle_policy,
                timeout=timeout,
                lifetime=lifetime,
            ),
            undo=lambda begun: self._swarm.abort_episode(begun[0]),
        )

    def end_episode(
        self,
        task: Task | str,
        episode_uuid: str,
        workflow_output: WorkflowOutput,
        declare_client_active: bool = True,
    ) -> EndOutcome:
        """See `AsyncSwarm.end_episode`."""
        return self._thread.run(
            self._swarm.end_episode(task, episode_uuid, workflow_output, declare_client_active)
        )

    def abort_episode(self, episode_uuid: str, declare_client_active: bool = False) -> bool:
        """See `AsyncSwarm.abort_episode`."""
        return self._thread.run(self._swarm.abort_episode(episode_uuid, declare_client_active))

    def can_continue_episode(self, episode_uuid: str) -> bool:
        """See `AsyncSwarm.can_continue_episode`."""
        return self._thread.run(self._swarm.can_continue_episode(episode_uuid))

    @contextmanager
    def episode(
        self,
        task: Task | str,
        discard_episode_timeout: float = 240,
        episode_type: str = "train",
        throttle_policy: SwarmThrottlePolicy | None = None,
        *,
        timeout: float | None = None,
        lifetime: float | None = None,
    ) -> Iterator[Episode]:
        """See `AsyncSwarm.episode`: `with client.episode(task) as e: ...; e.end(reward)`."""
        uuid, api, times = self._thread.run(
            self._swarm._claim_episode(
                discard_episode_timeout, episode_type, throttle_policy, timeout, lifetime
            ),
            undo=lambda begun: self._swarm._abort_claim(begun[0], begun[2]),
        )
        episode = Episode(_ClaimEnder(self, times), task, uuid, api)
        try:
            yield episode
        finally:
            if episode.outcome is None:
                self._thread.run(self._swarm._abort_claim(uuid, times))

    # -- engine ---------------------------------------------------------------------------------

    def sync_train_config(self, agentjet_job: AnyJob) -> None:
        """See `EngineOrders.sync_train_config`."""
        self._thread.run(self._swarm.sync_train_config(agentjet_job))

    def start_engine(self, *, timeout: float | None = None) -> None:
        """See `EngineOrders.start_engine`."""
        self._thread.run(self._swarm.start_engine(timeout=timeout))

    def stop_engine(self, *, timeout: float | None = OFF_LIMIT) -> None:
        """See `EngineOrders.stop_engine`."""
        self._thread.run(self._swarm.stop_engine(timeout=timeout))

    def auto_sync_train_config_and_start_engine(
        self, agentjet_job: AnyJob, force_restart: bool = False, *, timeout: float | None = None
    ) -> None:
        """See `EngineOrders.auto_sync_train_config_and_start_engine`."""
        self._thread.run(
            self._swarm.auto_sync_train_config_and_start_engine(
                agentjet_job, force_restart, timeout=timeout
            )
        )

    @staticmethod
    def async_and_start_multi_engine(
        client_job_pairs: "Sequence[tuple[SwarmClient, AnyJob]]",
        force_restart: bool = False,
        *,
        timeout: float | None = None,
    ) -> None:
        """Make several engines roll, in parallel. See `start_engines`."""
        futures = [
            client._thread.submit(
                client._swarm.auto_sync_train_config_and_start_engine(
                    job, force_restart, timeout=timeout
                )
            )
            for client, job in client_job_pairs
        ]
        errors = [future.exception() for future in futures]
        check_started([client.name for client, _ in client_job_pairs], errors)

    def agree_sync_weight(self, *, timeout: float | None = None) -> bool:
        """See `EngineOrders.agree_sync_weight`."""
        return self._thread.run(self._swarm.agree_sync_weight(timeout=timeout))

    def wait_until_rolling(self, *, timeout: float | None = None) -> int:
        """See `EngineOrders.wait_until_rolling`."""
        return self._thread.run(self._swarm.wait_until_rolling(timeout=timeout))

    def _wait_until_status_change_to(
        self,
        desired_status: str | None = None,
        desired_status_list: Sequence[str] | None = None,
        verbose: bool = True,
        timeout: float | None = None,
    ) -> None:
        """See `EngineOrders._wait_until_status_change_to`."""
        self._thread.run(
            self._swarm._wait_until_status_change_to(
                desired_status, desired_status_list, verbose, timeout
            )
        )

    def add_entering_weight_sync_callback(self, callback: Callable[[], object]) -> None:
        """See `SwarmBase.add_entering_weight_sync_callback`."""
        self._thread.run(self._swarm.add_entering_weight_sync_callback(callback))

    # -- status of the server --------------------------------------------------------------------

    def get_engine_status(self) -> tuple[str, dict[str, Any]]:
        """See `SwarmBase.get_engine_status`."""
        return self._thread.run(self._swarm.get_engine_status())

    def get_global_step(self) -> int:
        """See `SwarmBase.get_global_step`."""
        return self._thread.run(self._swarm.get_global_step())

    def get_rollout_stat(self) -> PoolInfo:
        """See `SwarmBase.get_rollout_stat`."""
        return self._thread.run(self._swarm.get_rollout_stat())

    def print_rollout_stat(self) -> None:
        """See `SwarmBase.print_rollout_stat`."""
        self._thread.run(self._swarm.print_rollout_stat())

    def get_episode_buffer(self) -> list[EpisodeRecord]:
        """See `SwarmBase.get_episode_buffer`."""
        return self._thread.run(self._swarm.get_episode_buffer())

    def server_experiment_dir(self) -> str | None:
        """See `SwarmBase.server_experiment_dir`."""
        return self._thread.run(self._swarm.server_experiment_dir())

    def get_verbose_logs(self) -> list[VerboseLog]:
        """See `SwarmBase.get_verbose_logs`."""
        return self._thread.run(self._swarm.get_verbose_logs())

    # -- end --------------------------------------------------------------------------------------

    def close(self) -> None:
        """Give back all held episodes, cancel running calls and end the thread."""
        if self._thread.close(self._swarm.close):
            _OPEN.discard(self)
            if self._http is not None:
                self._http.close()
            if not _OPEN:
                release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _ClaimEnder:
    """Client of an `Episode` that ends the episode of one claim only."""

    def __init__(self, client: SwarmClient, times: EpisodeDeadline) -> None:
        self._client = client
        self._times = times

    def end_episode(
        self, task: Task | str, episode_uuid: str, workflow_output: WorkflowOutput
    ) -> EndOutcome:
        """See `SwarmClient.end_episode`."""
        swarm = self._client._swarm
        return self._client._thread.run(
            swarm._end_claim(task, episode_uuid, self._times, workflow_output)
        )


def _closers() -> list[Callable[[], None]]:
    return [client.close for client in tuple(_OPEN)]


@atexit.register
def _close_all() -> None:
    for close in _closers():
        close()
