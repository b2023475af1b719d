"""Consoles in a browser: real web server, consoles and proxy; a plain client as the browser."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ajet_swarm.common.tasks import Tasks
from core.runtime.home import running
from tests.support.browser import browsing
from tests.support.pty.rating_run import N, Served, ask_question, read_screen, served_setup
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.stack import Stack, until

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]


class Site:
    """A web server with its proxy."""

    def __init__(self, stack: Stack, served: Served, ask: Any) -> None:
        self.stack, self.served, self.ask = stack, served, ask

    async def link(self, role: str, name: str, *more: str) -> str:
        """Return a new link."""
        done = await self.run("--json", "web", "--link", role, "--name", name, *more)
        return str(json.loads(done)["link"])

    async def run(self, *args: str) -> str:
        """Run a command and return its output."""
        args = tuple(one for one in args if one != "--json") + (
            ("--json",) if "--json" in args else ()
        )
        done = await asyncio.to_thread(self.stack.run, *args)
        assert done.returncode == 0, done.stderr
        return done.stdout

    async def consoles(self) -> list[dict[str, Any]]:
        """Return the open consoles as the operator sees them."""
        rows: list[dict[str, Any]] = json.loads(await self.run("web", "--list", "--json"))[
            "consoles"
        ]
        return rows


@asynccontextmanager
async def site(home: Path, *args: str) -> AsyncIterator[Site]:
    """Start a proxy and a web server."""
    rating = {"mode": "answer_first", "window": 0.5}
    async with (
        ScriptedSwarm(batch=8, repeat=N) as swarm,
        served_setup(home, swarm, rating) as (served, stack, client, tasks),
    ):
        await asyncio.to_thread(stack.start, "web", "--port", "0", *args)
        number = iter(range(1, 100))
        yield Site(stack, served, lambda: ask(tasks, client, next(number)))


def ask(tasks: Tasks, client: Any, number: int) -> None:
    """Send one question in the background."""
    tasks.spawn(ask_question(client, number), "user")


async def test_a_vote_by_keys_in_a_browser_is_the_reward_the_server_receives(
    tmp_path: Path,
) -> None:
    async with site(tmp_path / "home") as one:
        one.ask()
        async with browsing(await one.link("rater", "anna")) as browser:
            await browser.until(lambda rows: "Rate" in "".join(rows), "the first paint")
            assert browser.received > 1_000
            await browser.keys("3")
            rows = await browser.until(lambda rows: read_screen(rows) is not None, "a group")
            shown = read_screen(rows)
            assert shown is not None
            await browser.keys("2")
            await browser.until(lambda rows: "Enter sends it" in "".join(rows), "the ballot")
            await browser.keys("\r")
            await browser.until(lambda rows: read_screen(rows) is None, "that the vote is taken")
            rows_open = await one.consoles()
        assert [(row["name"], row["role"]) for row in rows_open] == [("anna", "rater")]
        assert rows_open[0]["rss_mb"] > 20

        def received() -> dict[int, float] | None:
            rewards = one.served.received().get(shown.group, {})
            return rewards if len(rewards) == N else None

        best = shown.answers[1]
        rewards = await asyncio.to_thread(until, "the rewards", received, 60)
        assert rewards == {index: float(index == best) for index in range(N)}
        group = next(iter(one.stack.state().groups.values()))
        assert group.rating is not None
        assert group.rating.rater == "anna"
        assert running(one.stack.home, "web") is not None
