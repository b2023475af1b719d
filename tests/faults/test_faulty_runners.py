"""Many users, many updates, a quarter of all calls fails: everybody is answered."""

import asyncio
import random
from pathlib import Path

import pytest

from core.events import GroupClosed
from core.settings import Settings
from tests.support.faults.load import Load
from tests.support.faults.runners import KINDS, OF_STREAMS, FaultyRunners, unmarked
from tests.support.proxy.front import fronted
from tests.support.proxy.world import settings
from tests.support.scripted.swarm import ScriptedSwarm

LATE = 0.4
"""Seconds; 10 in the settings as they are shipped."""
BUDGET = 60.0
LONGER = 10.0
"""Seconds a user may wait longer than most; a silent one that is waited for takes `BUDGET`."""


def configured(answer: str) -> Settings:
    """Settings with short limits for late candidates, and without caps on sessions."""
    proxy = {
        "answer": answer,
        "straggler_after": LATE,
        "straggler_limit": 2 * LATE,
        "answer_budget": BUDGET,
        "answer_limit": BUDGET,
        "stream_budget": BUDGET,
        "session_cap": 0,
        "session_calls": 0,
    }
    return settings(proxy=proxy, rating={"window": 0.0})


async def run(home: Path, users: int, updates: int, answer: str, streaming: str) -> None:
    """Users ask until so many updates are done and each kind of failure has occurred."""
    rng = random.Random(7)
    async with ScriptedSwarm(batch=8, slots=4 * users) as swarm:
        swarm.streaming = streaming
        runners = FaultyRunners(swarm, rng, 4)
        failures = {*KINDS, *(OF_STREAMS if answer == "live" else ())}
        async with fronted(home, swarm, configured(answer)) as front:
            load = Load(front.url, rng, budget=BUDGET + 5.0, leave=0.0)
            now = asyncio.get_running_loop().time
            began = now()
            async with load.running(users):
                await swarm.until(
                    lambda: (swarm.step or 0) > updates and failures <= runners.counts.keys(), 900
                )
            seconds = now() - began
            swarm.set_state("ROLLING_POST")  # the last silent ones are given back
            await front.world.closed(10.0)
            waits = sorted(request.ended - request.began for request in load.requests)
            middle = waits[len(waits) // 2]
            print(
                f"{users} users, {(swarm.step or 0) - 1} updates, {len(waits)} requests in "
                f"{seconds:.0f} s, median {middle:.2f} s, longest {waits[-1]:.2f} s, "
                f"{dict(load.tally())}, calls {dict(runners.counts)}"
            )
            failed = [
                kind.cause for kind in front.world.kinds(GroupClosed) if kind.phase == "FAILED"
            ]
            assert load.tally() == {"answered": len(load.requests)}, (failed, load.faults())
            assert not swarm.claimed()
            assert not unmarked(front.world.events)
            assert waits[-1] - middle < LONGER


@pytest.mark.parametrize(
    ("answer", "streaming"), [("best", "three"), ("live", "three"), ("live", "keepalive")]
)
async def test_eight_users_and_three_updates(tmp_path: Path, answer: str, streaming: str) -> None:
    await run(tmp_path, 8, 3, answer, streaming)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("answer", "streaming"), [("best", "three"), ("live", "three"), ("live", "keepalive")]
)
async def test_24_users_and_ten_updates(tmp_path: Path, answer: str, streaming: str) -> None:
    await run(tmp_path, 24, 10, answer, streaming)
