"""Real processes: a proxy that only watches, and prompts tried from the command line."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from core.runtime.home import running
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.stack import Stack
from tests.unit.proxy.control.test_watch_only import READS

run = asyncio.to_thread


@pytest.fixture
async def swarm() -> AsyncIterator[ScriptedSwarm]:
    async with ScriptedSwarm() as made:
        yield made


async def test_a_watch_only_proxy_reads_and_serves_no_requests(
    tmp_path: Path, swarm: ScriptedSwarm
) -> None:
    with Stack(tmp_path / "home") as stack:
        await run(stack.proxy, "--watch-only", "--swarm-url", f"gpu={swarm.url}")
        info = running(stack.home, "proxy")
        assert info is not None
        assert info.extra["watch_only"] == "yes"
        async with httpx.AsyncClient(base_url=info.url, timeout=60, trust_env=False) as http:
            answer = await http.post("/v1/chat/completions", json={"messages": []})
            assert answer.status_code == 503
            assert "only watches" in answer.json()["error"]["message"]
        await swarm.until(lambda: swarm.requests["/get_episode_buffer"] > 1, 90)
        state = await run(stack.state)
        assert state.watch_only
        assert state.servers["gpu"].state == "ROLLING"
        for verb in (
            ["engine", "try", "hello"],
            ["rating", "mode", "hold"],
            ["engine", "stop", "--yes"],
        ):
            done = await run(stack.run, *verb)
            assert done.returncode == 1, verb
            assert "only watches" in done.stderr
        assert (await run(stack.run, "status")).returncode == 0
        assert await run(stack.stop, "proxy") == 0
    assert set(swarm.requests) <= READS | {"/health"}
    assert not swarm.claims
    assert not swarm.active_clients


async def test_a_prompt_is_tried_and_trains_nothing(tmp_path: Path, swarm: ScriptedSwarm) -> None:
    with Stack(tmp_path / "home") as stack:
        await run(stack.proxy, "--swarm-url", f"gpu={swarm.url}")
        done = await run(stack.run, "engine", "try", "hello", "--server", "gpu")
        assert done.returncode == 0, done.stderr
        assert "gpu" in done.stdout
        assert "step 1" in done.stdout
        again = json.loads((await run(stack.run, "engine", "try", "hello", "--json")).stdout)
        assert again["try"]["text"]
        assert not again["try"]["error"]
        assert [one["prompt"] for one in again["last"]] == ["hello"]
        nowhere = await run(stack.run, "engine", "try", "hello", "--server", "other")
        assert nowhere.returncode != 0
        assert "no server `other`" in nowhere.stderr
        await swarm.until(lambda: not swarm.claimed())
        assert len(swarm.claims) == 2
        assert not swarm.reward_log


async def test_an_interrupted_try_gives_its_episode_back(
    tmp_path: Path, swarm: ScriptedSwarm
) -> None:
    swarm.delay = 60.0
    with Stack(tmp_path / "home") as stack:
        await run(stack.proxy, "--swarm-url", f"gpu={swarm.url}")
        child = subprocess.Popen(
            [sys.executable, "-m", "console", "engine", "try", "slow"],
            env=stack.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            await swarm.until(lambda: swarm.chats, 90)
            child.send_signal(signal.SIGINT)
            assert await run(child.wait, 90) == 130
        finally:
            child.kill()
        await swarm.until(lambda: not swarm.claimed(), 60)
        late = await run(stack.run, "engine", "try", "slow", "--timeout", "0.5")
        assert late.returncode == 1
        assert "cancelled" in late.stdout
        await swarm.until(lambda: not swarm.claimed(), 60)
        assert not swarm.reward_log
