"""Facts about one swarm server that the life cycle of a group needs, besides the server's state."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.common.tasks import Tasks
from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.schemas import EngineState, PoolInfo
from core.state import Server
from core.state.proxy import STARTS_WITHIN
from proxy.context import ServerHandle

log = logging.getLogger(__name__)

DEFAULT_REPEATS = 4
"""Number of candidates if the server does not report how many a task needs."""
REPEATS_TIMEOUT = 2.0
"""Seconds for which a server that starts to roll is polled for the number of candidates."""
CONTENDED_AFTER = 0.25
"""Seconds that a request waits for its turn before the server counts as contended."""
CLEAN_UP = 10.0
"""Seconds that claims wait, once the engine rolls, for the clean-up after a killed proxy."""

ANSWERS = 64
"""Number of recent answers whose durations are stored."""
ENOUGH_ANSWERS = 8
"""Minimum number of answers for a usual duration."""
AGREE_AGAIN_AFTER = 2.0
"""Seconds between two attempts to agree to a weight sync, as in AgentJet's client."""

ROLLING = frozenset({EngineState.ROLLING})
ROLLING_POST = frozenset({EngineState.ROLLING_POST})


def is_starting(server: Server | None, now: float, starts_by: float = 0.0) -> bool:
    """Return whether an engine that is off or silent is expected to answer within seconds.

    Nothing starts an engine that has answered that it is OFFLINE, unless a command does, or
    whoever started the proxy has announced one.

    Args:
        server: Its state; None before the first event.
        now: Unix seconds.
        starts_by: Unix seconds until which such a command is announced for the own engine.
    """
    if server is None:
        return False
    work = server.work
    if work is not None and not work.over:
        return True
    if not server.own:
        return False
    proxy_start = server.expected_until - STARTS_WITHIN
    announced = now < starts_by and not (work is not None and work.began >= proxy_start)
    return announced or (bool(server.lost) and now < server.expected_until)


def is_down(status: ServerStatus) -> bool:
    """Return whether requests would get no answer: the engine is off, or the server unreachable for
    good.

    A server that froze, or disappeared a moment ago, is expected to return: requests queue for it.
    """
    return status.down or status.state is EngineState.OFFLINE


def has_lost_all(status: ServerStatus) -> bool:
    """Return whether the engine has stopped rolling and with that discarded its episodes."""
    return status.reachable and not status.state.rolling


