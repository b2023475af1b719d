"""Checklist 74: what the proxy adds to an answer, with one candidate and an instant server.

Machine-dependent, so told and bounded by `make soak` alone: server, proxy and users are processes
of their own, and the bounds are for a machine that has nothing else to do.
"""

import asyncio
from pathlib import Path

import pytest
import uvloop

from bench.cost_load import Crowd
from bench.cost_run import Stub, child, our_proxy

pytestmark = [pytest.mark.soak, pytest.mark.timeout(180)]

SECONDS = 4.0


def felt(port: int, users: int) -> tuple[float, float]:
    """p50 and p99 in milliseconds; so many users ask one request after the other.

    The header makes it one candidate; an instant server asked directly does not look at it.
    """

    async def run() -> tuple[float, float]:
        crowd = Crowd(port, False, 0.0, 1)
        crowd.before = crowd.before.replace(b"\r\n\r\n", b"\r\nx-ajet-train: no\r\n\r\n", 1)
        await crowd.connect(users)
        await crowd.round(20 * users, 30.0)
        seen = await crowd.round(0, SECONDS)
        assert not seen["errors"]
        for user in tuple(crowd.users):
            if user.transport is not None:
                user.transport.abort()
        print(f"{users:4} users: p50 {seen['p50']:.2f} ms, p99 {seen['p99']:.2f} ms", end="; ")
        print(f"{seen['requests'] / seen['seconds']:.0f} requests/s")
        return float(seen["p50"]), float(seen["p99"])

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


def test_74_what_an_answer_waits_for_the_proxy(tmp_path: Path) -> None:
    added: dict[int, tuple[float, float]] = {}
    with child("bench.cost_stub") as (_, port), our_proxy(Stub(port), tmp_path) as ours:
        for users in (1, 100):
            direct, through = felt(port, users), felt(ours.port, users)
            added[users] = through[0] - direct[0], through[1] - direct[1]
    print(f"added: p50 {added[1][0]:.2f} ms alone, p99 {added[100][1]:.2f} ms at 100 at once")
    assert added[1][0] < 5.0
    assert added[100][1] < 50.0
