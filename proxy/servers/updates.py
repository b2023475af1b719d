"""Follows what a swarm server learns and saves: figures of its updates, its checkpoints."""

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
LOOK_EVERY = 15.0
"""Seconds after which the checkpoints are looked at again: others may save and prune too."""
_NOT_FIGURES = frozenset({"step", "at"})


class UpdateReader:
    """Reads one server for one proxy; servers without the routes are told by their pool."""

    def __init__(self, context: ProxyContext, server: ServerHandle) -> None:
        self.context = context
        self.server = server
        self._after: int | None = None
        self._wanted = asyncio.Event()
        self._batches: dict[int, dict[str, float]] = {}
        """Figures of the pool by global step, of servers that tell nothing else."""
        self._trouble = ""

    def seen(self, seen: ServerStatus) -> None:
        """The server was seen in another state than before."""
        if seen.state in (EngineState.OFFLINE, EngineState.BOOTING):
            self._batches.clear()
        rolls = seen.step if seen.state is EngineState.ROLLING else None
        if rolls is not None and rolls <= (self._after or 0):
            self._after = rolls - 1  # the policy went back: what follows is read anew
        if seen.reachable:
            self._wanted.set()

    def pool(self, pool: PoolInfo) -> None:
        """The pool was read."""
        step = self.server.watcher.current.step if pool.global_step is None else pool.global_step
        stats = pool_stats(pool)
        if stats and step is not None and not pool.stale:
            self._batches[step] = stats
            for old in sorted(self._batches)[:-2]:
                del self._batches[old]

    async def run(self) -> None:
        """Read until cancelled: after each change of the server, and now and then."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY):
                    await self._wanted.wait()
            self._wanted.clear()
            if not self.server.watcher.current.reachable:
                continue
            try:
                await self._read()
                self._trouble = ""
            except (SwarmError, msgspec.MsgspecError, RecursionError) as error:
                if str(error) != self._trouble:  # it comes back with every look
                    log.info("%s does not report what it learns: %s", self.server.name, error)
                self._trouble = str(error)

    async def _read(self) -> None:
        if await offers(self.server, UPDATES):
            await self._updates()
        else:
            await self._by_pool()
        await refresh_checkpoints(self.context, self.server)

    async def _updates(self) -> None:
        if self._after is None:
            known = self.context.bus.state.servers[self.server.name].steps
            self._after = max((one.step for one in known if one.update), default=0)
        client = self.server.client
        answer = await client.transport.request(
            Request(
                "GET", f"{client.url}{UPDATES}?after={self._after}", timeout=10.0, repeatable=True
            )
        )
        if answer.status != 200:
            return
        found = msgspec.json.decode(answer.body)
        for update in found["updates"] if isinstance(found, dict) else found:
            step = int(update["step"])
            self._after = step
            self.context.bus.publish(
                UpdateDone(server=self.server.name, step=step, stats=figures(update))
            )

    async def _by_pool(self) -> None:
        """An update is over when the next step rolls; its figures are those last read."""
        seen = self.server.watcher.current
        if seen.state is EngineState.WEIGHT_SYNCING:
            await self.server.watcher.poll_pool()  # by now it has the last rewards too
        elif seen.state is EngineState.ROLLING and seen.step is not None:
            stats = self._batches.pop(seen.step - 1, None)
            if stats is not None:
                self.context.bus.publish(
                    UpdateDone(
                        server=self.server.name, step=seen.step - 1, stats=stats, source="pool"
                    )
                )


def figures(update: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of one update as the engine tells it; what is null or no number is left out."""
    extra = update.get("extra")
    told = {**(extra if isinstance(extra, Mapping) else {}), **update}
    return {
        key: float(value)
        for key, value in told.items()
        if isinstance(value, int | float) and key not in _NOT_FIGURES
    }


def pool_stats(pool: PoolInfo) -> dict[str, float]:
    """Reward and signal of the batch in the pool, over all clients; empty without rewards.

    Keys are those of `/ajetc/updates`. A task teaches nothing when its rewards are all equal.
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
        "reward_std": math.sqrt(math.fsum((one - mean) ** 2 for one in values) / len(values)),
    }
