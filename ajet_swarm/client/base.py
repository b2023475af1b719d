"""What each use of one server needs: its address, a watcher, a claimer, and what it reports."""

import asyncio
import contextlib
import logging
import os
import sys
import time
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from ajet_swarm.api.completion import Completion, ended_before
from ajet_swarm.api.engine import AsyncSwarmClient
from ajet_swarm.api.watcher import ServerStatus, Watcher
from ajet_swarm.claims.deadlines import EpisodeDeadlines
from ajet_swarm.claims.single import EpisodeClaimer
from ajet_swarm.client.throttle import Throttle
from ajet_swarm.client.update_calls import UpdateCalls
from ajet_swarm.common.tasks import Tasks
from ajet_swarm.common.urls import web_address
from ajet_swarm.http.transport import HttpTransport
from ajet_swarm.protocol.errors import (
    EngineOff,
    SwarmError,
    TrainingFinished,
    Unreachable,
    WrongUse,
)
from ajet_swarm.protocol.schemas import EngineState, EpisodeRecord, PoolInfo, VerboseLog

log = logging.getLogger(__name__)

DEFAULT_URL: Final = "http://localhost:10086"
PATIENCE: Final = 60.0
"""Seconds an engine that is OFFLINE, or a server never reached, is waited for."""
REPORT: Final = 30.0
"""Seconds between two lines of the log that say what is waited for."""
QUIET_FOR: Final = 10.0
"""Seconds without another such line: many threads wait for the same."""
ROLLING: Final = frozenset({EngineState.ROLLING})


