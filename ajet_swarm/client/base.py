"""Base of a client: connection to one server, status watcher, claimer, and read-only requests.

`Completion` and `UpdateCalls` are listeners of the watcher: what a client learns from one status
after the other, the end of training and the updates.
"""

import asyncio
import contextlib
import logging
import os
import re
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, Self

from ajet_swarm.api.watcher import ServerStatus, Watcher
from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.client.throttle import Throttle
from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.tasks import Tasks
from ajet_swarm.episodes.claim import EpisodeClaimer
from ajet_swarm.http.interface import Transport
from ajet_swarm.job.tree import get, load_job
from ajet_swarm.protocol.errors import (
    EngineOff,
    SwarmError,
    TrainingFinished,
    Unreachable,
    WrongUse,
)
from ajet_swarm.protocol.schemas import EngineState, EpisodeRecord, PoolInfo, VerboseLog
from ajet_swarm.runtime import SYSTEM, Runtime

log = logging.getLogger(__name__)

DEFAULT_URL: Final = "http://localhost:10086"
PATIENCE: Final = 60.0
"""Seconds to wait for an OFFLINE engine, or for a server that was never reached."""
REPORT: Final = 30.0
"""Seconds between two log messages of one wait."""
QUIET_FOR: Final = 10.0
"""Seconds for which no wait repeats a warning: many threads may wait for the same state."""
ROLLING: Final = frozenset({EngineState.ROLLING})


