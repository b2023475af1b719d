"""Two clients of one server: a group as large as the pool is not starved by small ones."""

import asyncio
import random

import pytest

from ajet_swarm.api.watcher import Watcher
from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.episodes.claim import EpisodeClaimer
from ajet_swarm.protocol.schemas import Claimed, WireOutput
from ajet_swarm.runtime import Chance, Clock, Runtime
from tests.simulation.loop import Incarnation, SimulatedLoop, simulated_loop
from tests.simulation.server import EPOCH, URL, SimulatedServer, SimulatedTransport

SLOTS = 8
SECONDS = 600.0
LEAST = 10
"""Groups of the whole pool that must end within `SECONDS`."""


class _Client:
    """A client that claims groups one after another, works on each and ends it."""

    def __init__(self, server: SimulatedServer, name: str, seed: int, loop: SimulatedLoop) -> None:
        self.ended = 0
        """Number of groups that ended."""
        self._chance = random.Random(f"{name} {seed}")
        clock = Clock(wall=lambda: EPOCH + loop.time(), monotonic=loop.time)
        runtime = Runtime(clock, Chance(self._chance))
        transport = SimulatedTransport(server, Incarnation(name))
        self._client = SwarmWire(URL, transport, name, runtime=runtime)
        self.watcher = Watcher(self._client, clock.wall)
        self._claimer = EpisodeClaimer(self._client, self.watcher, runtime=runtime)

    async def run(self, size: int) -> None:
        """Claim groups of `size` until cancelled."""
        while True:
            claimed = await self._claimer.claim_group(size)
            await asyncio.sleep(self._chance.uniform(0.5, 2.0))
            task = f"{self._chance.getrandbits(48):012x}"
            await asyncio.gather(*(self._end(each, task) for each in claimed))
            self.ended += 1

    async def _end(self, claimed: Claimed, task: str) -> None:
        output = WireOutput(reward=1.0, metadata={"task_id": task})
        ends = self._claimer.ends
        await ends.end(ends.holdings.by_uuid[claimed.episode_uuid], task, output)


def _groups_of_the_whole_pool(seed: int, small: int) -> int:
    """Return how many groups of 8 one client ends while the other keeps two small ones going."""

    async def run(loop: SimulatedLoop) -> int:
        server = SimulatedServer(random.Random(f"server {seed}"), lambda *_: True)
        server.pool.batch, server.pool.repeat, server.pool.slots = 10**6, SLOTS, SLOTS
        server.start()
        large, other = (_Client(server, name, seed, loop) for name in ("large", "small"))
        works = [
            large.watcher.run(),
            other.watcher.run(),
            large.run(SLOTS),
            other.run(small),
            other.run(small),
        ]
        tasks = [loop.create_task(work) for work in works]
        await asyncio.sleep(SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        return large.ended

    with simulated_loop(seed, max_steps=1e7) as loop:
        ended: int = loop.run_until_complete(run(loop))
    return ended


@pytest.mark.timeout(600)
@pytest.mark.parametrize("small", [1, 2, 4])
def test_a_group_of_the_whole_pool_is_not_starved(small: int) -> None:
    assert _groups_of_the_whole_pool(seed=0, small=small) >= LEAST


@pytest.mark.soak
@pytest.mark.parametrize("small", [1, 2, 4])
@pytest.mark.parametrize("seed", range(1, 11))
def test_a_group_of_the_whole_pool_is_not_starved_for_more_seeds(seed: int, small: int) -> None:
    assert _groups_of_the_whole_pool(seed, small) >= LEAST
