"""A remote proxy: loss and return of the connection, wrong tokens, wrong programs."""

from pathlib import Path

import httpx
import pytest

from ajet_swarm.common.errors import AjetError
from console.backend.attach import TokenUnreadable, read_token
from console.screens.requests.screen import RequestsScreen
from console.screens.requests.widgets import GroupList
from core.events import ConsoleAttached
from proxy.control.client import ControlClient, ControlError
from tests.pilot.app.test_startup import World, until
from tests.pilot.requests.test_screen import PLACES, some
from tests.support.console import FakeLink, RunningConsole, run_console
from tests.support.sample import group_events

DOWN = AjetError("the proxy does not answer")


def listed(console: RunningConsole) -> GroupList:
    return console.app.screen.query_one(GroupList)


def rows(console: RunningConsole) -> list[str]:
    """The list's lines without what counts with the time."""
    return [line[:60] for line in console.text().splitlines() if "Question" in line]


async def lose(console: RunningConsole, seconds: float) -> None:
    """The connection breaks, and time passes."""
    console.link.cut(DOWN)
    for _ in range(20):
        await console.settle()
        if console.session.lost_at is not None:
            break
    console.clock.now += seconds
    await console.settle()


async def back(console: RunningConsole) -> None:
    console.link.mend()
    observing = console.session.observing
    for _ in range(50):
        await console.settle()
        if console.link.followers and not observing:
            observing = True
            console.link.publish(ConsoleAttached(consoles=1))  # as the proxy greets an operator
        if console.session.lost_at is None:
            return
    raise AssertionError("not back")


@pytest.mark.parametrize("read_only", [False, True])
async def test_reconnecting_keeps_the_scroll_position(read_only: bool) -> None:
    async with run_console(
        some(80, "DONE"), places=PLACES, at="requests", read_only=read_only
    ) as console:
        await console.press("end", *["up"] * 25)
        cursor, top, before = listed(console).cursor, listed(console).scroll_offset.y, rows(console)
        assert before
        assert cursor
        await lose(console, 65)
        assert rows(console) == before, "what was known stays on screen"
        assert "STALE 1m05" in console.text()
        await back(console)
        assert "STALE" not in console.text()
        assert (listed(console).cursor, listed(console).scroll_offset.y) == (cursor, top)
        assert rows(console) == before
        console.link.publish(*group_events(99, query="Question 99", at=console.clock.now))
        await console.settle()
        assert (listed(console).cursor, rows(console)) == (cursor, before)


@pytest.mark.parametrize("read_only", [False, True])
async def test_journal_pages_survive_a_reconnect(read_only: bool) -> None:
    state = some(260, "DONE")
    link = FakeLink(state)
    link.journal = [state.groups.pop(name) for name in list(state.groups)[:200]]
    async with run_console(link=link, places=PLACES, at="requests", read_only=read_only) as console:
        await console.press("end")
        await console.settle()
        before = rows(console)
        assert before
        await lose(console, 5)
        await back(console)
        assert rows(console) == before


async def test_a_restarted_proxy_is_read_again() -> None:
    async with run_console(some(5), places=PLACES, at="requests", read_only=True) as console:
        await lose(console, 5)
        fresh = some(3, query="Fresh Question")
        fresh.run_id = "another"
        console.link.state = fresh
        await back(console)
        assert isinstance(console.app.screen, RequestsScreen)
        assert any("Fresh" in line for line in rows(console))
        assert len(rows(console)) == 3


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file"),
        (b"", "no control token"),
        (b"\xff\xfe", "not text"),
        (b"a\nb", "no c"),
    ],
)
def test_a_token_that_cannot_be_read(tmp_path: Path, content: bytes | None, why: str) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(TokenUnreadable, match=why) as caught:
        read_token(file)
    assert "--token-file" in caught.value.todo
    assert str(file) in caught.value.where


ODD = [
    (httpx.Response(401, json={"error": {"message": "the control token is missing or wrong",
      "where": "", "todo": "See --token-file"}}), "token is missing or wrong"),
    (httpx.Response(404, json={"detail": "Not Found"}), "not the proxy of an ajet-console"),
    (httpx.Response(200, text="<html>hello</html>"), "not the proxy of an ajet-console"),
    (httpx.Response(200, json={"state": {"seq": "many"}}), "same version"),
    (httpx.Response(200, json=[1, 2]), "same version"),
]  # fmt: skip
"""What may answer, and the error it causes."""


@pytest.mark.parametrize(("answer", "result"), ODD)
async def test_an_unexpected_program_on_the_port_is_named(
    answer: httpx.Response, result: str
) -> None:
    transport = httpx.MockTransport(lambda request: answer)
    async with ControlClient("http://far", "t", transport) as client:
        with pytest.raises(ControlError) as caught:
            await client.snapshot()
    assert result in str(caught.value)


async def test_a_refused_token_shows_a_failed_start_that_can_recover(tmp_path: Path) -> None:
    token = tmp_path / "their"
    token.write_text("secret")
    world = World(tmp_path, attach="http://far:8000", token_file=token)
    world.link.broken = ControlError("the control token is missing or wrong", status=401)
    async with world.running():
        steps = world.session.steps
        await until(lambda: "link" in steps and steps["link"].phase == "failed")
        assert "token" in world.session.steps["link"].detail
        world.link.mend()
        await until(lambda: world.session.seen)
        assert world.session.steps["link"].phase == "done"


async def test_a_version_mismatch_is_reported_once(tmp_path: Path) -> None:
    token = tmp_path / "their"
    token.write_text("secret")
    world = World(tmp_path, attach="http://far:8000", token_file=token)
    world.link.state.proxy_version = "99.0"
    async with world.running():
        await until(lambda: world.session.seen and world.link.after)
        world.link.reset()
        await until(lambda: world.link.snapshots == 2)
        result = [text for text, _ in world.session.messages if "99.0" in text]
        assert len(result) == 1
        assert "same version" in result[0]
