"""Checklist 74: what the proxy adds to an answer, with one candidate and an instant server.

Machine-dependent, so measured and bounded by `make soak` alone: server, proxy and users are
processes of their own, and the bounds are for an otherwise idle machine.
"""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
import uvloop

from bench.proxy_cost.load import Crowd
from bench.proxy_cost.run import Stub, child, our_proxy

pytestmark = [pytest.mark.soak, pytest.mark.timeout(180)]

SECONDS = 4.0
SLOW = 500.0
"""Milliseconds of a completion while a hundred are asked for at once."""


class Spread(Crowd):
    """Users that do not begin in one moment: in lockstep each would wait for all the others."""

    async def round(self, requests: int, seconds: float) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        self.reset(requests, time.perf_counter() + seconds)
        self.busy = len(self.users)
        for number, user in enumerate(tuple(self.users)):
            loop.call_later(number * SLOW / 1000 / self.busy, user.ask)
        assert self.idle is not None
        await self.idle
        waited = sorted(self.waited)
        return {
            "p50": waited[len(waited) // 2] * 1000,
            "p99": waited[len(waited) * 99 // 100] * 1000,
            "requests": len(waited),
            "errors": self.errors,
        }


def felt(port: int, users: int) -> tuple[float, float]:
    """p50 and p99 in milliseconds; so many users ask one request after the other.

    The header makes it one candidate; an instant server asked directly does not look at it.
    """

    async def run() -> tuple[float, float]:
        crowd = Spread(port, False, 0.0, 1)
        crowd.before = crowd.before.replace(b"\r\n\r\n", b"\r\nx-ajet-train: no\r\n\r\n", 1)
        await crowd.connect(users)
        await crowd.round(4 * users, 30.0)
        figures = await crowd.round(0, SECONDS)
        assert not figures["errors"]
        for user in tuple(crowd.users):
            if user.transport is not None:
                user.transport.abort()
        print(
            f"{users:4} users: p50 {figures['p50']:.2f} ms, p99 {figures['p99']:.2f} ms", end="; "
        )
        print(f"{figures['requests'] / SECONDS:.0f} requests/s")
        return float(figures["p50"]), float(figures["p99"])

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


def test_74_what_an_answer_waits_for_the_proxy(tmp_path: Path) -> None:
    with child("bench.proxy_cost.stub") as (_, port), our_proxy(Stub(port), tmp_path) as ours:
        felt(ours.port, 4)  # warm
        alone = felt(ours.port, 1)[0] - felt(port, 1)[0]
        felt(ours.port, 100)  # users without pauses: the machine's limit, printed and not bounded
        Stub(port).delay(SLOW)
        many = felt(ours.port, 100)[1] - felt(port, 100)[1]
    print(f"added: p50 {alone:.2f} ms alone, p99 {many:.2f} ms at 100 at once of {SLOW:g} ms")
    assert alone < 5.0
    assert many < 50.0
