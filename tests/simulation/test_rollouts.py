"""A script with far more rollouts than the server has episodes: all finish, and few claims fail."""

import asyncio
import random

import pytest

from ajet_swarm.client.asynchronous import AsyncSwarm
from ajet_swarm.protocol.models import Task, WorkflowOutput
from ajet_swarm.runtime import Chance, Clock, Runtime
from tests.simulation.loop import Incarnation, SimulatedLoop, simulated_loop
from tests.simulation.server import EPOCH, URL, SimulatedServer, SimulatedTransport

SLOTS = 8
ROLLOUTS = 64
MOST_REFUSED = 4.0
"""Refused claims per second on average, over the whole script."""


async def _script(loop: SimulatedLoop, seed: int, seconds: tuple[float, float]) -> float:
    """Run all rollouts of a script; return the number of refused claims per second."""
    chance = random.Random(f"script {seed}")
    server = SimulatedServer(random.Random(f"server {seed}"), lambda *_: True)
    server.pool.batch, server.pool.repeat, server.pool.slots = 10**6, SLOTS, SLOTS
    server.start()
    clock = Clock(wall=lambda: EPOCH + loop.time(), monotonic=loop.time)
    runtime = Runtime(clock, Chance(chance))
    transport = SimulatedTransport(server, Incarnation("script"))
    swarm = AsyncSwarm(URL, client_uuid="script", runtime=runtime, transport=transport)

    async def rollout(number: int) -> None:
        uuid, _ = await swarm.begin_episode()
        await asyncio.sleep(chance.uniform(*seconds))
        await swarm.end_episode(Task(task_id=f"t{number}"), uuid, WorkflowOutput(reward=1.0))

    async with swarm:
        began = loop.time()
        await asyncio.gather(*(rollout(number) for number in range(ROLLOUTS)))
        taken = loop.time() - began
    assert len(server.pool.ends) == ROLLOUTS
    assert not server.pool.claimed()
    return len(server.pool.refusals) / taken


@pytest.mark.parametrize("seconds", [(0.5, 2.0), (2.0, 6.0), (8.0, 20.0)])
def test_few_claims_are_refused_and_all_rollouts_finish(seconds: tuple[float, float]) -> None:
    with simulated_loop(0, max_steps=1e7) as loop:
        refused: float = loop.run_until_complete(_script(loop, 0, seconds))
    assert refused <= MOST_REFUSED
