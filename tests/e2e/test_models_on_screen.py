"""Two models train in a script of their own: the console shows both servers, and who does what."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from core.runtime.home import Home, running
from proxy.control.client import ControlClient
from tests.support.console import Clock, RunningConsole, run_console
from tests.support.stack import Stack, until

ROOT = Path(__file__).resolve().parents[2]
ROLES = ("planner", "executor")

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]


class Now(Clock):
    """The true time."""

    def __call__(self) -> float:
        return time.time()


@asynccontextmanager
async def looking_on(folder: Path) -> AsyncIterator[RunningConsole]:
    """A console that watches the servers of the example while it trains."""
    command = [sys.executable, "-m", "examples.multi_model", "--updates", "500"]
    with subprocess.Popen(
        [*command, "--keep", str(folder / "example")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
    ) as example:
        try:
            urls = await asyncio.to_thread(_addresses, folder / "example")
            with Stack(folder / "home") as stack:
                result = [text for item in urls.items() for text in ("--swarm-url", "=".join(item))]
                await asyncio.to_thread(stack.proxy, "--watch-only", *result)
                info = running(stack.home, "proxy")
                assert info is not None
                async with (
                    ControlClient(info.url, stack.home.token()) as link,
                    run_console(link=link, clock=Now(), size=(140, 50)) as console,
                ):
                    yield console
        finally:
            example.send_signal(signal.SIGTERM)


def _addresses(folder: Path) -> dict[str, str]:
    def urls_by_role() -> dict[str, str]:
        infos = {role: running(Home.open(folder / role / "home"), "engine") for role in ROLES}
        return {role: info.url for role, info in infos.items() if info is not None}

    return (
        until("both engines", lambda: urls_by_role() if len(urls_by_role()) == 2 else None, 60)
        or {}
    )


async def shown(console: RunningConsole, *patterns: str) -> None:
    """Wait until the screen has all of them at once."""
    missing: list[str] = []
    for _ in range(500):
        text = console.text()
        missing = [pattern for pattern in patterns if not re.search(pattern, text, re.MULTILINE)]
        if not missing:
            return
        await asyncio.sleep(0.2)
        await console.settle()
    raise AssertionError(f"not on screen: {missing}\n{console.text()}")


async def test_both_servers_and_the_holders_of_their_episodes(tmp_path: Path) -> None:
    async with looking_on(tmp_path) as console:
        both = [rf"ENGINE +{role} .* step \d" for role in ROLES]
        await shown(
            console, r"^ watching +planner \+1 ", *both, r"\d running, \d+ of 1 other client"
        )
        console.app.action_go("servers")
        rows = [rf"^ +{role} +\S ROLLING .* \d/8 tasks .* live" for role in ROLES]
        await shown(console, *rows)
        who = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
        await shown(
            console,
            rf"CLIENTS +1 client .*\n +{who} +\d+ episodes",
            rf"^ +{who} +\S+ / \S+ +\d+  {who}",
        )
        await shown(console, r"^ +TASKS ", r"\d+/sum\d+")
        console.app.action_go("engine")
        await shown(
            console,
            *[rf"{role} +\S (ROLLING|WEIGHT)" for role in ROLES],
            r"[1-9]\d* claimed: 0 ours, [1-9]\d* of others",
            r"1 other client: [0-9a-f]{8}-",
        )
