"""The connection of a client to its server, and waits with the client's patience."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from ajet_swarm.api.watcher import ServerStatus, Watcher
from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.client.training import Completion, ended_before
from ajet_swarm.common.tasks import Tasks
from ajet_swarm.protocol.errors import (
    EngineOff,
    GaveUp,
    SwarmError,
    TrainingFinished,
    Unreachable,
    WrongUse,
)
from ajet_swarm.protocol.schemas import EngineState, PoolInfo
from ajet_swarm.runtime import Runtime

log = logging.getLogger(__name__)

PATIENCE: Final = 60.0
"""Seconds to wait for an OFFLINE engine, or for a server that was never reached."""
REPORT: Final = 30.0
"""Seconds between two log messages of one wait."""
QUIET_FOR: Final = 10.0
"""Seconds for which no wait repeats a warning: many threads may wait for the same state."""
ROLLING: Final = frozenset({EngineState.ROLLING})


class Link:
    """What the parts of a client share: its server, the status of that, and how long it waits.

    The first use of `wire` or `watcher` starts to poll the server; both raise `WrongUse` when the
    client is closed, or was started in another event loop.

    Args:
        wire: Single requests to the server.
        patience: Seconds to wait for an engine that is OFFLINE, or for a server that was never
            reached; None waits without limit.
        runtime: Source of times and pauses.

    Attributes:
        name: Name of the server in messages.
        completion: Detects the end of training.
        closed: The client is closed.
        started: It polls the server.
        tasks: What ends with the client.
        watched: The watcher, which may not run.
    """

    def __init__(self, wire: SwarmWire, patience: float | None, runtime: Runtime) -> None:
        self.name, self.patience = wire.name, patience
        self.clock, self.chance = runtime.clock, runtime.chance
        self.completion = Completion()
        self.closed = self.started = False
        self.tasks = Tasks(f"swarm:{self.name}")
        self._wire = wire
        self.watched = Watcher(wire, self.clock.wall, fails_waits=True)
        self.watched.add_listener(self.completion.note)
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop that owns the connections and the watcher; None before the start."""
        self._warned_at = 0.0
        """Unix seconds of the last warning of any wait."""

    def start(self) -> None:
        """Start to poll the server, unless that is done."""
        if self.closed:
            raise WrongUse("this client is closed", self.name, "Make a new one")
        self.check_loop()
        if not self.started:
            self.started, self._loop = True, asyncio.get_running_loop()
            self.tasks.spawn(self.watched.run(), "watcher")

    def check_loop(self) -> None:
        """Raise `WrongUse` in another event loop than that of the start."""
        if self.started and self._loop is not asyncio.get_running_loop():
            raise WrongUse(
                "this client was started in another event loop",
                self.name,
                "Make one in each asyncio.run, or use SwarmClient",
            )

    @property
    def wire(self) -> SwarmWire:
        """Single requests to the server."""
        self.start()
        return self._wire

    @property
    def watcher(self) -> Watcher:
        """The status watcher of the server."""
        self.start()
        return self.watched

    # -- status of the server --------------------------------------------------------------------

    async def get_engine_status(self) -> tuple[str, dict[str, Any]]:
        """Return the state (`ENGINE.ROLLING`, ...) and the other fields of the status.

        Without a response the state is `ENGINE.CANNOT_CONNECT`; a network fault never raises.
        """
        wire = self.wire
        try:
            status = await wire.status()
        except SwarmError as error:
            return EngineState.CANNOT_CONNECT.wire, {"error": str(error)}
        return status.engine_status or "", {
            "engine_status": status.engine_status,
            "engine_status_detail": status.engine_status_detail,
            "global_step": status.global_step,
        }

    async def get_rollout_stat(self) -> PoolInfo:
        """Return the progress of the batch; its `is_default` is set if the server reports none."""
        wire = self.wire
        try:
            return await wire.pool() or PoolInfo()
        except SwarmError as error:
            log.warning("no reading of the batch: %s", error)
            return PoolInfo()

    # -- waiting --------------------------------------------------------------------------------

    async def until_rolling(self, since: float) -> ServerStatus:
        """Wait for ROLLING with this client's patience.

        Args:
            since: Unix seconds at the start of the wait.

        Raises:
            TrainingFinished: training is complete.
            EngineOff: the engine was OFFLINE for too long.
            Unreachable: the server was never reached.
        """
        watcher, patience, ended = self.watcher, self.patience, self.completion.ended
        logged_at = self.clock.wall()
        absent = False

        def finished(seen: ServerStatus) -> bool:
            nonlocal logged_at, absent
            if seen.is_in(ROLLING) or ended(seen):
                return True
            now = self.clock.wall()
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
        if current.is_in({EngineState.OFFLINE}) and not ended(current):
            self._warn("%s is OFFLINE: waiting for somebody to start it", self.name)
        seen = await watcher.wait_for(finished)
        if seen.is_in(ROLLING):
            return seen
        if not seen.seen_at:
            raise self._never_reached(seen)
        if end := ended(seen) or ended_before(seen):
            raise TrainingFinished(end, self.name)
        raise EngineOff(
            f"the engine has been OFFLINE for {patience:g} s",
            self.name,
            "Start it, as with auto_sync_train_config_and_start_engine(job)",
        )

    async def reached(self) -> ServerStatus:
        """Wait for a response of the server, with this client's patience; return its status.

        Raises:
            Unreachable: there was none.
        """
        try:
            seen = await self.watcher.refresh(self.patience)
        except TimeoutError:  # the server is frozen for longer than the patience
            seen = self.watcher.current
        if not seen.reachable:
            self._warn_absent(seen)
            try:
                return await self.watcher.wait_for(lambda seen: seen.reachable, self.patience)
            except TimeoutError:
                raise self._never_reached(self.watcher.current) from None
        return seen

    @asynccontextmanager
    async def within(self, timeout: float | None, what: str) -> AsyncIterator[None]:
        """Raise `GaveUp` if the body does not end within `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                yield
        except TimeoutError:
            raise self.gave_up(what, timeout) from None

    def gave_up(self, what: str, timeout: float | None, more: str = "") -> GaveUp:
        """Return the error of a wait that took too long."""
        state = f"the engine is {_shown(self.watched.current, ': {}')}"
        return GaveUp(f"{what} did not come in {timeout or 0:g} s; {state}{more}", self.name)

    def off(self, text: str, todo: str = "") -> EngineOff:
        """Return the error for an OFFLINE engine: `TrainingFinished`, else one with `text`."""
        ended = self.completion.ended(self.watched.current)
        return TrainingFinished(ended, self.name) if ended else EngineOff(text, self.name, todo)

    def _warn(self, text: str, *args: object) -> None:
        """Log a warning, unless another wait has just logged one."""
        now = self.clock.wall()
        if now - self._warned_at > QUIET_FOR:
            self._warned_at = now
            log.warning(text, *args)

    def _warn_absent(self, seen: ServerStatus) -> None:
        """Log that no server responds, and for how long the client waits."""
        limit = "" if self.patience is None else f" {self.patience:g} s"
        why = f"{seen.error}. {self._hint(seen)}"
        self._warn("%s: no swarm server answers, waiting%s: %s", self._wire.url, limit, why)

    def _hint(self, seen: ServerStatus) -> str:
        """Return the remedy for a server that does not respond."""
        path = self._wire.url.partition("://")[2].partition("/")[2]
        if path and seen.trouble == "unrecognized":
            return f"Give it without /{path}, as http://host:port"
        return "Is the address right, and the server running?"

    def _never_reached(self, seen: ServerStatus) -> Unreachable:
        """Return the error for a server that was never reached."""
        patience = f"{self.patience:g} s" if self.patience is not None else "long"
        text = f"no swarm server answered for {patience} ({seen.error})"
        return Unreachable(text, self._wire.url, self._hint(seen), sent=False)


def _shown(seen: ServerStatus, form: str = " ({})") -> str:
    """Return the state of an engine, and what is wrong with its server."""
    return seen.display_state.value + (form.format(seen.error) if seen.error else "")
