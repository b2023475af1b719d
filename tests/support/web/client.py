"""A browser without a screen: link, cookie, websocket, and the text that a console paints."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import aiohttp

from tests.support.pty.screen import Grid

SEEN_LIMIT = 60.0
"""Seconds until the screen shows what is expected, on a busy machine."""


class Browser:
    """One browser window.

    Args:
        link: What `ajet-console run web --link` prints.
    """

    def __init__(self, link: str, columns: int = 100, rows: int = 30) -> None:
        parts = urlsplit(link)
        self.link = link
        self.origin = f"{parts.scheme}://{parts.netloc}"
        self.page = f"{self.origin}{parts.path}"
        self.session = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))
        self.grid = Grid(columns, rows)
        self.received = 0
        self._size = (columns, rows)
        self._ws: aiohttp.ClientWebSocketResponse | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._ws is not None:
            await self._ws.close()
        await self.session.close()

    async def get(self, url: str, **headers: str) -> tuple[int, str]:
        """Return status and text of a page."""
        async with self.session.get(url, headers=headers, allow_redirects=False) as response:
            return response.status, await response.text()

    @property
    def ws(self) -> aiohttp.ClientWebSocketResponse:
        """The websocket, which is open."""
        assert self._ws is not None
        return self._ws

    async def open(self) -> None:
        """Enter by the link and connect the websocket."""
        status, text = await self.get(self.link)
        assert status == 200, text
        await self.connect()

    async def connect(self, origin: str | None = None) -> None:
        """Connect the websocket."""
        columns, rows = self._size
        url = f"{self.page}ws?width={columns}&height={rows}"
        headers = {"Origin": self.origin if origin is None else origin}
        self._ws = await self.session.ws_connect(url, headers=headers)

    async def keys(self, text: str) -> None:
        """Press keys."""
        await self.ws.send_str(json.dumps(["stdin", text]))

    async def until(self, test: Callable[[list[str]], bool], what: str) -> list[str]:
        """Read until the screen passes the test; return its rows."""
        try:
            async with asyncio.timeout(SEEN_LIMIT):
                while not test(self.grid.rows):
                    message = await self.ws.receive()
                    if message.type is aiohttp.WSMsgType.BINARY:
                        self.received += len(message.data)
                        self.grid.feed(message.data.decode("utf-8", "replace"))
                    elif message.type is not aiohttp.WSMsgType.TEXT:
                        raise AssertionError(f"closed before {what}: {self.ws.close_code}")
        except TimeoutError:
            shown = "\n".join(self.grid.rows)
            raise AssertionError(f"not seen: {what}\n{shown}") from None
        return self.grid.rows

    async def closed(self) -> int:
        """Read until the server closes the websocket; return the close code."""
        async with asyncio.timeout(SEEN_LIMIT):
            while not self.ws.closed:
                await self.ws.receive()
        return self.ws.close_code or 0


@contextlib.asynccontextmanager
async def browsing(link: str) -> AsyncIterator[Browser]:
    """Open a link; yields the browser with its console."""
    async with Browser(link) as browser:
        await browser.open()
        yield browser
