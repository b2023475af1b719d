"""`SwarmClient`: `AsyncSwarm` for threads, on the event loop that all of them share.

A method that `_waiting` makes has the arguments, the result and the docstring of the awaited one:

    def end_episode(self, *args, **kwargs):  # end_episode = _waiting(AsyncSwarm.end_episode)
        return self._thread.run(self._swarm.end_episode(*args, **kwargs))
"""

import atexit
import logging
import weakref
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from ajet_swarm.client.asynchronous import AsyncSwarm
from ajet_swarm.client.base import PATIENCE
from ajet_swarm.client.direct import LazyHttpClient
from ajet_swarm.client.engine_control import AnyJob
from ajet_swarm.client.loop_thread import LoopThread
from ajet_swarm.runtime import SYSTEM, Runtime

if TYPE_CHECKING:
    import httpx

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
H = TypeVar("H")
V = TypeVar("V")

_OPEN: "weakref.WeakSet[SwarmClient]" = weakref.WeakSet()


def _waiting(
    method: Callable[Concatenate[AsyncSwarm, P], Coroutine[Any, Any, T]],
    undo: Callable[[AsyncSwarm, T], Coroutine[Any, Any, object]] | None = None,
) -> Callable[Concatenate["SwarmClient", P], T]:
    """Return the method of `SwarmClient` that waits for the result of one of `AsyncSwarm`.

    `undo` is called with a result that arrives after an interrupt of the waiting thread.
    """

    @wraps(method)
    def wait(self: "SwarmClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        swarm = self._swarm
        return self._thread.run(method(swarm, *args, **kwargs), undo and partial(undo, swarm))

    return wait


def _holding(
    method: Callable[Concatenate[A, P], AbstractAsyncContextManager[H]],
    view: Callable[[H, LoopThread], V],
) -> Callable[Concatenate[Any, P], AbstractContextManager[V]]:
    """Return the method of a blocking client for one of its `_swarm` that holds an episode.

    `view` returns the episode for threads.
    """

    @wraps(method)
    @contextmanager
    def hold(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[V]:
        with self._thread.entered(method(self._swarm, *args, **kwargs)) as episode:
            yield view(episode, self._thread)

    return hold


class SwarmClient:
    """A client of one swarm server, for any number of threads.

    `close`, leaving its context, and the end of the program give back all episodes that it still
    holds. SIGTERM ends Python at once, unless the script sets a handler that raises.

    Args:
        server_url: `http://host:port`; default `AJET_SWARM_URL`, or AgentJet's port on localhost.
        verbose: Accepted for compatibility with AgentJet; messages go to `logging`.
        agentjet_job: Accepted for compatibility with AgentJet; the server reports its job.
        auto_start_swarm_server: Accepted for compatibility with AgentJet; start a server with
            `ajet-console run engine`, or with AgentJet's own command.
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
        strict: bool = True,
        runtime: Runtime = SYSTEM,
    ) -> None:
        self.verbose = verbose
        if auto_start_swarm_server:
            log.warning("no server is started from here: `ajet-console run engine` starts one")
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
        self._thread.run(self._swarm.start())

    # -- episodes -------------------------------------------------------------------------------

    begin_episode = _waiting(
        AsyncSwarm.begin_episode, lambda swarm, begun: swarm.abort_episode(begun[0])
    )
    episode = _holding(AsyncSwarm.episode, lambda held, thread: held.blocking(thread.run))
    end_episode = _waiting(AsyncSwarm.end_episode)
    abort_episode = _waiting(AsyncSwarm.abort_episode)
    can_continue_episode = _waiting(AsyncSwarm.can_continue_episode)

    # -- engine ---------------------------------------------------------------------------------

    sync_train_config = _waiting(AsyncSwarm.sync_train_config)
    start_engine = _waiting(AsyncSwarm.start_engine)
    stop_engine = _waiting(AsyncSwarm.stop_engine)
    auto_sync_train_config_and_start_engine = _waiting(
        AsyncSwarm.auto_sync_train_config_and_start_engine
    )
    agree_sync_weight = _waiting(AsyncSwarm.agree_sync_weight)
    wait_until_rolling = _waiting(AsyncSwarm.wait_until_rolling)
    _wait_until_status_change_to = _waiting(AsyncSwarm._wait_until_status_change_to)
    add_entering_weight_sync_callback = _waiting(AsyncSwarm.add_entering_weight_sync_callback)

    @staticmethod
    def async_and_start_multi_engine(
        client_job_pairs: "Sequence[tuple[SwarmClient, AnyJob]]",
        force_restart: bool = False,
        *,
        timeout: float | None = None,
    ) -> None:
        """See `EngineOrders.async_and_start_multi_engine`."""
        pairs = [(client._swarm, job) for client, job in client_job_pairs]
        for client, _ in client_job_pairs[:1]:
            start = client._swarm.async_and_start_multi_engine
            client._thread.run(start(pairs, force_restart, timeout=timeout))

    # -- status of the server --------------------------------------------------------------------

    get_engine_status = _waiting(AsyncSwarm.get_engine_status)
    get_global_step = _waiting(AsyncSwarm.get_global_step)
    get_rollout_stat = _waiting(AsyncSwarm.get_rollout_stat)
    print_rollout_stat = _waiting(AsyncSwarm.print_rollout_stat)
    get_episode_buffer = _waiting(AsyncSwarm.get_episode_buffer)
    server_experiment_dir = _waiting(AsyncSwarm.server_experiment_dir)
    get_verbose_logs = _waiting(AsyncSwarm.get_verbose_logs)

    # -- end --------------------------------------------------------------------------------------

    def close(self) -> None:
        """Give back all held episodes and cancel running calls."""
        if self._thread.close(self._swarm.close):
            _OPEN.discard(self)
            if self._http is not None:
                self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@atexit.register
def _close_all() -> None:
    for client in tuple(_OPEN):
        client.close()