class SwarmBase:
    """One swarm server, used from one event loop.

    It starts by itself with the first call; `close` (or leaving the context) gives back every
    episode that is still held.

    Args:
        server_url: `http://host:port`; `AJET_SWARM_URL` or AgentJet's own port when left out.
        name: What to call it in messages; its address when left out.
        client_uuid: Who we are to the server; new for each client when left out. The same one must
            not be used by two clients at once: each gives back what the other holds.
        lifetime: An episode's life on our side, in idle timeouts: past it an end becomes an abort.
        patience: Seconds to wait for an engine that is OFFLINE or a server never reached before
            giving up; None for as long as it takes.
        strict: Raise `EpisodeLost` also for ends that came too late for their batch, which
            AgentJet's client only warns of.
    """

    def __init__(
        self,
        server_url: str | None = None,
        *,
        name: str = "",
        client_uuid: str = "",
        lifetime: float = 2.0,
        patience: float | None = PATIENCE,
        strict: bool = False,
    ) -> None:
        if not lifetime > 0:
            raise WrongUse(f"a lifetime of {lifetime} idle timeouts", "SwarmClient")
        url = server_url or os.environ.get("AJET_SWARM_URL") or DEFAULT_URL
        if web_address(url) is None:  # it would be waited for in vain
            raise WrongUse("not the address of a server", url, "Give it as http://host:port")
        self._transport = HttpTransport()
        self.wire = AsyncSwarmClient(
            url, self._transport, client_uuid or str(uuid.uuid4()), name=name
        )
        """The same server without any waiting: single requests."""
        self.server_url = self.wire.url
        self.client_uuid = self.wire.client_uuid
        self.name = self.wire.name
        self.lifetime = lifetime
        self.patience = patience
        self.strict = strict
        self._watcher: Watcher | None = None
        self._claimer: EpisodeClaimer | None = None
        self._completion = Completion()
        self._tasks: Tasks | None = None
        self._work = Tasks(f"ends:{self.name}")
        """Ends and aborts: once begun they go on, whoever waits for them."""
        self._deadlines = EpisodeDeadlines(time.monotonic)
        self._throttle = Throttle(self.client_uuid)
        self._throttling: asyncio.Lock | None = None
        self._pool: tuple[float, PoolInfo] | None = None
        self._said = 0.0
        """`time.time()` of the last word on what is waited for, whoever waits."""
        self._closed = False
        self._home: asyncio.AbstractEventLoop | None = None
        """The loop it was started in: its connections and its watcher live there."""

    # -- life -----------------------------------------------------------------------------------

    @property
    def watcher(self) -> Watcher:
        """What is known of the server.

        Raises:
            SwarmError: `start` was not called yet.
        """
        if self._watcher is None:
            raise SwarmError("this client was not started", self.name, "Use `async with`")
        return self._watcher

    async def start(self) -> None:
        """Begin to watch the server; every other method does it by itself.

        Raises:
            WrongUse: the client is closed, or was started in another event loop.
        """
        if self._closed:
            raise WrongUse("this client is closed", self.name, "Make a new one")
        self._check_home()
        if self._tasks is not None:
            return
        self._home = asyncio.get_running_loop()
        self._tasks = Tasks(f"swarm:{self.name}")
        self._watcher = Watcher(self.wire)
        self._watcher.add_listener(self._completion.note)
        self._claimer = EpisodeClaimer(
            self.wire, self._watcher, known=self._deadlines.uuids, on_dropped=self._deadlines.drop
        )
        self._throttling = asyncio.Lock()
        concurrency = self._claimer.concurrency
        self._watcher.add_listener(
            lambda seen: concurrency.reopen() if seen.state is EngineState.ROLLING else None
        )
        self._tasks.spawn(self._watcher.run(), "watcher")

    async def close(self, seconds: float = 5.0) -> None:
        """Give back what is still held, then stop; takes about `seconds` at most.

        Raises:
            WrongUse: it was started in another event loop.
        """
        if self._closed:
            return
        self._check_home()
        self._closed = True
        if self._claimer is not None and self._tasks is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(seconds / 4):
                            await self._claimer.close()
                    await self._work.drain(seconds / 2)
                    if self._deadlines.ever_claimed and (
                        len(self._deadlines) or self.watcher.current.reachable
                    ):
                        mine = await self._mine() or ()
                        await self._claimer.releaser.give_back_rest(mine, "the client closes")
            await self._work.close()
            await self._claimer.releaser.close(min(seconds, 1.0))
            await self._tasks.close()
        await self._transport.close()

    def _check_home(self) -> None:
        if self._home is not None and self._home is not asyncio.get_running_loop():
            raise WrongUse(
                "this client was started in another event loop",
                self.name,
                "Make one in each asyncio.run, or use SwarmClient",
            )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def add_listener(self, listener: Callable[[ServerStatus], None]) -> Callable[[], None]:
        """Call `listener` on each change of the engine's state; returns what removes it."""
        return self.watcher.add_listener(listener)

    async def add_entering_weight_sync_callback(self, callback: Callable[[], object]) -> None:
        """Call `callback` once for each policy update, in order, on a short thread.

        It is called when the engine begins to update its weights. Where the update is over before
        that is seen, it is called when the next step is, as often as there were updates.
        """
        await self.start()
        calls = UpdateCalls(callback, self._completion.ended, self.watcher.current)
        self.add_listener(calls.note)

    # -- what the server tells ------------------------------------------------------------------

    async def get_engine_status(self) -> tuple[str, dict[str, Any]]:
        """The state (`ENGINE.ROLLING`, ...) and what else the server says of it.

        Never raises for a network's sake: no answer is `ENGINE.CANNOT_CONNECT`.
        """
        await self.start()
        try:
            told = await self.wire.status()
        except SwarmError as error:
            return EngineState.CANNOT_CONNECT.wire, {"error": str(error)}
        return told.engine_status or "", {
            "engine_status": told.engine_status,
            "engine_status_detail": told.engine_status_detail,
            "global_step": told.global_step,
        }

    async def get_global_step(self) -> int:
        """Policy updates begun; 0 while none is known."""
        return (await self.get_engine_status())[1].get("global_step") or 0

    async def get_rollout_stat(self) -> PoolInfo:
        """How far the batch is; an object with `is_default` when the server could not tell."""
        await self.start()
        try:
            pool = await self.wire.pool()
        except SwarmError as error:
            log.warning("no reading of the batch: %s", error)
            pool = None
        return pool or PoolInfo()

    async def get_episode_buffer(self) -> list[EpisodeRecord]:
        """All live episodes of all clients.

        Raises:
            SwarmError: no usable answer.
        """
        await self.start()
        return await self.wire.buffer()

    async def server_experiment_dir(self) -> str | None:
        """Where the server writes its run.

        Raises:
            SwarmError: no usable answer.
        """
        await self.start()
        return await self.wire.experiment_dir()

    async def get_verbose_logs(self) -> list[VerboseLog]:
        """The server's latest log lines.

        Raises:
            SwarmError: no usable answer.
        """
        await self.start()
        return await self.wire.verbose_logs()

    async def print_rollout_stat(self) -> None:
        """Write how far the batch is to standard output, in a line."""
        sys.stdout.write(rollout_line(await self.get_rollout_stat()) + "\n")

    # -- waiting --------------------------------------------------------------------------------

    async def _until_rolling(self, since: float) -> ServerStatus:
        """Wait for ROLLING with this client's patience.

        Args:
            since: `time.time()` when the waiting began.

        Raises:
            TrainingFinished: training is complete.
            EngineOff: it was OFFLINE for too long.
            Unreachable: the server was never there.
        """
        watcher = self.watcher
        patience = self.patience
        told = time.time()
        absent = False

        def over(seen: ServerStatus) -> bool:
            nonlocal told, absent
            if seen.is_in(ROLLING) or self._completion.ended(seen):
                return True
            now = time.time()
            if not absent and not seen.seen_at and seen.trouble:
                absent = True
                self._absent(seen)
            if now - told > REPORT:
                told = now
                self._say("%s: still waiting for ROLLING, it is %s", self.name, _shown(seen))
            if patience is None or now - since < patience:
                return False
            off = seen.reachable and seen.state is EngineState.OFFLINE
            return (off and now - seen.since >= patience) or not seen.seen_at

        current = watcher.current
        if current.is_in({EngineState.OFFLINE}) and not self._completion.ended(current):
            self._say("%s is OFFLINE: waiting for somebody to start it", self.name)
        seen = await watcher.wait_for(over)
        if seen.is_in(ROLLING):
            return seen
        if not seen.seen_at:
            raise self._nobody(seen)
        if ended := self._completion.ended(seen) or ended_before(seen):
            raise TrainingFinished(ended, self.name)
        raise EngineOff(
            f"the engine has been OFFLINE for {patience:g} s",
            self.name,
            "Start it, as with auto_sync_train_config_and_start_engine(job)",
        )

    def _off(self, text: str, todo: str = "") -> EngineOff:
        """The error of an engine that is OFFLINE: training is complete, or `text`."""
        ended = self._completion.ended(self.watcher.current)
        return TrainingFinished(ended, self.name) if ended else EngineOff(text, self.name, todo)

    def _say(self, text: str, *args: object) -> None:
        """A warning, unless another who waits has just said so."""
        now = time.time()
        if now - self._said > QUIET_FOR:
            self._said = now
            log.warning(text, *args)

    def _absent(self, seen: ServerStatus) -> None:
        """Say that the server is not there, and how long it is waited for."""
        limit = "" if self.patience is None else f" {self.patience:g} s"
        why = f"{seen.error}. {self._hint(seen)}"
        self._say("%s: no swarm server answers, waiting%s: %s", self.server_url, limit, why)

    def _hint(self, seen: ServerStatus) -> str:
        """What to do about a server that is not there."""
        path = self.server_url.partition("://")[2].partition("/")[2]
        if path and seen.trouble == "unrecognized":
            return f"Give it without /{path}, as http://host:port"
        return "Is the address right, and the server running?"

    def _nobody(self, seen: ServerStatus) -> Unreachable:
        """The error when the server was never there."""
        patience = f"{self.patience:g} s" if self.patience is not None else "long"
        text = f"no swarm server answered for {patience} ({seen.error})"
        return Unreachable(text, self.server_url, self._hint(seen), sent=False)

    async def _mine(self) -> set[str] | None:
        """What the server holds in our name; None when it does not tell."""
        try:
            records = await self.wire.buffer()
        except SwarmError:
            return None
        return {r.episode_uuid for r in records if r.claimed and r.client_uuid == self.client_uuid}


def rollout_line(pool: PoolInfo) -> str:
    """How far a batch is, in a line."""
    if pool.is_default:
        return "the server tells nothing of its batch"
    repeats = [len(done) for done in (pool.completed_tasks_details or {}).values()]
    mean = sum(repeats) / len(repeats) if repeats else 0.0
    return (
        f"step {pool.global_step}: tasks {pool.completed_tasks}/{pool.completed_task_target}, "
        f"episodes {pool.completed_episodes}/{pool.completed_episode_target}, "
        f"{mean:.2f}/{pool.repeat} a task, {len(pool.running_episode_details or {})} running, "
        f"{pool.completed_non_dummy_tasks} tasks with unequal rewards"
    )


def _shown(seen: ServerStatus) -> str:
    return f"{seen.display_state.value} ({seen.error})" if seen.error else seen.display_state.value