class SwarmBase:
    """Base of a client of one swarm server; use it from one event loop only.

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
        url = server_url or os.environ.get("AJET_SWARM_URL") or DEFAULT_URL
        from ajet_swarm.http.transport import HttpTransport  # aiohttp takes long to import

        self._network = HttpTransport() if transport is None else None
        self._clock = runtime.clock
        self._chance = runtime.chance
        uuid = client_uuid or self._chance.uuid()
        line = transport or self._network
        assert line is not None
        self.wire = SwarmWire(url, line, uuid, name=name, runtime=runtime)
        """Single requests to the same server, without waiting for its engine."""
        self.server_url = self.wire.url
        self.client_uuid = self.wire.client_uuid
        self.name = self.wire.name
        self.lifetime = lifetime
        self.patience = patience
        self.strict = strict
        self._tasks = Tasks(f"swarm:{self.name}")
        self._completion = Completion()
        self._watcher = Watcher(self.wire, self._clock.wall, fails_waits=True)
        self._watcher.add_listener(self._completion.note)
        self._claimer = EpisodeClaimer(self.wire, self._watcher, runtime=runtime)
        self._ends = self._claimer.ends
        self._throttle = Throttle(self.client_uuid, self._clock.monotonic)
        self._throttling = asyncio.Lock()
        self._pool: tuple[float, PoolInfo] | None = None
        self._warned_at = 0.0
        """Unix seconds of the last warning of any wait."""
        self._closed = False
        self._owner_loop: asyncio.AbstractEventLoop | None = None
        """The event loop that owns the connections and the watcher; None before the start."""

    # -- start and end --------------------------------------------------------------------------

    @property
    def watcher(self) -> Watcher:
        """The status watcher of the server.

        Raises:
            SwarmError: `start` has not been called yet.
        """
        if self._owner_loop is None:
            raise SwarmError("this client was not started", self.name, "Use `async with`")
        return self._watcher

    async def start(self) -> None:
        """Start to poll the server; every other method calls this first.

        Raises:
            WrongUse: the client is closed, or was started in another event loop.
        """
        if self._closed:
            raise WrongUse("this client is closed", self.name, "Make a new one")
        self._check_loop()
        if self._owner_loop is None:
            self._owner_loop = asyncio.get_running_loop()
            self._tasks.spawn(self._watcher.run(), "watcher")

    async def close(self, seconds: float = 5.0) -> None:
        """Give back all held episodes, then stop; takes about `seconds` at most.

        Raises:
            WrongUse: the client was started in another event loop.
        """
        if self._closed:
            return
        self._check_loop()
        self._closed = True
        if self._owner_loop is not None:
            ends = self._ends
            with contextlib.suppress(TimeoutError, SwarmError):
                async with asyncio.timeout(seconds):
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(seconds / 4):
                            await self._claimer.refuse_claims()
                    await ends.drain(seconds / 2)
                    reachable = self._watcher.current.reachable
                    if ends.holdings.ever_claimed and (ends.holdings.by_uuid or reachable):
                        await ends.return_all()
            await self._claimer.close(min(seconds, 1.0))
            await self._tasks.close()
        if self._network is not None:
            await self._network.close()

    def _check_loop(self) -> None:
        if self._owner_loop is not None and self._owner_loop is not asyncio.get_running_loop():
            raise WrongUse(
                "this client was started in another event loop",
                self.name,
                "Make one in each asyncio.run, or use SwarmClient",
            )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def add_listener(self, listener: Callable[[ServerStatus], None]) -> Callable[[], None]:
        """Call `listener` with each changed status of the server; return its remover."""
        return self.watcher.add_listener(listener)

    async def add_entering_weight_sync_callback(self, callback: Callable[[], object]) -> None:
        """Call `callback` once for each policy update, in order, on a separate thread.

        The call is made when the engine begins to update its weights. An update that ends between
        two polls is detected by the global step, and `callback` is called for it afterwards.
        """
        await self.start()
        calls = UpdateCalls(callback, self._completion.ended, self.watcher.current)
        self.add_listener(calls.note)

    # -- status of the server --------------------------------------------------------------------

    async def get_engine_status(self) -> tuple[str, dict[str, Any]]:
        """Return the state (`ENGINE.ROLLING`, ...) and the other fields of the status.

        Without a response the state is `ENGINE.CANNOT_CONNECT`; a network fault never raises.
        """
        await self.start()
        try:
            status = await self.wire.status()
        except SwarmError as error:
            return EngineState.CANNOT_CONNECT.wire, {"error": str(error)}
        return status.engine_status or "", {
            "engine_status": status.engine_status,
            "engine_status_detail": status.engine_status_detail,
            "global_step": status.global_step,
        }

    async def get_global_step(self) -> int:
        """Return the number of policy updates that have begun; 0 while it is unknown."""
        return (await self.get_engine_status())[1].get("global_step") or 0

    async def get_rollout_stat(self) -> PoolInfo:
        """Return the progress of the batch; its `is_default` is set if the server reports none."""
        await self.start()
        try:
            pool = await self.wire.pool()
        except SwarmError as error:
            log.warning("no reading of the batch: %s", error)
            pool = None
        return pool or PoolInfo()

    async def get_episode_buffer(self) -> list[EpisodeRecord]:
        """Return all live episodes of all clients.

        Raises:
            SwarmError: no usable response.
        """
        await self.start()
        return await self.wire.buffer()

    async def server_experiment_dir(self) -> str | None:
        """Return the folder in which the server writes its run.

        Raises:
            SwarmError: no usable response.
        """
        await self.start()
        return await self.wire.experiment_dir()

    async def get_verbose_logs(self) -> list[VerboseLog]:
        """Return the server's latest log lines.

        Raises:
            SwarmError: no usable response.
        """
        await self.start()
        return await self.wire.verbose_logs()

    async def print_rollout_stat(self) -> None:
        """Write the progress of the batch to standard output, on one line."""
        sys.stdout.write(rollout_line(await self.get_rollout_stat()) + "\n")

    # -- waiting --------------------------------------------------------------------------------

    async def _until_rolling(self, since: float) -> ServerStatus:
        """Wait for ROLLING with this client's patience.

        Args:
            since: Unix seconds at the start of the wait.

        Raises:
            TrainingFinished: training is complete.
            EngineOff: the engine was OFFLINE for too long.
            Unreachable: the server was never reached.
        """
        watcher = self.watcher
        patience = self.patience
        logged_at = self._clock.wall()
        absent = False

        def finished(seen: ServerStatus) -> bool:
            nonlocal logged_at, absent
            if seen.is_in(ROLLING) or self._completion.ended(seen):
                return True
            now = self._clock.wall()
            if not absent and not seen.seen_at and seen.trouble:
                absent = True
                self._warn_absent(seen)
            if now - logged_at > REPORT:
                logged_at = now
                self._warn("%s: still waiting for ROLLING, it is %s", self.name, _shown(seen))
            if patience is None or now - since < patience:
                return False
            off = seen.reachable and seen.state is EngineState.OFFLINE
            return (off and now - seen.since >= patience) or not seen.seen_at

        current = watcher.current
        if current.is_in({EngineState.OFFLINE}) and not self._completion.ended(current):
            self._warn("%s is OFFLINE: waiting for somebody to start it", self.name)
        seen = await watcher.wait_for(finished)
        if seen.is_in(ROLLING):
            return seen
        if not seen.seen_at:
            raise self._never_reached(seen)
        if ended := self._completion.ended(seen) or ended_before(seen):
            raise TrainingFinished(ended, self.name)
        raise EngineOff(
            f"the engine has been OFFLINE for {patience:g} s",
            self.name,
            "Start it, as with auto_sync_train_config_and_start_engine(job)",
        )

    def _off(self, text: str, todo: str = "") -> EngineOff:
        """Return the error for an OFFLINE engine: `TrainingFinished`, else one with `text`."""
        ended = self._completion.ended(self.watcher.current)
        return TrainingFinished(ended, self.name) if ended else EngineOff(text, self.name, todo)

    def _warn(self, text: str, *args: object) -> None:
        """Log a warning, unless another wait has just logged one."""
        now = self._clock.wall()
        if now - self._warned_at > QUIET_FOR:
            self._warned_at = now
            log.warning(text, *args)

    def _warn_absent(self, seen: ServerStatus) -> None:
        """Log that no server responds, and for how long the client waits."""
        limit = "" if self.patience is None else f" {self.patience:g} s"
        why = f"{seen.error}. {self._hint(seen)}"
        self._warn("%s: no swarm server answers, waiting%s: %s", self.server_url, limit, why)

    def _hint(self, seen: ServerStatus) -> str:
        """Return the remedy for a server that does not respond."""
        path = self.server_url.partition("://")[2].partition("/")[2]
        if path and seen.trouble == "unrecognized":
            return f"Give it without /{path}, as http://host:port"
        return "Is the address right, and the server running?"

    def _never_reached(self, seen: ServerStatus) -> Unreachable:
        """Return the error for a server that was never reached."""
        patience = f"{self.patience:g} s" if self.patience is not None else "long"
        text = f"no swarm server answered for {patience} ({seen.error})"
        return Unreachable(text, self.server_url, self._hint(seen), sent=False)


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


def _shown(seen: ServerStatus) -> str:
    return f"{seen.display_state.value} ({seen.error})" if seen.error else seen.display_state.value


# --- the end of training, and updates -------------------------------------------------------------

COMPLETE: Final = "training complete"
"""Beginning of the embedded engine's status detail after the last of `total_training_steps`."""
TOTAL: Final = "ajet.trainer_common.total_training_steps"


