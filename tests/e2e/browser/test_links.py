"""Consoles in a browser: real web server, consoles and proxy; a plain client as the browser."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import psutil
import pytest

from ajet_swarm.common.tasks import Tasks
from console.web.notices import BAD_LINK, full
from core.runtime.access import AccessTokens
from core.runtime.home import running
from tests.support.pty.rating_run import N, Served, ask_question, read_screen, served_setup
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.stack import Stack, until
from tests.support.web.client import Browser, browsing

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]


class Site:
    """A web server with its proxy."""

    def __init__(self, stack: Stack, served: Served, ask: Any) -> None:
        self.stack, self.served, self.ask = stack, served, ask

    async def link(self, role: str, name: str, *more: str) -> str:
        """Return a new link."""
        done = await self.run("--json", "run", "web", "--link", role, "--name", name, *more)
        return str(json.loads(done)["link"])

    async def run(self, *args: str) -> str:
        """Run a command and return its output."""
        args = tuple(arg for arg in args if arg != "--json") + (
            ("--json",) if "--json" in args else ()
        )
        done = await asyncio.to_thread(self.stack.run, *args)
        assert done.returncode == 0, done.stderr
        return done.stdout

    async def consoles(self) -> list[dict[str, Any]]:
        """Return the open consoles as the operator sees them."""
        rows: list[dict[str, Any]] = json.loads(await self.run("run", "web", "--list", "--json"))[
            "consoles"
        ]
        return rows


@asynccontextmanager
async def site(home: Path, *args: str) -> AsyncIterator[Site]:
    """Start a proxy and a web server."""
    rating = {"mode": "answer_first", "window": 0.5, "confirm": "enter"}
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
            assert not list(one.stack.home.run.glob("web-*/link"))  # the token is read once
            if sys.platform == "linux":
                limits = psutil.Process(rows_open[0]["pid"]).rlimit(psutil.RLIMIT_DATA)
                assert limits == (1 << 29, 1 << 29)
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


async def test_links_and_pages_of_others_open_nothing(tmp_path: Path) -> None:
    async with site(tmp_path / "home", "--base-path", "/console") as one:
        link = await one.link("viewer", "vera")
        assert urlsplit(link).path == "/console/"
        async with Browser(link) as browser:
            status, text = await browser.get(browser.page)
            assert (status, "needs a link" in text) == (401, True)
            expired = AccessTokens(one.stack.home).add("eve", "rater", -1.0)
            for wrong in (f"{browser.page}?k={key}" for key in ("wrong", "", expired)):
                status, text = await browser.get(wrong)
                assert (status, "wrong, expired or revoked" in text) == (401, True)
            assert await refused(browser, browser.origin) == 401  # no cookie
            assert (await browser.get(link, Host="evil.example"))[0] == 403
            async with browser.session.get(link) as response:
                cookie = response.headers["Set-Cookie"]
                assert response.headers["Referrer-Policy"] == "no-referrer"
                assert "k=" not in await response.text()
            assert "HttpOnly" in cookie
            assert "SameSite=Strict" in cookie
            assert urlsplit(link).query.removeprefix("k=") not in cookie
            for origin in ("http://evil.example", "http://127.0.0.1:1", "null", ""):
                assert await refused(browser, origin) == 403
            assert (await browser.get(browser.page))[0] == 200
            for path in ("/", "/console/"):  # a reverse proxy may remove the path, or not
                assert (await browser.get(f"{browser.origin}{path}static/js/textual.js"))[0] == 200
                assert (await browser.get(f"{browser.origin}{path}pages/enter.js"))[0] == 200
            assert (await browser.get(f"{browser.page}consoles"))[0] == 401
            await one.run("tokens", "revoke", "vera")
            status, text = await browser.get(browser.page)
            assert (status, "wrong, expired or revoked" in text) == (401, True)
            assert await refused(browser, browser.origin) == 401
            assert (await browser.get(link))[0] == 401
        assert await one.consoles() == []


async def test_a_viewer_acts_by_no_route_and_a_revoked_link_closes_its_console(
    tmp_path: Path,
) -> None:
    async with site(tmp_path / "home", "--most", "1") as one:
        one.ask()
        link = await one.link("viewer", "vera")
        async with browsing(link) as browser:
            await browser.keys("3")
            await browser.until(lambda rows: read_screen(rows) is not None, "a group")
            await browser.ws.send_str('["stdin", 7]')
            await browser.ws.send_str("garbage")
            await browser.ws.send_str('["resize", {"width": 1e9, "height": "x"}]')
            await browser.ws.send_str('["resize", {"width": 100, "height": 30}]')
            await browser.until(lambda rows: "view only" in "".join(rows), "the role")
            await browser.keys("2\r?")
            await browser.until(
                lambda rows: "Requests" in "".join(rows), "the help, by the last key"
            )
            proxy = one.stack.base_url.removesuffix("/v1")
            group = next(iter(one.stack.state().groups))
            bearer = {"Authorization": f"Bearer {urlsplit(link).query.removeprefix('k=')}"}
            async with browser.session.post(
                f"{proxy}/control/commands/group.abort",
                json={"group_id": group},
                headers=bearer,
            ) as answer:
                assert answer.status == 403, await answer.text()
            async with Browser(await one.link("rater", "anna")) as second:
                assert (await second.get(second.link))[0] == 200
                status, text = await second.get(second.page)
                assert (status, "All consoles are in use: at most 1" in text) == (503, True)
                await second.connect()  # the page was opened earlier
                assert await second.closed() == full(1).code
            await one.run("tokens", "revoke", "vera")
            assert await browser.closed() == BAD_LINK.code
        await asyncio.to_thread(until, "its process ends", lambda: not consoles_of(one), 20)
        assert one.stack.state().totals.rated == 0


async def test_a_browser_that_leaves_loses_no_vote_and_no_console_outlives_the_server(
    tmp_path: Path,
) -> None:
    async with site(tmp_path / "home") as one:
        one.ask()
        anna = await one.link("rater", "anna")
        async with browsing(anna) as browser:
            await browser.keys("3")
            await browser.until(lambda rows: read_screen(rows) is not None, "a group")
            await browser.keys("2")
            await browser.until(lambda rows: "Enter sends it" in "".join(rows), "the ballot")
            (pid,) = consoles_of(one)
        await asyncio.to_thread(until, "its process ends", lambda: not psutil.pid_exists(pid), 20)
        group = next(iter(one.stack.state().groups.values()))
        assert group.phase == "AWAITING_RATING"
        assert group.rating is None
        assert group.leases == []

        async with browsing(anna) as browser:  # the link opens another console
            await browser.keys("3")
            await browser.until(lambda rows: read_screen(rows) is not None, "the group again")
            port = running(one.stack.home, "proxy").port  # type: ignore[union-attr]
            await asyncio.to_thread(one.stack.kill, "proxy")
            await browser.until(lambda rows: "STALE" in rows[0], "the loss")
            await asyncio.to_thread(one.stack.start, "proxy", "--port", str(port))
            one.ask()
            await browser.until(lambda rows: read_screen(rows) is not None, "a group afterwards")
            (pid,) = consoles_of(one)
            await asyncio.to_thread(one.stack.kill, "web")
            gone = lambda: not psutil.pid_exists(pid)  # noqa: E731
            await asyncio.to_thread(until, "the console ends with its server", gone, 20)


async def refused(browser: Browser, origin: str) -> int:
    """Return the status with which the websocket is refused."""
    with pytest.raises(aiohttp.WSServerHandshakeError) as error:
        await browser.connect(origin)
    return int(error.value.status)


def consoles_of(one: Site) -> list[int]:
    """Return the pids of the console processes of a web server."""
    info = running(one.stack.home, "web")
    assert info is not None
    return [child.pid for child in psutil.Process(info.pid).children()]
