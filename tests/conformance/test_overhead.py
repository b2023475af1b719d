"""Checklist 74: what the proxy adds to an answer, with one candidate and an instant server.

Machine-dependent, so told and bounded by `make soak` alone: server, proxy and users are processes
of their own, and the figures are of a machine that has nothing else to do.
"""

import asyncio
import time
from pathlib import Path

import pytest

from bench.cost_run import Stub, child, our_proxy
from tests.support.wire import wire

pytestmark = [pytest.mark.soak, pytest.mark.timeout(180)]

ONE = {"x_ajet_train": "no"}
"""Answered from one candidate."""


async def latencies(port: int, users: int, requests: int, **headers: str) -> list[float]:
    """Milliseconds of each answer, shortest first; so many users ask one request after the other."""
    found: list[float] = []

    async def user(number: int) -> None:
        async with wire(f"http://127.0.0.1:{port}") as one:
            for again in range(requests // users):
                body = {
                    "model": "policy",
                    "messages": [{"role": "user", "content": f"{number} {again}"}],
                }
                began = time.perf_counter()
                await one.ask("POST", "/v1/chat/completions", body, **headers)
                answer = await one.answer(30.0)
                found.append((time.perf_counter() - began) * 1000)
                assert answer.status == 200, answer.body

    async with asyncio.TaskGroup() as tasks:
        for number in range(users):
            tasks.create_task(user(number))
    return sorted(found)


def test_74_what_an_answer_waits_for_the_proxy(tmp_path: Path) -> None:
    with child("bench.cost_stub") as (_, port), our_proxy(Stub(port), tmp_path) as ours:
        asyncio.run(latencies(ours.port, 4, 200, **ONE))  # warm
        alone = asyncio.run(latencies(ours.port, 1, 500, **ONE))
        many = asyncio.run(latencies(ours.port, 100, 3000, **ONE))
    p50, p99 = alone[len(alone) // 2], many[len(many) * 99 // 100]
    middle = many[len(many) // 2]
    print(f"one at a time: p50 {p50:.2f} ms; 100 at once: p50 {middle:.1f} ms, p99 {p99:.1f} ms")
    assert p50 < 5.0
    assert p99 < 50.0