class Completion:
    """Tracker of the states of one engine that detects the end of its training.

    The embedded engine reports completion in its status detail. For other servers training is
    complete when the engine went OFFLINE by itself in the last step of the job this client sent.
    """

    def __init__(self) -> None:
        self.job = ""
        """The job, as YAML, that this client sent last."""
        self._total: int | None = None
        self._sent = False
        """This client sent a job after the last observed start."""
        self._last: EngineState | None = None
        self._step = 0
        self._ran = False
        self._text = ""

    def sent(self, job: str) -> None:
        """Record the job, as YAML, that the server accepted from this client."""
        self.job = job
        try:
            total = get(load_job(job), TOTAL)
        except AjetError:  # unreadable here, although the server accepted it
            total = None
        self._total, self._sent = total if isinstance(total, int) else None, True

    def ended(self, seen: ServerStatus) -> str:
        """Return how training ended; empty while it is not known to be complete.

        The result is empty for a client that has only observed OFFLINE: another client may be about
        to start the engine. See `ended_before`.
        """
        self.note(seen)
        return self._text if seen.reachable else ""

    def note(self, seen: ServerStatus) -> None:
        """Record a status of the engine; repeating one has no effect."""
        if not seen.reachable:
            return
        last, self._last = self._last, seen.state
        if seen.state is not EngineState.OFFLINE:
            if last is EngineState.OFFLINE or (seen.state is EngineState.BOOTING is not last):
                self._begun()
            self._ran, self._text = True, ""
            self._step = 0 if seen.state is EngineState.BOOTING else seen.step or self._step
        elif self._ran and not self._text:
            self._text = ended_before(seen) or self._counted(seen)

    def _begun(self) -> None:
        """Record the start of a run with the job that this client has sent, or an unknown one."""
        self._step = 0
        if not self._sent:
            self._total = None
        self._sent = False

    def _counted(self, seen: ServerStatus) -> str:
        if (
            self._total is None
            or self._step < self._total
            or seen.trouble != "stopped by another client"
        ):
            return ""  # stopped before the last step, by this client, or with its server
        return f"{COMPLETE}: step {self._total} of {self._total}"


