"""Nothing is left of requests: no task, no socket, no file, no record, and memory stays flat."""

import asyncio
import gc
import random
from pathlib import Path

import psutil
import pytest

from bench.proxy_cost.run import Stub, child, load, our_proxy, settled
from tests.support.faults.field import configured
from tests.support.faults.load import Load
from tests.support.proxy.front import fronted
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.stack import until

LEAVING = 0.2
KEPT = 16
"""Idle connections to the server that its polls keep open: they use the oldest one in turn."""
FLAT = 12.0
"""MB that memory may grow from the second quarter to the last."""


async def test_no_resources_of_requests_remain(tmp_path: Path) -> None:
    async with (
        ScriptedSwarm(batch=1000, slots=64) as swarm,
        fronted(tmp_path, swarm, configured(replay="off")) as front,
    ):
        swarm.delay = 0.2
        groups, process = front.world.groups, psutil.Process()
        crowd = Load(front.url, random.Random(1), 20.0, leave=2 * LEAVING)
        await crowd.ask()  # objects made once
        await front.world.closed()
        tasks = _tasks()
        files = process.num_fds()
        async with crowd.running(8):
            await swarm.until(lambda: len(crowd.requests) >= 240, 180)
        await front.world.closed(60)
        await front.world.until(lambda: not swarm.claimed())
        assert crowd.tally()["left"] > 2 * KEPT + 10  # a file of each would exceed the bound below
        assert not any(crowd.faults().values())
        facts = groups.server_facts["s"]
        assert not facts.server.claimer.ends.holdings.by_uuid
        assert not facts._windows
        assert not groups.admission._joinable
        queue = facts.server.claimer.queue
        assert (queue.inside, queue.claiming, queue.waiting) == (0, 0, 0)
        assert not front.handler.waiting
        assert front.handler.metrics.open == 0
        # Both ends of a connection to the server are files of this process.
        await front.world.until(lambda: process.num_fds() <= files + 2 * KEPT, 90)
        await front.world.until(lambda: _tasks() <= tasks + 2)


def _tasks() -> int:
    """Number of tasks without those of the scripted server, which has one for each connection."""
    names = [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()]
    return len([name for name in names if name != "RequestHandler.start"])


@pytest.mark.process
@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("requests", [10_000])
def test_memory_stays_flat(tmp_path: Path, requests: int) -> None:
    users, steps, quarter = 32, 20, 5
    with child("bench.proxy_cost.stub") as (_, port):
        stub = Stub(port)
        with our_proxy(stub, tmp_path) as ours:
            stub.delay(10)
            process = psutil.Process(ours.pid)
            resident, sent, left, errors = [], 0, 0, 0
            files = process.num_fds()
            with load(ours.port, users, "--leaving", str(LEAVING)) as crowd:
                crowd.round(requests=4 * users)
                threads = process.num_threads()
                for _ in range(steps):
                    figures = crowd.round(requests=requests / steps, seconds=300)
                    sent += figures["requests"] + figures["left"]
                    left += figures["left"]
                    errors += figures["errors"]
                    gc.collect()
                    resident.append(ours.resident())
            counted = settled(stub)
            early = sum(resident[quarter : 2 * quarter]) / quarter
            late = sum(resident[-quarter:]) / quarter
            # The polls keep some of the idle connections to the server open.
            until("no connection is left", lambda: process.num_fds() <= files + KEPT, 90)
            print(
                f"{sent} requests, {left} left, {errors} errors: {resident[0]:.1f} MB at first, "
                f"{early:.1f} then, {late:.1f} at last; "
                f"{process.num_fds()} files ({files} before), "
                f"{process.num_threads()} threads ({threads} before)"
            )
            print("MB:", " ".join(f"{one:.1f}" for one in resident))
            assert sent >= requests * 0.98
            assert left >= sent * LEAVING / 2
            assert not errors
            assert not counted["open"]
            assert not counted["lost"]
            assert late - early < FLAT
            assert process.num_threads() <= threads + 2
