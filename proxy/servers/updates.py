"""Reader of a swarm server's progress: the figures of its policy updates, its checkpoints."""

import asyncio
import contextlib
import logging
import math
from collections.abc import Mapping
from typing import Any

import msgspec

from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.http.interface import Request
from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.schemas import EngineState, PoolInfo
from core.events import UpdateDone
from proxy.context import ProxyContext, ServerHandle
from proxy.servers.extensions import offers, refresh_checkpoints

log = logging.getLogger(__name__)

UPDATES = "/ajetc/updates"
POLL_EVERY = 15.0
"""Seconds between two readings of the checkpoints, which other clients may change too."""
_NOT_FIGURES = frozenset({"step", "at"})


class UpdateReader:
    """Reader of one server; of a server without the route for updates it uses the pool."""

    def __init__(self, context: ProxyContext, server: ServerHandle) -> None:
        self.context = context
        self.server = server
        self._last_step: int | None = None
        self._changed = asyncio.Event()
        self._batches: dict[int, dict[str, float]] = {}
        """Figures of the pool by global step, for servers without the route for updates."""
        self._trouble = ""
        self.has_read = False
        """The updates and the checkpoints were read since the start."""

    def on_status(self, status: ServerStatus) -> None:
        """Handle a change of the state of the server."""
        if status.state in (EngineState.OFFLINE, EngineState.BOOTING):
            self._batches.clear()
        rolls = status.step if status.state is EngineState.ROLLING else None
        if rolls is not None and rolls <= (self._last_step or 0):
            self._last_step = rolls - 1  # the policy was restored: read later updates again
        if status.reachable:
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
            self._changed.clear()
            if not self.server.watcher.current.reachable:
                continue
            try:
                await self._read()
                self._trouble, self.has_read = "", True
            except (SwarmError, msgspec.MsgspecError, RecursionError) as error:
                if str(error) != self._trouble:  # log it once, not with every reading
                    log.info("%s does not report what it learns: %s", self.server.name, error)
                self._trouble = str(error)

    async def _read(self) -> None:
        if await offers(self.server, UPDATES):
            await self._updates()
        else:
            await self._read_pool()
        await refresh_checkpoints(self.context, self.server)

    async def _updates(self) -> None:
        if self._last_step is None:
            known = self.context.bus.state.servers[self.server.name].steps
            self._last_step = max((one.step for one in known if one.update), default=0)
        client = self.server.client
        answer = await client.transport.request(
            Request(
                "GET",
                f"{client.url}{UPDATES}?after={self._last_step}",
                timeout=10.0,
                repeatable=True,
            )
        )
        if answer.status != 200:
            return
        updates = msgspec.json.decode(answer.body)
        for update in updates["updates"] if isinstance(updates, dict) else updates:
            step = int(update["step"])
            self._last_step = step
            self.context.bus.publish(
                UpdateDone(
                    server=self.server.name,
                    step=step,
                    stats=figures(update),
                    run=self._run_number,
                )
            )

    async def _read_pool(self) -> None:
        """Publish an update when the next step rolls, with the last figures of its pool."""
        seen = self.server.watcher.current
        if seen.state is EngineState.WEIGHT_SYNCING:
            await self.server.watcher.poll_pool()  # it has all rewards now
        elif seen.state is EngineState.ROLLING and seen.step is not None:
            stats = self._batches.pop(seen.step - 1, None)
            if stats is not None:
                self.context.bus.publish(
                    UpdateDone(
                        server=self.server.name,
                        step=seen.step - 1,
                        stats=stats,
                        source="pool",
                        run=self._run_number,
                    )
                )

    @property
    def _run_number(self) -> int:
        known = self.context.bus.state.servers.get(self.server.name)
        return 0 if known is None else known.run_number


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
