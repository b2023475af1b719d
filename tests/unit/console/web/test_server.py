"""The web server with stand-ins for consoles: ends, refusals, and what its log may contain."""

import asyncio
import base64
import contextlib
import logging
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import psutil
import pytest
from aiohttp import web

from ajet_swarm.common.errors import AjetError
from console.web import consoles, server
from console.web.consoles import FOLDER_PREFIX, Attachment, BrowserConsoles
from console.web.handshake import Addresses, Handshake
from console.web.server import WebOptions, WebServer
from core.runtime.access import AccessTokens
from core.runtime.home import Home
from core.runtime.sockets import bind
from tests.support.checks import missing
from tests.support.web.client import Browser, browsing

pytestmark = pytest.mark.process

BEGIN = "import sys; out = sys.stdout.buffer; out.write(b'__GANGLION__\\n'); out.flush()\n"
WAITS = BEGIN + "sys.stdin.buffer.read(6)"
FLOODS = BEGIN + "while True: out.write(b'D\\x00\\x01\\x00\\x00' + bytes(65536))"
FAILS = BEGIN + (
    "sys.stderr.write('x' * 99 + '\\n' + '\\x1b[31mno bearer sk-ajet-abcdefgh12345678\\n')\n"
    "sys.exit(3)"
)
BUSY = BEGIN + "import time; time.sleep(99)"
LIMIT = 20.0


@dataclass
class Site:
    """A server, and what it says."""

    home: Home
    tokens: AccessTokens
    consoles: BrowserConsoles
    said: list[str]
    url: str

    def link(self, name: str) -> str:
        """Return the link of a new viewer."""
        return f"{self.url}/?k={self.tokens.add(name, 'viewer', 60)}"

    @property
    def folders(self) -> list[str]:
        """Folders of consoles."""
        return [one for one in os.listdir(self.home.run) if one.startswith(FOLDER_PREFIX)]

    async def emptied(self) -> None:
        """Wait until no console is open; none leaves a folder."""
        async with asyncio.timeout(LIMIT):
            while self.consoles.count:
                await asyncio.sleep(0.01)
        assert self.folders == []


class Proxy:
    """What consoles attach to."""

    def __init__(self) -> None:
        self.now: Attachment | None = Attachment("http://127.0.0.1:1")

    def __call__(self) -> Attachment:
        if self.now is None:
            raise AjetError("no proxy runs", "/secret/path")
        return self.now


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Proxy:
    """Consoles are ended and followed quickly."""
    for name, value in (("_END_SECONDS", 0.3), ("_MOVED_SECONDS", 0.02)):
        monkeypatch.setattr(consoles, name, value)
    for name, value in (("_CHECK_SECONDS", 0.02), ("_CLOSE_SECONDS", 0.3)):
        monkeypatch.setattr(server, name, value)
    return Proxy()


@contextlib.asynccontextmanager
async def serving(
    folder: Path, proxy: Proxy, script: str, options: WebOptions | None = None
) -> AsyncIterator[Site]:
    """Serve consoles that run a script."""
    home = Home.open(folder / "home")
    tokens, said = AccessTokens(home), []
    many = BrowserConsoles(home.run, proxy, 4)
    options = replace(options or WebOptions(), owner="owner", say=said.append)
    sock = bind("127.0.0.1", 0)
    one = WebServer(Handshake(tokens), Addresses("127.0.0.1", "", False), many, options)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    with pytest.MonkeyPatch.context() as patch:
        command = [sys.executable, "-c", script] if script else ["/does/not/exist"]
        patch.setattr(consoles, "_command", lambda *_: command)
        async with one.serve(sock, None):
            yield Site(home, tokens, many, said, url)


async def stalled(link: str, patch: pytest.MonkeyPatch) -> asyncio.StreamWriter:
    """Open a console from a browser that reads nothing, and wait until the server cannot write."""
    sockets: list[web.WebSocketResponse] = []
    send = web.WebSocketResponse.send_bytes

    async def watched(self: web.WebSocketResponse, *args: object) -> None:
        sockets.append(self)
        await send(self, *args)  # type: ignore[arg-type]

    patch.setattr(web.WebSocketResponse, "send_bytes", watched)
    parts = urlsplit(link)
    async with Browser(link) as browser:
        await browser.get(link)
        (cookie,) = (f"{one.key}={one.value}" for one in browser.session.cookie_jar)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1024)
    key = base64.b64encode(os.urandom(16)).decode()
    lines = (
        "GET /ws HTTP/1.1",
        f"Host: {parts.netloc}",
        f"Origin: http://{parts.netloc}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {key}",
        f"Cookie: {cookie}",
    )
    writer.write("".join(f"{line}\r\n" for line in (*lines, "")).encode())
    assert b"101" in await reader.readline()
    paused = 0
    while paused < 20:  # the buffers of the kernel may still take some
        await asyncio.sleep(0.01)
        blocked = bool(sockets) and sockets[0]._writer.protocol._paused  # type: ignore[union-attr]
        paused = paused + 1 if blocked else 0
    return writer


