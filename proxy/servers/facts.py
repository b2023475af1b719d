"""What the life cycle of a group needs to know about one swarm server besides its state."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Coroutine, Iterator
from typing import Any, Protocol

import msgspec

from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.common.tasks import Tasks
from ajet_swarm.http.interface import Request
from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.schemas import EngineState, PoolInfo
from proxy.context import ServerHandle
from proxy.servers.claim_priority import ClaimPriority

log = logging.getLogger(__name__)

DEFAULT_REPEATS = 4
"""Number of candidates if the server does not report how many a task needs."""
ASK_FOR = 2.0
"""Seconds in which a server that begins to roll is asked for the number of candidates."""
CROWD_AFTER = 0.25
"""Seconds that a request waits for its turn before others make room for it."""
CLEAN_UP = 10.0
"""Seconds that claims wait for the clean-up after a killed proxy, once the engine rolls."""
INFO = "/ajetc/info"
"""Route of servers that report more about themselves than AgentJet does."""

ANSWERS = 64
"""Number of answers whose durations are kept."""
ENOUGH_ANSWERS = 8
"""Minimum number of answers for a usual duration."""

ROLLING = frozenset({EngineState.ROLLING})
ROLLING_POST = frozenset({EngineState.ROLLING_POST})


class EpisodeOwner(Protocol):
    """What holds an episode: a candidate."""

    superseded: bool


class _ServerInfo(msgspec.Struct, frozen=True):
    """The used part of the response of `INFO`."""

    damping: float = 0.0
    context: int | None = None
    strict_context: bool = False
    bare_prompts: bool = False


def is_down(seen: ServerStatus) -> bool:
    """Return whether requests would get no answer: the engine is off, or the server unreachable for
    good.

    A server that froze, or disappeared a moment ago, is expected to return: requests queue for it.
    """
    return seen.down or seen.state is EngineState.OFFLINE


def has_lost_all(seen: ServerStatus) -> bool:
    """The engine has left rolling, and with that wiped its episodes."""
    return seen.reachable and not seen.state.rolling


class ServerFacts:
    """Facts of one server, asked for once and kept while they hold.

    Attributes:
        damping: What the engine adds to a group's deviation; 0 when it does not say.
        context: Its window in tokens; None when it does not say.
        strict: It refuses a prompt that is too long for it.
        bare_prompts: It completes a prompt without a chat template.
        way: Of its ends before its claims.
        not_fitting: Candidates of the newest group that asked for more than the server has.
        fitting: Groups since then that did not.
        unscored: Episodes held by each open group that has no automatic reward, by group id.
    """

    def __init__(self, server: ServerHandle, tasks: Tasks) -> None:
        self.server = server
        self.damping = 0.0
        self.context_length: int | None = None
        self.strict = False
        self.answer_seconds: deque[float] = deque(maxlen=ANSWERS)
        """How long the newest answers took."""
        self.bare_prompts = False
        self._tasks = tasks
        self._asking = asyncio.Lock()
        self._silent_since = -1.0
        """`since` of the stay in which the server would not tell its repeats."""
        self._agreed: int | None = None
        self._sweeping = self._doubt = False
        self._reading = False
        self._told = False
        self._was: EngineState | None = None
        self._read: PoolInfo | None = None
        self._repeats = 0
        """`known_repeats` of that reading."""
        self._holders: dict[str, EpisodeOwner] = {}
        self._queueing = 0
        self.claim_priority = ClaimPriority()
        self.unscored: dict[str, int] = {}
        self.not_fitting = self.fitting = 0
        self._windows: set[asyncio.Event] = set()
        self._recovered: asyncio.Event | None = None
        """While groups of a proxy that was killed are cleaned up."""
        server.claimer.on_starved = self._close_windows

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
    def crowded(self) -> bool:
        """Whether a request waits for what others hold: for its turn, or for a free episode."""
        return self._queueing > 0 or self.server.claimer.starved

    @contextlib.contextmanager
    def queueing(self) -> Iterator[None]:
        """Context in which a request waits for its turn; most turns come at once."""
        waits = False

        def crowd() -> None:
            nonlocal waits
            waits = True
            self._queueing += 1
            self._close_windows()

        alarm = asyncio.get_running_loop().call_later(CROWD_AFTER, crowd)
        try:
            yield
        finally:
            alarm.cancel()
            self._queueing -= waits

    @contextlib.contextmanager
    def window(self, wake: asyncio.Event) -> Iterator[None]:
        """Context in which a group is open to the operator; `wake` is set when the server gets
        crowded."""
        self._windows.add(wake)
        try:
            yield
        finally:
            self._windows.discard(wake)

    def _close_windows(self) -> None:
        for wake in self._windows:
            wake.set()

    # --- what was left by a proxy that was killed ----------------------------------------------

    @property
    def recovering(self) -> bool:
        """Whether claims have to wait for a clean-up."""
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
        """Wait for the clean-up, `CLEAN_UP` seconds at most: the server may not report what it
        holds.

        Raises:
            TimeoutError: It takes longer than `seconds`.
        """
        if self._recovered is None:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._recovered.wait(), min(seconds, CLEAN_UP))
            return
        if seconds <= CLEAN_UP:
            raise TimeoutError

    # --- who holds which episode ---------------------------------------------------------------

    def hold(self, uuid: str, holder: EpisodeOwner) -> None:
        """Record a claimed episode. A previous owner is marked: the server has reclaimed it.

        A record keeps its uuid when it returns to the pool, so our next claim may get it; an end by
        the first owner would then end the episode of the second one.
        """
        before = self._holders.get(uuid)
        if before is not None and before is not holder:
            before.superseded = True
        self._holders[uuid] = holder

    def drop(self, uuid: str, holder: EpisodeOwner) -> None:
        """Record that the owner has ended or returned the episode."""
        if self._holders.get(uuid) is holder:
            del self._holders[uuid]

    def holds(self, uuid: str) -> bool:
        """Return whether an open group holds the episode."""
        return uuid in self._holders

    # --- repeats -------------------------------------------------------------------------------

    @property
    def known_repeats(self) -> int:
        """Number of candidates a task needs by the last reading; 0 if none is valid."""
        pool = self.server.watcher.pool
        if pool is not self._read:  # asked for several times a request, read a few times a minute
            self._read, self._repeats = pool, 0 if pool is None or pool.stale else pool.repeat
        return self._repeats

    async def repeats(self) -> int:
        """Return the number of candidates a task needs in the present step; ask if it is unknown.

        Bounded: after `ASK_FOR` seconds it is the last known number, else `DEFAULT_REPEATS`.
        """
        if not self._fresh():
            async with self._asking:
                await self._ask()
        return self.known_repeats or DEFAULT_REPEATS

    def _fresh(self) -> bool:
        watcher = self.server.watcher
        since = watcher.current.since
        read = watcher.pool_at >= since and self.known_repeats > 0
        return read or since == self._silent_since

    async def _ask(self) -> None:
        watcher = self.server.watcher
        try:
            async with asyncio.timeout(ASK_FOR):
                while not self._fresh():
                    await watcher.poll_pool()
                    if not self._fresh():
                        await asyncio.sleep(0.1)
        except TimeoutError:
            self._silent_since = watcher.current.since
            log.warning("%s does not say how many candidates a task needs", self.server.name)

    # --- more facts ----------------------------------------------------------------------------

    def engine_changed(self, seen: ServerStatus) -> None:
        """Handle a change of the server."""
        if not seen.reachable or seen.state is self._was:
            return
        restarted = self._was in (None, EngineState.OFFLINE, EngineState.BOOTING)
        self._was = seen.state
        if seen.state is EngineState.ROLLING and (restarted or not self._told):
            self._read_info()

    def _read_info(self) -> None:
        if not self._reading:
            self._reading = True
            self._tasks.spawn(self._info(), f"info:{self.server.name}")

    async def _info(self) -> None:
        client = self.server.client
        try:
            if INFO in await client.features():
                answer = await client.transport.request(
                    Request("GET", client.url + INFO, timeout=10.0, repeatable=True)
                )
                if answer.status == 200:
                    info = msgspec.json.decode(answer.body, type=_ServerInfo)
                    self.damping, self.context_length = info.damping, info.context
                    self.strict = info.strict_context
                    self.bare_prompts = info.bare_prompts
            self._told = True
        except (SwarmError, msgspec.MsgspecError, RecursionError) as error:
            log.info("%s does not report its settings: %s", self.server.name, error)
        finally:
            self._reading = False

    # --- things to do once no group is open ----------------------------------------------------

    async def agree(self) -> None:
        """Agree to the weight sync, once a step, if the batch ends by agreement."""
        watcher = self.server.watcher
        pool, seen = watcher.pool, watcher.current
        wanted = pool is not None and pool.agree_to_sync and seen.is_in(ROLLING)
        if not wanted or self._agreed == seen.step:
            return
        try:
            if await self.server.client.agree_sync_weight():
                self._agreed = seen.step
                watcher.nudge()
        except SwarmError as error:
            log.info("%s took no agreement to sync: %s", self.server.name, error)

    def sweep_soon(self) -> None:
        """Return, once the server answers again, what it holds for us and no group here owns."""
        self._doubt = True
        if not self._sweeping:
            self._sweeping = True
            self._tasks.spawn(self._sweep(), f"sweep:{self.server.name}")

    async def _sweep(self) -> None:
        try:
            while self._doubt:
                await self.server.watcher.wait_for(lambda seen: seen.reachable)
                self._doubt = False
                try:
                    await self.server.claimer.reconcile()
                except SwarmError as error:
                    log.warning("not swept yet: %s", error)
                    self._doubt = True
                    await asyncio.sleep(1.0)
        finally:
            self._sweeping = False
