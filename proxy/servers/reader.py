"""Reader of what a swarm server reports besides status and pool: itself, training run, progress.

One loop reads after each change of the server, and periodically what other clients may change too.

The training run says whose global steps the answers count. The embedded engine reports an id that
is stored with its weights. An AgentJet server reports nothing of the kind, so each observed start
counts as a new run: a start while no proxy watched is only noticed if the global step went back.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from pathlib import PurePosixPath
from typing import Any

import msgspec

from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.job.schema import EXPERIMENT
from ajet_swarm.job.tree import JobError, get, load_job
from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.schemas import EngineState, PoolInfo
from core.events import TrainingRunIdentified, UpdateDone
from core.state import Server
from proxy.context import ProxyContext, ServerHandle
from proxy.servers.extensions import ask, engine_info, offers, refresh_checkpoints

log = logging.getLogger(__name__)

UPDATES = "/ajetc/updates"
LIMIT = 10.0
"""Timeout in seconds of a reading of the updates."""
POLL_EVERY = 15.0
"""Seconds between two readings of updates and checkpoints."""
_NAME_LENGTH = 60
_NOT_FIGURES = frozenset({"step", "at"})


class ServerReader:
    """Reader of one server.

    Attributes:
        has_read: The updates and the checkpoints were read since the start.
    """

    def __init__(self, context: ProxyContext, server: ServerHandle) -> None:
        self.context = context
        self.server = server
        self.has_read = False
        self._changed = asyncio.Event()
        self._last_step: int | None = None
        self._batches: dict[int, dict[str, float]] = {}
        """Figures of the pool by global step, for servers without the route for updates."""
        self._troubles: dict[str, str] = {}
        """Failure of the last reading of each kind; empty if it succeeded."""

    def on_status(self, status: ServerStatus) -> None:
        """Handle a change of the state; call it after the event of this status was published."""
        if status.state in (EngineState.OFFLINE, EngineState.BOOTING):
            self._batches.clear()
        rolls = status.step if status.state is EngineState.ROLLING else None
        if rolls is not None and rolls <= (self._last_step or 0):
            self._last_step = rolls - 1  # the policy was restored: read later updates again
        if not status.reachable:
            return
        known = self._state()
        unknown = known is not None and not known.run_number
        if self.server.trains and status.state.rolling and unknown:
            self.server.identifying = self.server.identifying or asyncio.Event()
        self._changed.set()

    def on_pool(self, pool: PoolInfo) -> None:
        """Handle a reading of the pool."""
        step = self.server.watcher.current.step if pool.global_step is None else pool.global_step
        stats = pool_stats(pool)
        if stats and step is not None and not pool.stale:
            self._batches[step] = stats
            for step_ in sorted(self._batches)[:-2]:
                del self._batches[step_]

    async def run(self) -> None:
        """Read until cancelled: after each change of the server, and periodically."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_EVERY):
                    await self._changed.wait()
            changed = self._changed.is_set()
            self._changed.clear()
            if self.server.watcher.current.reachable:
                await self._read(changed)

    async def _read(self, changed: bool) -> None:
        try:
            if changed and self.server.trains and self.server.watcher.current.state.rolling:
                await self._is_reported("its training run", self._identify)
        finally:
            if self.server.identifying is not None:
                self.server.identifying.set()
                self.server.identifying = None
        read = await self._is_reported("what it learns", self._read_progress)
        self.has_read = self.has_read or read

    async def _is_reported(self, what: str, read: Callable[[], Awaitable[None]]) -> bool:
        """Read, and return whether that succeeded; log a failure once, not with every reading."""
        trouble = ""
        try:
            await read()
        except (SwarmError, msgspec.MsgspecError, RecursionError) as error:
            trouble = str(error)
            if trouble != self._troubles.get(what):
                log.info("%s does not report %s: %s", self.server.name, what, error)
        self._troubles[what] = trouble
        return not trouble

    def _state(self) -> Server | None:
        return self.context.bus.state.servers.get(self.server.name)

    # --- training run ---------------------------------------------------------------------------

    async def _identify(self) -> None:
        info = self.server.info = await engine_info(self.server.client)
        if info.run:
            self._publish_run(info.run, info.run_start or "", by_name=True)
            return
        known = self._state()
        if known is not None and known.training_run is not None and known.training_run.start:
            return  # complete already
        experiment, model = await self._experiment(), await self._model()
        if (known := self._state()) is not None:
            self._publish_run(f"{experiment or 'run'}.{known.engine_run}", model, by_name=False)

    def _publish_run(self, name: str, start: str, *, by_name: bool) -> None:
        known = self._state()
        if known is None:
            return
        number = 1
        if known.runs:
            last = known.runs[-1]
            same = last.name == name if by_name else last.engine_run == known.engine_run
            if same and not by_name:  # a failed reading makes no other name
                name = last.name if name.startswith("run.") else name
                start = start or last.start
            if same and (last.name, last.start, last.engine_run) == (name, start, known.engine_run):
                return
            number = last.number if same else last.number + 1
        self.context.bus.publish(
            TrainingRunIdentified(server=self.server.name, number=number, name=name, start=start)
        )

    async def _experiment(self) -> str:
        """Return the name of the job's experiment; empty if unknown."""
        known = self._state()
        if known is not None and known.job is not None and not known.foreign_start:
            return experiment_of(known.job.yaml)
        with contextlib.suppress(SwarmError):
            if folder := await self.server.client.experiment_dir():
                return PurePosixPath(folder).name[:_NAME_LENGTH]
        return ""

    async def _model(self) -> str:
        """Return the model that the job began with, as the server reports it."""
        pool = await self.server.watcher.poll_pool()
        return "" if pool is None or pool.stale else pool.training_model_path or ""

    # --- progress -------------------------------------------------------------------------------

    async def _read_progress(self) -> None:
        if await offers(self.server, UPDATES):
            await self._read_updates()
        else:
            await self._read_pool()
        await refresh_checkpoints(self.context, self.server)

    async def _read_updates(self) -> None:
        known = self._state()
        if self._last_step is None and known is not None:
            self._last_step = max((step.step for step in known.steps if step.update), default=0)
        path = f"{UPDATES}?after={self._last_step or 0}"
        updates: Any = await ask(self.server, Any, path, limit=LIMIT)
        for update in updates["updates"] if isinstance(updates, dict) else updates:
            self._last_step = int(update["step"])
            self._publish_update(self._last_step, figures(update), "engine")

    async def _read_pool(self) -> None:
        """Publish an update when the next step rolls, with the last figures of its pool."""
        seen = self.server.watcher.current
        if seen.state is EngineState.WEIGHT_SYNCING:
            await self.server.watcher.poll_pool()  # it has all rewards now
        elif seen.state is EngineState.ROLLING and seen.step is not None:
            stats = self._batches.pop(seen.step - 1, None)
            if stats is not None:
                self._publish_update(seen.step - 1, stats, "pool")

    def _publish_update(self, step: int, stats: dict[str, float], source: str) -> None:
        run = self.context.bus.state.run_of(self.server.name)
        self.context.bus.publish(
            UpdateDone(server=self.server.name, step=step, stats=stats, source=source, run=run)
        )