@pytest.mark.parametrize("how", ["revoked", "stopped"])
async def test_a_browser_that_reads_nothing_delays_no_end(
    tmp_path: Path, proxy: Proxy, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(LIMIT):
        async with serving(tmp_path, proxy, FLOODS) as site:
            writer = await stalled(site.link("silent"), monkeypatch)
            (row,) = site.consoles.rows()
            if how == "revoked":
                site.tokens.revoke("silent")
                await site.emptied()
        assert not psutil.pid_exists(int(str(row["pid"])))
        assert site.consoles.count == 0
        assert any("closed a console" in line for line in site.said)
        assert site.folders == []
        writer.close()


async def test_a_browser_that_leaves_a_busy_console_ends_it(
    tmp_path: Path, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_HEARTBEAT_SECONDS", 1.0)
    async with serving(tmp_path, proxy, BUSY) as site:
        async with browsing(site.link("vera")) as browser:
            with contextlib.suppress(TimeoutError, ConnectionError, aiohttp.ClientError):
                async with asyncio.timeout(LIMIT):
                    while True:  # until the console, the server and the network take no more
                        await browser.keys("j" * 60_000)
        await site.emptied()


async def test_each_refusal_has_its_code_and_sentence_and_names_no_path(
    tmp_path: Path, proxy: Proxy
) -> None:
    async with serving(tmp_path, proxy, WAITS) as site, contextlib.AsyncExitStack() as stack:
        vera = site.link("vera")
        for _ in range(3):
            last = await stack.enter_async_context(browsing(vera))
        fourth = await stack.enter_async_context(Browser(vera))
        await fourth.get(vera)
        status, text = await fourth.get(fourth.page)
        assert (status, "This link has 3 consoles open" in text) == (503, True)
        assert await refused(fourth) == (4429, "This link has 3 consoles open, the most. Close one")
        other = await stack.enter_async_context(browsing(site.link("anna")))
        fifth = await stack.enter_async_context(Browser(site.link("eve")))
        await fifth.get(fifth.link)
        assert "All consoles are in use: at most 4" in (await fifth.get(fifth.page))[1]
        assert (await refused(fifth))[0] == 4429

        await last.ws.send_str("x" * 70_000)
        assert await last.closed() == 1009  # a larger message than any key, click or paste needs
        proxy.now = Attachment("http://127.0.0.1:2")
        assert await other.closed() == 4410
        await site.emptied()
        proxy.now = None
        status, text = await other.get(other.page)
        assert (status, "The proxy does not run" in text) == (503, True)
        code, why = await refused(other)
        assert (code, "/" in why) == (4503, False)
        assert any("no proxy runs" in line for line in site.said)


async def refused(browser: Browser) -> tuple[int, str]:
    """Connect; return code and begin of the reason."""
    await browser.connect()
    message = await browser.ws.receive()
    assert message.type is aiohttp.WSMsgType.CLOSE
    return message.data, str(message.extra)[:50]


async def test_a_console_that_fails_leaves_no_token_and_one_line(
    tmp_path: Path, proxy: Proxy, capfd: pytest.CaptureFixture[str]
) -> None:
    async with serving(tmp_path, proxy, FAILS) as site, browsing(site.link("vera")) as browser:
        assert await browser.closed() == 1000
        await site.emptied()
    (line,) = (line for line in site.said if "failed" in line)  # said before the server ends
    assert line == "vera: the console failed: \u241b[31mno bearer [redacted]"
    async with serving(tmp_path, proxy, "") as site, Browser(site.link("anna")) as browser:
        await browser.get(browser.link)
        assert (await refused(browser))[0] == 4500
        await site.emptied()
        assert "anna (viewer): No such file or directory" in site.said
    assert "bearer" not in capfd.readouterr().out


async def test_cookies_are_those_of_the_path_and_the_page_says_whose_console_it_is(
    tmp_path: Path, proxy: Proxy
) -> None:
    options = WebOptions(cookie_path="/console", secure=True)
    async with serving(tmp_path, proxy, WAITS, options) as site, Browser(site.link("zoe")) as one:
        async with one.session.get(one.link) as answer:
            cookie = answer.headers["Set-Cookie"]
        assert not missing(cookie, "Path=/console", "Secure")
        assert (await one.get(f"{site.url}/consoles", Authorization="Bearer caf\xe9"))[0] == 401
    async with serving(tmp_path, proxy, WAITS) as site, Browser(site.link("vera")) as browser:
        assert "now opens" not in (await browser.get(browser.link))[1]
        assert "now opens" not in (await browser.get(browser.link))[1]
        assert "The console of vera (viewer)" in (await browser.get(browser.page))[1]
        assert "now opens the console of anna" in (await browser.get(site.link("anna")))[1]
        assert "The console of anna (viewer)" in (await browser.get(browser.page))[1]


async def test_the_log_has_neither_keys_nor_cookies(
    tmp_path: Path, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving(tmp_path, proxy, WAITS) as site:
        link = site.link("vera")
        key = urlsplit(link).query.removeprefix("k=")
        for request in (
            f"GET /?k={key} HTTP/9.x\r\nHost: 127.0.0.1\r\n\r\n",
            f"GET /?k={key} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Bad\x01: b\r\n\r\n",
            f"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: a={key}; b={'x' * 9000}\r\n\r\n",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(link).port)
            writer.write(request.encode())
            assert b"400" in await reader.readline()
            writer.close()
    assert "bad request from 127.0.0.1" in caplog.text
    assert key not in caplog.text
    assert "Traceback" not in caplog.text
