"""The proxy's process killed, stopped and cut off under load, with the real times."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from core.runtime.home import running
from tests.support.faults.audit import audit, outcomes
from tests.support.faults.load import Load
from tests.support.faults.relay import FarSwarm, RelayState, far_swarm
from tests.support.stack import Stack

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

BUDGET = 60.0
"""Seconds for an answer of both kinds: longer than any of these faults lasts."""
CONFIG = f"""\
proxy:
  answer_budget: {BUDGET}
  answer_limit: {BUDGET}
  stream_budget: {BUDGET}
  keepalive: 0.5
  session_cap: 0
  session_calls: 0
"""


@dataclass
class Rig:
    """A proxy in its own process, with its server and its load."""

    stack: Stack
    swarm: FarSwarm
    load: Load
    rng: random.Random
    port: int

    async def moment(self, most: int = 60) -> None:
        target = self.swarm.requests.total() + self.rng.randint(1, most)
        await self.swarm.until(lambda: self.swarm.requests.total() >= target, 90)

    async def served(self, more: int = 4) -> None:
        since = asyncio.get_running_loop().time()
        await self.swarm.until(lambda: self.load.answered(since) >= more, BUDGET + 10)

    async def start(self) -> None:
        result = ("--swarm-url", self.swarm.url, "--port", str(self.port))
        info = await asyncio.to_thread(self.stack.start, "proxy", *result)
        self.port = info.port


@contextlib.asynccontextmanager
async def running_rig(home: Path, seed: int) -> AsyncIterator[Rig]:
    """All up and under load; the books are checked at the end."""
    home.mkdir()
    (home / "config.yaml").write_text(CONFIG)
    rng = random.Random(seed)

    async def answer(name: str, body: dict[str, Any], index: int) -> str:
        await asyncio.sleep(rng.uniform(0.02, 0.3))
        return f"answer {index} of {name[:6]}"

    swarm = FarSwarm(batch=6, slots=28, answer=answer, sync_seconds=0.2)
    async with far_swarm(swarm):
        with Stack(home) as stack:
            rig = Rig(stack, swarm, Load("", rng, BUDGET + 5.0), rng, 0)
            await rig.start()
            rig.load.url = f"http://127.0.0.1:{rig.port}"
            async with rig.load.running(4):
                await rig.served(2)
                yield rig
            state = await asyncio.to_thread(stack.state)
            async with asyncio.timeout(100):
                while state.open_groups():
                    state = await asyncio.to_thread(stack.state)
            with contextlib.suppress(TimeoutError):
                await swarm.until(lambda: not swarm.ours(state.client_uuid), 60)
            assert await asyncio.to_thread(stack.stop, "proxy") == 0
            books, wrong = audit(stack.home.journal, swarm, rig.load, state.client_uuid)
            result = f"{books} {dict(outcomes(stack.home.journal))} {dict(rig.load.tally())}"
            print(result)
            assert books.clean, "\n".join([result, *wrong])
            assert books.sent > 0
            assert "Traceback" not in stack.log("proxy")


@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.soak)])
async def test_kill_and_start_again(tmp_path: Path, kills: int) -> None:
    async with running_rig(tmp_path / "home", 11) as rig:
        for _ in range(kills):
            await rig.moment()
            with rig.load.outage(proxy=True):
                await asyncio.to_thread(rig.stack.kill, "proxy")
                await rig.start()
            alerts = (await asyncio.to_thread(rig.stack.state)).alerts
            assert any(key.startswith("recovered:") for key in alerts), alerts
            await rig.served()


@pytest.mark.soak
@pytest.mark.parametrize("what", ["frozen", "gone", "mute", "restarted", "synced"])
async def test_kill_while_the_server_is_in_trouble(tmp_path: Path, what: str) -> None:
    """The next proxy finds the server unreachable or without the claimed episodes."""
    relay_states: dict[str, RelayState] = {"frozen": "frozen", "mute": "mute"}
    async with running_rig(tmp_path / "home", 15) as rig:
        for _ in range(3):
            await rig.moment()
            with rig.load.outage(), rig.load.outage(proxy=True):
                if what == "synced":
                    rig.swarm.set_state("WEIGHT_SYNCING")
                else:
                    await rig.swarm.relay.become(relay_states.get(what, "gone"))
                await asyncio.to_thread(rig.stack.kill, "proxy")
                if what == "restarted":
                    rig.swarm.set_state("OFFLINE", 0)
                    await rig.swarm.relay.become("well")
                await rig.start()
                if what == "restarted":
                    rig.swarm.set_state("BOOTING")
                    rig.swarm.set_state("ROLLING", 1)
                await rig.swarm.relay.become("well")
            await rig.served()


@pytest.mark.parametrize("stops", [1, pytest.param(10, marks=pytest.mark.soak)])
async def test_stop_under_load_and_start_again(tmp_path: Path, stops: int) -> None:
    async with running_rig(tmp_path / "home", 12) as rig:
        for _ in range(stops):
            await rig.moment()
            before = [request for request in rig.load.requests if request.how == "open"]
            with rig.load.outage(proxy=True):
                assert await asyncio.to_thread(rig.stack.stop, "proxy") == 0
                await rig.start()
            await rig.served()
            assert before
            assert {line.how for line in before} <= {"answered", "left", "refused"}, before
            alerts = (await asyncio.to_thread(rig.stack.state)).alerts
            assert not any(key.startswith("recovered:") for key in alerts), alerts


@pytest.mark.soak
@pytest.mark.parametrize(
    ("relay_state", "seconds", "word"),
    [
        ("frozen", 20.0, "frozen"),
        ("mute", 40.0, "silent"),
        ("gone", 5.0, "gone"),
        ("gone", 20.0, "gone"),
    ],
)
async def test_an_unreachable_server(
    tmp_path: Path, relay_state: RelayState, seconds: float, word: str
) -> None:
    """Real times: a freeze of 20 s loses no request, and each fault has its name."""
    async with running_rig(tmp_path / "home", 13) as rig:
        await rig.moment()
        loop = asyncio.get_running_loop()
        with rig.load.outage():
            await rig.swarm.relay.become(relay_state)
            began = loop.time()
            named = set()
            while loop.time() < began + seconds:
                state = await asyncio.to_thread(rig.stack.state)
                named |= {
                    server.lost.partition(":")[0]
                    for server in state.servers.values()
                    if server.lost
                }
                await asyncio.sleep(0.5)
            assert word in named
            await rig.swarm.relay.become("well")
        await rig.served()
        state = await asyncio.to_thread(rig.stack.state)
        assert not any(server.lost for server in state.servers.values())
        if relay_state == "frozen":
            assert not any(request.how == "refused" for request in rig.load.requests), (
                rig.load.faults()
            )
    assert running(rig.stack.home, "proxy") is None