def experiment_of(job: str) -> str:
    """Return the experiment's name in the YAML of a job; empty without a readable one."""
    try:
        name = get(load_job(job), EXPERIMENT)
    except JobError:  # sent by a version that accepted it
        return ""
    return name[:_NAME_LENGTH] if isinstance(name, str) else ""


def figures(update: Mapping[str, Any]) -> dict[str, float]:
    """Return the numeric values of one update as the engine reports it."""
    extra = update.get("extra")
    values = {**(extra if isinstance(extra, Mapping) else {}), **update}
    return {
        key: float(value)
        for key, value in values.items()
        if isinstance(value, int | float) and key not in _NOT_FIGURES
    }


def pool_stats(pool: PoolInfo) -> dict[str, float]:
    """Return reward statistics of the pool's batch over all clients; empty without rewards.

    The keys are those of `/ajetc/updates`. A task has no training signal if all its rewards are
    equal.
    """
    tasks = [
        [value for value in rewards if value is not None and math.isfinite(value)]
        for rewards in (pool.completed_tasks_rewards or {}).values()
    ]
    groups = [rewards for rewards in tasks if rewards]
    values = [value for rewards in groups for value in rewards]
    if not values:
        return {}
    mean = math.fsum(values) / len(values)
    dead = sum(max(rewards) == min(rewards) for rewards in groups)
    return {
        "samples": float(len(values)),
        "groups": float(len(groups)),
        "dead_groups": float(dead),
        "no_signal_share": dead / len(groups),
        "reward_mean": mean,
        "reward_std": math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values)),
    }