def ended_before(seen: ServerStatus) -> str:
    """Return the end of training that an OFFLINE engine reports; empty if it reports none."""
    off = seen.reachable and seen.state is EngineState.OFFLINE
    return seen.detail if off and seen.detail.startswith(COMPLETE) else ""


class UpdateCalls:
    """Counter of policy updates that calls a callback once for each.

    It counts by the global step, so that no update is missed between two polls.

    A call is due when the engine is in WEIGHT_SYNCING, at the latest when it is in a later step.
    Calls are made one after the other, on a thread that runs while some are due.

    Args:
        callback: Called without arguments.
        ended: Returns how training ended, as `Completion.ended`; empty while it is not complete.
        seen: Current status; no call is made for an update that has already begun.
    """

    def __init__(
        self,
        callback: Callable[[], object],
        ended: Callable[[ServerStatus], str],
        seen: ServerStatus,
    ) -> None:
        self._callback = callback
        self._ended = ended
        self._next: int | None = None
        """Step of the next update to call for; None while the step is unknown."""
        self._sync_since = 0.0
        """`since` of the last WEIGHT_SYNCING for which a call was made."""
        self._due = 0
        self._calling = False
        self._lock = threading.Lock()
        if seen.reachable and seen.step:
            syncing = seen.state is EngineState.WEIGHT_SYNCING
            self._next = seen.step + syncing

    def note(self, seen: ServerStatus) -> None:
        """Record a changed status and make the calls that are due."""
        if not seen.reachable:
            return
        if seen.state in (EngineState.OFFLINE, EngineState.BOOTING):
            self._until(_last(self._ended(seen)) + 1)  # the rest of a completed run
            self._next = None
            return
        if seen.step:
            if self._next is None or seen.step < self._next - 1:
                self._next = seen.step  # first observation, or a restart at a lower step
            self._until(seen.step)
        if seen.state is EngineState.WEIGHT_SYNCING and seen.since != self._sync_since:
            self._sync_since = seen.since
            if self._next is None:  # an engine that does not report its step
                self._call(1)
            elif seen.step:
                self._until(seen.step + 1)

    def _until(self, step: int) -> None:
        """Make the missing calls for updates before `step`."""
        if self._next is not None and step > self._next:
            self._call(step - self._next)
            self._next = step

    def _call(self, count: int) -> None:
        with self._lock:
            self._due += count
            if self._calling:
                return
            self._calling = True
        threading.Thread(target=self._run, name="weight sync", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._due:
                    self._calling = False
                    return
                self._due -= 1
            try:
                self._callback()
            except Exception:  # from the script; later updates are still called for
                log.exception("a callback of a weight sync failed")


def _last(ended: str) -> int:
    """Return the last step of a complete run; -1 when the server does not name it."""
    match = re.search(r"\bstep (\d+)", ended)
    return int(match[1]) if match else -1
