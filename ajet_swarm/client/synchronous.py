"""`SwarmClient`: `AsyncSwarm` for threads, on the event loop that all of them share.

A method that `_waiting` makes has the arguments, the result and the docstring of the awaited one:

    def end_episode(self, *args, **kwargs):  # end_episode = _waiting(AsyncSwarm.end_episode)
        return self._thread.run(self._swarm.end_episode(*args, **kwargs))

Ctrl-C and SIGTERM always end a wait. Python runs signal handlers in the main thread, and a signal
just before that thread blocks on a lock does not wake it, so the waits wake up periodically.
"""

import asyncio
import atexit
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

import msgspec

from ajet_swarm.api.wire import CLAIM
from ajet_swarm.client.asynchronous import AsyncSwarm
from ajet_swarm.client.engine_control import AnyJob
from ajet_swarm.client.link import PATIENCE
from ajet_swarm.protocol.errors import SwarmError, WrongUse
from ajet_swarm.protocol.models import ClaimEpisodeRequest
from ajet_swarm.protocol.schemas import ClaimAnswer
from ajet_swarm.runtime import SYSTEM, Runtime

if TYPE_CHECKING:
    import httpx

log = logging.getLogger(__name__)


T = TypeVar("T")


# --- waits ----------------------------------------------------------------------------------------

BEAT = 0.5
"""Seconds between two wake-ups: the longest delay of a signal handler."""


def join(threads: Iterable[threading.Thread]) -> None:
    """Wait until all threads have ended."""
    for thread in threads:
        while thread.is_alive():
            thread.join(BEAT)


def acquire(room: threading.Semaphore) -> None:
    """Acquire a semaphore."""
    while not room.acquire(timeout=BEAT):
        pass


def result(future: "Future[T]") -> T:
    """Return `future.result()`.

    Raises:
        CancelledError: the future was cancelled.
        BaseException: the exception of the future.
    """
    while True:
        try:
            return future.result(BEAT)
        except TimeoutError:
            if future.done():  # the TimeoutError is the exception of the future itself
                return future.result()


# --- the event loop -------------------------------------------------------------------------------

CLOSE = 8.0
"""Seconds to wait for the end of a client."""


_LOOPS: dict[int, tuple[asyncio.AbstractEventLoop, threading.Thread]] = {}
"""The loop of this process by its id; after a fork the child makes its own."""
_STARTING = threading.Lock()


class LoopThread:
    """The calls of one blocking client, on the loop that all clients of the process share.

    Args:
        name: Name of the client, for errors.

    Attributes:
        closing: Lock under which the client is marked as closed; hold it to keep it open.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.closing = threading.Lock()
        self._closed = False
        self._calls: set[Future[Any]] = set()
        self._pid = os.getpid()
        with _STARTING:
            if self._pid not in _LOOPS:
                loop = asyncio.new_event_loop()
                thread = threading.Thread(target=loop.run_forever, name="swarm", daemon=True)
                thread.start()
                _LOOPS[self._pid] = loop, thread
            self._loop, self._thread = _LOOPS[self._pid]

    def run(
        self,
        work: Coroutine[Any, Any, T],
        undo: Callable[[T], Coroutine[Any, Any, object]] | None = None,
    ) -> T:
        """Run a coroutine and wait for its result.

        Args:
            work: The coroutine.
            undo: Called with the result if the waiting thread was interrupted too late to cancel
                `work`; its coroutine runs in the background.

        Raises:
            WrongUse: the thread cannot run it.
            SwarmError: the client was closed during the wait.
        """
        future = self._submit(work)
        try:
            return result(future)
        except CancelledError:
            raise SwarmError("this client was closed meanwhile", self.name) from None
        except BaseException:
            if not future.cancel() and undo is not None and not future.exception():
                self._submit(undo(future.result()))
            raise

    @contextmanager
    def entered(self, context: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Enter a context on the thread; leave it there, unless the client was closed.

        Raises:
            WrongUse, SwarmError: as of `run`.
        """

        async def leave(_: object = None) -> None:
            await context.__aexit__(None, None, None)

        async def enter() -> T:
            return await context.__aenter__()

        value = self.run(enter(), undo=leave)
        try:
            yield value
        finally:
            if not self._closed:
                self.run(leave())

    def _submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        try:
            self.check_usable()
        except WrongUse:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._calls.add(future)
        future.add_done_callback(self._calls.discard)
        return future

    def check_usable(self) -> None:
        """Check that the calling thread may run coroutines here.

        Raises:
            WrongUse: the client is closed, or of another process, or this is the loop's thread.
        """
        why = ""
        if self._closed:
            why = "is closed"
        elif self._pid != os.getpid():
            why = "was made in another process, before a fork"
        elif threading.current_thread() is self._thread:
            why = "cannot wait for itself"
        if why:
            raise WrongUse(f"this client {why}", self.name, "Make a new one, or use AsyncSwarm")

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Run `last`, then cancel the client's calls.

        Returns:
            False if the client was already closed, or belongs to another process.
        """
        with self.closing:
            if self._closed:
                return False
            self._closed = True
        if self._pid != os.getpid():
            return False  # the thread runs only in the process that created it
        try:
            asyncio.run_coroutine_threadsafe(last(), self._loop).result(CLOSE)
        except TimeoutError:
            pass
        finally:
            for call in tuple(self._calls):
                call.cancel()
        return True


# --- plain HTTP, for scripts that claim episodes themselves ---------------------------------------

TIMEOUT = 30.0
"""Timeout of a request in seconds, as in AgentJet's client."""


def _http_client(client: "SwarmClient") -> "httpx.Client":
    import httpx  # the import takes 0.1 s, and few scripts need it

    def remember(response: httpx.Response) -> None:
        request = response.request
        if request.method != "POST" or not request.url.path.endswith(CLAIM.path):
            return
        response.read()
        try:
            claim = ClaimEpisodeRequest.model_validate_json(request.content)
            answer = msgspec.json.decode(response.content, type=ClaimAnswer)
        except (SwarmError, msgspec.MsgspecError, UnicodeDecodeError):
            return
        if answer.success and answer.episode_uuid and claim.client_uuid == client.client_uuid:
            idle, kind = claim.discard_episode_timeout, claim.episode_type
            client._thread.run(client._swarm._remember(answer.episode_uuid, idle, kind))

    return httpx.Client(
        timeout=TIMEOUT,
        limits=httpx.Limits(max_keepalive_connections=20),  # does not limit concurrent requests
        trust_env=False,
        event_hooks={"response": [remember]},
    )


# --- the client -----------------------------------------------------------------------------------

P = ParamSpec("P")
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
        """See `AsyncSwarm.async_and_start_multi_engine`."""
        pairs = [(client._swarm, job) for client, job in client_job_pairs]
        for client, _ in client_job_pairs[:1]:
            start = client._swarm.async_and_start_multi_engine
            client._thread.run(start(pairs, force_restart, timeout=timeout))

    @property
    def _http_client(self) -> "httpx.Client":
        """An `httpx.Client` for scripts that call the server directly, as in AgentJet's client.

        Any number of threads may use it. An episode that a script claims with it, under this
        client's uuid, can be ended and aborted like any other.

        Raises:
            WrongUse: this client is closed, or was created in another process.
        """
        with self._thread.closing:
            self._thread.check_usable()
            self._http = self._http or _http_client(self)
            return self._http

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
