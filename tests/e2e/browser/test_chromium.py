"""Consoles in Chromium: first paint, votes by keys and by mouse, resize, the proxy restarts."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from core.runtime.home import running
from tests.e2e.browser.test_links import Site, site
from tests.support.pty.rating_run import N, RatingScreen, read_screen
from tests.support.stack import until
from tests.support.web.chromium import PROGRAM, Page, chromium

pytestmark = [
    pytest.mark.process,
    pytest.mark.soak,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not PROGRAM, reason="needs Chromium"),
]


async def test_a_person_rates_in_chromium(tmp_path: Path) -> None:
    async with (
        site(tmp_path / "home", "--base-path", "/console") as one,
        chromium(tmp_path / "profile") as page,
    ):
        await page.resize(1280, 800)
        link = await one.link("rater", "anna")
        began = time.monotonic()
        await page.open(link)
        await page.until(lambda rows: "Rate" in "".join(rows), "the first paint")
        print(f"first paint after {time.monotonic() - began:.2f} s")
        address = await page.evaluate("location.href")
        assert address.endswith("/console/")  # without the key
        assert await page.evaluate("document.cookie") == ""
        host = "/".join(address.split("/")[:3])
        assert all(url.startswith((host, "data:")) for url in page.requested)  # no other site

        one.ask()
        await page.key("3")
        await page.until(lambda rows: "Best" in rows[-1], "the keys of a vote")
        if picture := os.environ.get("WEB_PICTURE"):
            await asyncio.sleep(1.0)
            await page.picture(Path(picture))

        columns, rows = page.size
        await page.resize(780, 640)
        shown = await a_group(page)  # the answers are stacked now
        assert page.size[0] < columns
        assert page.size[1] < rows
        await page.key("2")
        await page.until(lambda rows: "Enter sends it" in "".join(rows), "the ballot")
        await page.key("Enter")
        await rewarded(one, shown, shown.answers[1])

        one.ask()
        shown = await a_group(page)
        for clicks in (1, 2):
            await click_text(page, f"q{shown.group}a{shown.answers[0]}", clicks=clicks)
        await page.until(lambda rows: "Enter sends it" in "".join(rows), "the ballot")
        await click_text(page, "⏎ Send", last=True)
        await rewarded(one, shown, shown.answers[0])

        info = running(one.stack.home, "proxy")
        assert info is not None
        await asyncio.to_thread(one.stack.kill, "proxy")
        await page.until(lambda rows: "STALE" in rows[0], "the loss")
        await asyncio.to_thread(one.stack.start, "proxy", "--port", str(info.port))
        one.ask()
        shown = await a_group(page)
        await page.key("3")
        await page.key("Enter")
        await rewarded(one, shown, shown.answers[2])

        assert "anna (rater)" in await page.evaluate("document.title")
        await one.run("tokens", "revoke", "anna")
        await said(page, "document.getElementById('said').innerText", "expired or revoked")
        await page.open(await one.link("viewer", "vera"))
        await said(page, "document.title", "vera (viewer)")
        await page.open(await one.link("viewer", "eve"))
        await said(page, "document.body.innerText + location.search + '.'", "eve (viewer)\n\n")
        await said(page, "document.body.innerText + location.search + '.'", "Open the console.")


async def said(page: Page, expression: str, text: str) -> None:
    """Wait until an expression of the page contains a text."""
    async with asyncio.timeout(30):
        while text not in str(await page.evaluate(expression)):
            await asyncio.sleep(0.05)


async def a_group(page: Page) -> RatingScreen:
    """Wait for a group and return what is shown."""
    shown = read_screen(await page.until(lambda rows: read_screen(rows) is not None, "a group"))
    assert shown is not None
    return shown


async def click_text(page: Page, text: str, *, last: bool = False, clicks: int = 1) -> None:
    """Click the first place of a text, or its last one."""
    places = [(row.index(text), at) for at, row in enumerate(page.grid.rows) if text in row]
    assert places, f"{text} is not shown\n" + "\n".join(page.grid.rows)
    await page.click(*places[-1 if last else 0], clicks)


async def rewarded(one: Site, shown: RatingScreen, best: int) -> None:
    """Wait for the rewards of a group at the server; they equal the vote."""

    def received() -> dict[int, float] | None:
        rewards = one.served.received().get(shown.group, {})
        return rewards if len(rewards) == N else None

    rewards = await asyncio.to_thread(until, "the rewards", received, 60)
    assert rewards == {index: float(index == best) for index in range(N)}
