"""Periodic poll of one server's status; all waits for a state of its engine use it.

The watcher polls slowly in general, and fast near a batch boundary or while a caller waits. The
last status of an unreachable server is kept and marked as such.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.common.tasks import keep_running
from ajet_swarm.protocol.errors import SwarmError, TimedOut, Unreachable
from ajet_swarm.protocol.schemas import EngineState, EngineStatus, PoolInfo
from ajet_swarm.runtime import SYSTEM

T = TypeVar("T")

log = logging.getLogger(__name__)

NORMAL = 0.5
"""Seconds between polls while no change is expected, or of an unreachable server."""
FAST = 0.1
"""Seconds between polls near a boundary, or while a caller waits."""
POOL = 1.0
"""Seconds between readings of the pool while the engine rolls."""
POLL_TIMEOUT = 3.0
"""Seconds a poll may take: a server that starts or stops an engine is frozen for seconds."""
LOST_AFTER = 2
"""Failed polls in a row before a server counts as unreachable."""
GONE_FOR = 10.0
"""Seconds after which a server that accepts no connections is not expected back soon.

A restart takes less. The seconds count from the first failed poll, since this process itself may
have been suspended before that.
"""
FROZEN_FOR = 25.0
"""Seconds after which a frozen server counts as silent; a stop freezes it for up to 19 s."""

_BOUNDARY = frozenset({EngineState.BOOTING, EngineState.ROLLING_POST, EngineState.WEIGHT_SYNCING})


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """The status of a server. Times are Unix seconds."""

    state: EngineState = EngineState.CANNOT_CONNECT
    """The last state reported; CANNOT_CONNECT before the first one. See `display_state`."""
    raw: str = ""
    """The state as the server wrote it."""
    detail: str = ""
    step: int | None = None
    since: float = 0.0
    """Time at which this state was first observed."""
    seen_at: float = 0.0
    """Time of the last response; 0 if the server never responded."""
    reachable: bool = False
    error: str = "not asked yet"
    """Reason why the last poll failed; empty if it succeeded."""
    trouble: str = ""
    """Kind of fault, a key of `TROUBLES`; empty when there is none."""
    down: bool = True
    """The server is unreachable and not expected back soon, or was never reached."""

    @property
    def display_state(self) -> EngineState:
        """The state to display: CANNOT_CONNECT when the server is unreachable."""
        return self.state if self.reachable else EngineState.CANNOT_CONNECT

    @property
    def gone(self) -> bool:
        """Whether the server accepts no connections and is not expected back soon."""
        return self.down and self.trouble == "gone"

    def is_in(self, states: Collection[EngineState]) -> bool:
        """Return whether the server is reachable and in one of `states`."""
        return self.reachable and self.state in states


TROUBLES = {
    "gone": "accepts no connections",
    "frozen": "accepts connections and does not respond, as during a start or stop of an engine",
    "silent": "accepts connections and does not respond",
    "unrecognized": "its responses are not those of a swarm server",
    "faulty": "its status cannot be read because of a fault in this program",
    "stopped by another client": "stopped by someone else, or its trainer ended",
    "restarted": "restarted: its episodes are lost",
}
"""Kind of fault -> its description."""

_WENT_DOWN = ("stopped by another client", "restarted")

Predicate = Callable[[ServerStatus], bool]


class Watcher:
    """Poller of one server, active while `run` runs.

    Args:
        client: The server.
        clock: Returns Unix seconds.
        poll_timeout: Seconds one poll may take.
        fails_waits: Raise an unexpected exception of a poll in all waits, too. Without it they go
            on as those for an unreachable server.
    """

    def __init__(
        self,
        client: SwarmWire,
        clock: Callable[[], float] = SYSTEM.clock.wall,
        *,
        poll_timeout: float = POLL_TIMEOUT,
        fails_waits: bool = False,
    ) -> None:
        self.client = client
        self.clock = clock
        self.poll_timeout = poll_timeout
        self.fails_waits = fails_waits
        self.current = ServerStatus()
        self.pool: PoolInfo | None = None
        """The last successful reading; see `PoolInfo.stale`."""
        self.pool_at = 0.0
        self.off_at = -math.inf
        """Time on the loop's clock at which the engine went OFFLINE, or posted another status while
        OFFLINE: its trainer may still send messages. One that was OFFLINE at the first reading has
        ended long ago."""
        self._failures = 0
        self._missed_at = 0.0
        """Time of the first failure in a row, on the loop's monotonic clock."""
        self._eager = 0
        self._polls = 0
        self._polling = 0
        self._awake = asyncio.Event()
        self._listeners: dict[object, Callable[[ServerStatus], None]] = {}
        self._pool_listeners: dict[object, Callable[[PoolInfo], None]] = {}
        self._waiters: dict[asyncio.Future[ServerStatus], Predicate] = {}

    @property
    def period(self) -> float:
        """Seconds until the next poll."""
        lost = self._failures >= LOST_AFTER
        near = self._eager or self._failures or self.current.state in _BOUNDARY
        return FAST if near and not lost else NORMAL

    def add_listener(self, listener: Callable[[ServerStatus], None]) -> Callable[[], None]:
        """Call `listener` with every changed status, in the loop's thread; return its remover.

        A later `seen_at` alone is not a change.
        """
        return _added(self._listeners, listener)

    def add_pool_listener(self, listener: Callable[[PoolInfo], None]) -> Callable[[], None]:
        """Call `listener` with every changed reading of the pool; return its remover."""
        return _added(self._pool_listeners, listener)

    @contextlib.contextmanager
    def eager(self) -> Iterator[None]:
        """Poll fast while the context is open."""
        self._eager += 1
        if self._eager == 1:
            self._awake.set()
        try:
            yield
        finally:
            self._eager -= 1

    def nudge(self) -> None:
        """Poll now: this client has just changed something on the server."""
        self._awake.set()

    async def wait_for(
        self, expected: Predicate | Collection[EngineState], timeout: float | None = None
    ) -> ServerStatus:
        """Wait for a status; all waiters are woken by the same poll.

        Args:
            expected: States, one of which a reachable server must have, or a predicate.
            timeout: Seconds; None waits without limit.

        Raises:
            TimeoutError: the status did not occur in time.
            SwarmError: `run` has ended, or a poll failed unexpectedly, see `fails_waits`.
        """
        if expected(self.current) if callable(expected) else self.current.is_in(expected):
            return self.current
        test = expected if callable(expected) else partial(_is_in, frozenset(expected))
        with self.eager():
            return await self._wait(test, timeout)

    async def refresh(self, timeout: float | None = None) -> ServerStatus:
        """Return the status of a poll that starts after this call, when `current` is too old.

        Raises:
            TimeoutError: no such poll ended in time.
        """
        started = self._polls + self._polling
        self._awake.set()
        with self.eager():
            return await self._wait(lambda _: self._polls > started, timeout)

    @property
    def missed_for(self) -> float:
        """Seconds since the first failed poll in a row."""
        return asyncio.get_running_loop().time() - self._missed_at if self._failures else 0.0

    async def run(self) -> None:
        """Poll until cancelled; run this once, in a task."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._run_status(), name=f"status:{self.client.name}")
                pool = f"pool:{self.client.name}"
                group.create_task(keep_running(self._run_pool, pool), name=pool)
        finally:
            self._fail_waits(SwarmError("its status is not polled any more", self.client.name))

    async def poll(self) -> ServerStatus:
        """Poll the status once and notify waiters and listeners."""
        self._polling = 1
        try:
            seen = self._updated(await self.client.status(timeout=self.poll_timeout))
        except SwarmError as error:
            seen = self._missed(error)
        except Exception as error:  # boundary of the poller, on which all waits depend
            seen = self._missed(SwarmError(f"{type(error).__name__}: {error}"), "faulty")
            if seen.error != self.current.error:  # the same error may return with each poll
                log.exception("a poll of %s failed, others follow", self.client.name)
            if self.fails_waits:
                self._fail_waits(SwarmError(seen.error, self.client.name))
        finally:
            self._polling = 0
            self._polls += 1
        self._notify(seen)
        return seen

    async def poll_pool(self) -> PoolInfo | None:
        """Read the pool once and notify its listeners of a change; None without a reading."""
        try:
            pool = await self.client.pool()
        except SwarmError:
            return None
        if pool is None:
            return None
        self.pool_at = self.clock()
        if pool != self.pool:
            self.pool = pool
            for listener in tuple(self._pool_listeners.values()):
                _call(listener, pool)
        return pool

    async def _run_status(self) -> None:
        while True:
            self._awake.clear()
            await self.poll()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.period):
                    await self._awake.wait()

    async def _run_pool(self) -> None:
        while True:
            if not _rolls(self.current):
                await self._wait(_rolls, None)
            await self.poll_pool()
            await asyncio.sleep(POOL)

    async def _wait(self, test: Predicate, timeout: float | None) -> ServerStatus:
        future: asyncio.Future[ServerStatus] = asyncio.get_running_loop().create_future()
        self._waiters[future] = test
        try:
            async with asyncio.timeout(timeout):
                return await future
        finally:
            self._waiters.pop(future, None)

    def _updated(self, status: EngineStatus) -> ServerStatus:
        now = self.clock()
        before = self.current
        raw = status.engine_status or ""
        state = status.state
        step = status.global_step
        trouble = self._cause(state)
        if step is None and (state.rolling or state is EngineState.WEIGHT_SYNCING):
            step = before.step  # one of the two status messages of a boundary lacks the step
        self._failures = 0
        changed = (raw, step) != (before.raw, before.step)
        if state is EngineState.OFFLINE and before.seen_at and changed:
            self.off_at = asyncio.get_running_loop().time()
        return ServerStatus(
            state=state,
            raw=raw,
            detail=status.engine_status_detail or TROUBLES.get(trouble, ""),
            step=step,
            since=before.since if before.seen_at and raw == before.raw else now,
            seen_at=now,
            reachable=True,
            error="",
            trouble=trouble,
            down=False,
        )

    def _cause(self, state: EngineState) -> str:
        """Return the cause for which an engine went down, a key of `TROUBLES`; empty if unknown."""
        before = self.current
        if state not in (EngineState.OFFLINE, EngineState.BOOTING):
            return ""
        if state is before.state:
            return before.trouble if before.trouble in _WENT_DOWN else ""
        ran = before.seen_at and before.state is not EngineState.BOOTING
        if not ran or state is EngineState.BOOTING:
            return ""
        if not before.reachable:
            return "restarted"
        return "" if self.client.stopped_at > before.since else "stopped by another client"

    def _missed(self, error: SwarmError, trouble: str = "unrecognized") -> ServerStatus:
        self._failures += 1
        reachable = self.current.reachable and self._failures < LOST_AFTER
        now = asyncio.get_running_loop().time()
        if self._failures == 1:
            self._missed_at = now
        silent = now - self._missed_at if self.current.seen_at else math.inf
        text, limit = error.what, GONE_FOR
        if isinstance(error, TimedOut):
            text, limit = f"no answer for {self.poll_timeout:g} s", FROZEN_FOR
            trouble = "frozen" if silent <= limit else "silent"
        elif isinstance(error, Unreachable):
            trouble = "gone"
        return replace(
            self.current,
            error=f"{trouble}: {text}",
            trouble="" if reachable else trouble,
            reachable=reachable,
            down=not reachable and silent > limit,
        )

    def _notify(self, seen: ServerStatus) -> None:
        before, self.current = self.current, seen
        for future, test in tuple(self._waiters.items()):
            if future.done():
                continue
            try:
                if test(seen):
                    future.set_result(seen)
            except Exception as error:  # noqa: BLE001  raised to the caller of the wait
                future.set_exception(error)
        if replace(before, seen_at=seen.seen_at) != seen:
            for listener in tuple(self._listeners.values()):
                _call(listener, seen)

    def _fail_waits(self, error: SwarmError) -> None:
        for future in self._waiters:
            if not future.done():
                future.set_exception(error)


def _is_in(states: frozenset[EngineState], seen: ServerStatus) -> bool:
    return seen.is_in(states)


def _rolls(seen: ServerStatus) -> bool:
    return seen.reachable and seen.state.rolling


def _call(listener: Callable[[T], None], value: T) -> None:
    try:
        listener(value)
    except Exception:  # a faulty listener must not stop the watcher
        log.exception("a listener failed")


def _added(
    listeners: dict[object, Callable[[T], None]], listener: Callable[[T], None]
) -> Callable[[], None]:
    key = object()
    listeners[key] = listener

    def remove() -> None:
        listeners.pop(key, None)

    return remove


# --- a stable OFFLINE between a stop and the next start -------------------------------------------

QUIET = 8.0
"""Seconds to stay OFFLINE before a new start: an exiting trainer still sends messages."""
QUIET_EMBEDDED = 0.3
"""The same for the embedded engine, which has no separate trainer process."""
OFF_LIMIT = 60.0
"""Seconds that a stopped engine may take to become OFFLINE."""
NO_LINK_FOR = 1.0
"""Seconds without a connection after which a wait for OFFLINE gives up."""
OFF: Final = frozenset({EngineState.OFFLINE})
"""The states of an engine that is off."""


async def answers_as_embedded(client: SwarmWire) -> bool:
    """Return whether the server is the embedded engine; False without a response."""
    try:
        return await client.is_embedded()
    except SwarmError as error:
        log.warning("%s", error)
        return False


def quiet_seconds(embedded: bool, quiet: float | None = None) -> float:
    """Return the seconds for which a stopped server must stay OFFLINE before the next start.

    Args:
        embedded: Whether the server is the embedded engine.
        quiet: Seconds for a server with a trainer process; `QUIET` if None.
    """
    seconds = QUIET if quiet is None else quiet
    return min(seconds, QUIET_EMBEDDED) if embedded else seconds


async def wait_stable_offline(watcher: Watcher, quiet: float) -> ServerStatus:
    """Wait until a server has been OFFLINE, unchanged, for `quiet` seconds from now.

    No operation on an engine makes its server refuse connections: the wait ends with one that does.
    It also ends when another client starts the engine meanwhile; the status is not OFFLINE then.

    Args:
        watcher: Watcher of the server; its `run` must be active.
        quiet: Seconds, as of `quiet_seconds`.

    Raises:
        TimeoutError: no stable OFFLINE within `OFF_LIMIT + quiet` seconds.
        Unreachable: the server accepts no connections.
    """
    clock = asyncio.get_running_loop().time  # monotonic
    began, was_off = clock(), False

    def gone(seen: ServerStatus) -> bool:
        return seen.trouble == "gone" and (seen.down or watcher.missed_for > NO_LINK_FOR)

    def finished(seen: ServerStatus) -> bool:
        nonlocal was_off
        if seen.is_in(OFF):
            was_off = True
            return clock() - max(began, watcher.off_at) >= quiet
        return gone(seen) or (was_off and seen.reachable)

    seen = await watcher.wait_for(finished, OFF_LIMIT + quiet)
    if gone(seen):
        raise Unreachable(seen.error, watcher.client.url, sent=False)
    return seen