class ServerFacts:
    """Facts of one server, cached while they are valid.

    Attributes:
        sync_agreement: Agreement to the weight sync between groups.
        not_fitting: Candidates of the newest group that needed more episodes than the server has.
        fitting: Number of groups since then that needed fewer.
        unscored: Group id -> episodes held by an open group without an automatic reward.
    """

    def __init__(self, server: ServerHandle, tasks: Tasks) -> None:
        self.server = server
        self.answer_seconds: deque[float] = deque(maxlen=ANSWERS)
        """Durations of the newest answers in seconds."""
        self._tasks = tasks
        self._asking = asyncio.Lock()
        self._unanswered_since = -1.0
        """`ServerStatus.since` of the state in which the server did not report its repeats."""
        self._last_pool: PoolInfo | None = None
        self._repeats = 0
        """`known_repeats` of `_last_pool`."""
        self._last_repeats = DEFAULT_REPEATS
        """The last known number, else the default."""
        self._queueing = 0
        self.sync_agreement = SyncAgreement(server, tasks)
        self.unscored: dict[str, int] = {}
        self.not_fitting = self.fitting = 0
        self._windows: set[asyncio.Event] = set()
        self._recovered: asyncio.Event | None = None
        """Set after the clean-up of a killed proxy's groups; None if there is none."""
        server.claimer.queue.on_starved = self._close_windows

    @property
    def usual_seconds(self) -> float:
        """Seconds within which nine of ten of the newest answers came; 0 while there are too
        few."""
        if len(self.answer_seconds) < ENOUGH_ANSWERS:
            return 0.0
        return sorted(self.answer_seconds)[len(self.answer_seconds) * 9 // 10]

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run `work` in the background; it is cancelled when the proxy ends."""
        return self._tasks.spawn(work, name)

    # --- who waits for episodes ----------------------------------------------------------------

    @property
    def contended(self) -> bool:
        """Whether a request waits for what others hold: for its turn, or for a free episode."""
        return self._queueing > 0 or self.server.claimer.queue.starved

    @contextlib.contextmanager
    def queueing(self) -> Iterator[None]:
        """Context in which a request waits for its turn; most turns come at once."""
        waits = False

        def contend() -> None:
            nonlocal waits
            waits = True
            self._queueing += 1
            self._close_windows()

        alarm = asyncio.get_running_loop().call_later(CONTENDED_AFTER, contend)
        try:
            yield
        finally:
            alarm.cancel()
            self._queueing -= waits

    @contextlib.contextmanager
    def window(self, wake: asyncio.Event) -> Iterator[None]:
        """Context in which a group is open to the operator; `wake` is set when the server gets
        contended."""
        self._windows.add(wake)
        try:
            yield
        finally:
            self._windows.discard(wake)

    def _close_windows(self) -> None:
        for wake in self._windows:
            wake.set()

    # --- clean-up after a killed proxy ---------------------------------------------------------

    @property
    def recovering(self) -> bool:
        """Whether claims must wait for a clean-up."""
        return self._recovered is not None

    @contextlib.contextmanager
    def recovery(self) -> Iterator[None]:
        """Context in which groups of a killed proxy are cleaned up."""
        self._recovered = done = asyncio.Event()
        try:
            yield
        finally:
            self._recovered = None
            done.set()

    async def recovered(self, seconds: float) -> None:
        """Wait for the clean-up, at most `CLEAN_UP` seconds: the server may not report its
        episodes, or not answer an end for minutes. After one wait in vain, no other one is made.

        Raises:
            TimeoutError: The clean-up takes longer than `seconds`.
        """
        if self._recovered is None:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._recovered.wait(), min(seconds, CLEAN_UP))
            return
        if seconds <= CLEAN_UP:
            raise TimeoutError
        if self._recovered is not None:
            self._recovered.set()

    # --- repeats -------------------------------------------------------------------------------

    @property
    def known_repeats(self) -> int:
        """Number of candidates per task by the last valid state of the pool; 0 if unknown."""
        pool = self.server.watcher.pool
        if pool is not self._last_pool:  # cached: read often, changes rarely
            self._last_pool, self._repeats = pool, 0 if pool is None or pool.stale else pool.repeat
            self._last_repeats = self._repeats or self._last_repeats
        return self._repeats

    async def repeats(self) -> int:
        """Return the number of candidates a task needs in the current step; poll if unknown.

        Waits while the engine does not roll, when the pool is that of its last run, and while the
        server is away. Then bounded: after `REPEATS_TIMEOUT` seconds the last known number, else
        `DEFAULT_REPEATS`.
        """
        if repeats := self._current_repeats():
            return repeats
        async with self._asking:
            while not (repeats := self._current_repeats()):
                await self.server.watcher.wait_for(ROLLING)
                await self._poll_repeats()
        return repeats

    def _current_repeats(self) -> int:
        """Return the number for the current state of the engine; 0 if the pool is to be polled."""
        watcher = self.server.watcher
        since, repeats = watcher.current.since, self.known_repeats
        if since == self._unanswered_since:
            return self._last_repeats
        return repeats if watcher.pool_at >= since else 0

    async def _poll_repeats(self) -> None:
        watcher = self.server.watcher
        try:
            async with asyncio.timeout(REPEATS_TIMEOUT):
                while not self._current_repeats():
                    await watcher.poll_pool()
                    if not self._current_repeats():
                        await asyncio.sleep(0.1)
        except TimeoutError:
            if watcher.current.is_in(ROLLING):
                self._unanswered_since = watcher.current.since
                name = self.server.name
                log.warning("%s does not report how many candidates a task needs", name)


class SyncAgreement:
    """Agrees to the weight sync of one server, once a batch, for jobs whose batch ends so.

    Args:
        server: The server.
        tasks: Owner of the attempts; its end ends them.
    """

    def __init__(self, server: ServerHandle, tasks: Tasks) -> None:
        self._server = server
        self._tasks = tasks
        self._agreed: tuple[int | None, float] | None = None
        """The batch whose end the server was told last."""
        self._attempts: asyncio.Task[None] | None = None

    def agree(self, idle: Callable[[], bool]) -> None:
        """Agree, if the batch ends by agreement; call this when the last open group has ended.

        An attempt that fails is repeated in the background while the same batch is collected.

        Args:
            idle: Returns whether no group is open. A group that opens ends the attempts.
        """
        if self._attempts is not None:
            self._attempts.cancel()
            self._attempts = None
        batch = self._batch()
        if batch is not None and batch != self._agreed:
            attempts = self._agree(batch, idle)
            self._attempts = self._tasks.spawn(attempts, f"agree:{self._server.name}")

    def _batch(self) -> tuple[int | None, float] | None:
        """Return step and start of the batch that is collected and ends by agreement, or None.

        Its step alone does not identify it: an engine may be started again at the same step.
        """
        pool, status = self._server.watcher.pool, self._server.watcher.current
        if pool is None or not pool.agree_to_sync or status.state is not EngineState.ROLLING:
            return None
        return status.step, status.since

    async def _agree(self, batch: tuple[int | None, float], idle: Callable[[], bool]) -> None:
        level = logging.INFO
        while idle() and self._batch() == batch:
            try:
                if await self._server.client.agree_sync_weight():
                    self._agreed = batch
                    self._server.watcher.nudge()
                    return
            except SwarmError as error:
                text = "%s did not accept the agreement to sync: %s"
                log.log(level, text, self._server.name, error)
                level = logging.DEBUG
            await asyncio.sleep(AGREE_AGAIN_AFTER)


IDENTIFY_WITHIN = 1.0
"""Maximum number of seconds that the first claims after a start wait for the training run."""


async def identified(server: ServerHandle) -> None:
    """Wait while the training run of a started engine is read, at most `IDENTIFY_WITHIN`
    seconds."""
    if server.identifying is not None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(server.identifying.wait(), IDENTIFY_WITHIN)
