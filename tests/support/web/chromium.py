"""Chromium without a screen, by its DevTools protocol; what a console paints is read back."""

import asyncio
import base64
import contextlib
import itertools
import json
import shutil
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp

from ajet_swarm.common.tasks import Tasks
from tests.support.pty.screen import Grid
from tests.support.stack import START_LIMIT

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
"""Chromium; empty where there is none."""
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--remote-debugging-port=0",
    "--disable-background-networking",
    "--disable-component-update",
)


class Page:
    """One tab.

    Attributes:
        grid: The text of the console, from the frames of its websocket.
        requested: Every address that the page has requested.
    """

    def __init__(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        self._ws = ws
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._session = ""
        self._changed = asyncio.Event()
        self.grid = Grid(1, 1)
        self.size = (1, 1)
        self.requested: list[str] = []

    async def attach(self) -> None:
        """Open a tab."""
        target = await self.call("Target.createTarget", url="about:blank")
        session = await self.call(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )
        self._session = session["sessionId"]
        await self.call("Network.enable")
        await self.call("Page.enable")

    async def follow(self) -> None:
        """Read answers and events until the browser ends."""
        async for message in self._ws:
            data = json.loads(message.data)
            if "id" in data:
                future = self._waiting.pop(data["id"])
                if "error" in data:
                    future.set_exception(AssertionError(data["error"]))
                else:
                    future.set_result(data["result"])
            else:
                self._event(data["method"], data["params"])

    async def call(self, method: str, **params: Any) -> Any:
        """Call a method of the protocol."""
        number = next(self._ids)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        session = {"sessionId": self._session} if self._session else {}
        await self._ws.send_json({"id": number, "method": method, "params": params, **session})
        async with asyncio.timeout(START_LIMIT):
            return await self._waiting[number]

    async def open(self, url: str) -> None:
        """Open an address."""
        await self.call("Page.navigate", url=url)

    async def evaluate(self, expression: str) -> Any:
        """Return the value of an expression of the page."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return answer["result"].get("value")

    async def key(self, key: str) -> None:
        """Press a key: a character or Enter."""
        code, text = (13, "\r") if key == "Enter" else (ord(key.upper()), key)
        common = {"key": key, "windowsVirtualKeyCode": code}
        await self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    async def click(self, column: int, row: int, clicks: int = 1) -> None:
        """Click a cell of the console; `clicks` counts the clicks there so far."""
        box = await self.evaluate(
            "(() => { const b = document.querySelector('.xterm-screen').getBoundingClientRect();"
            " return [b.x, b.y, b.width, b.height]; })()"
        )
        x = box[0] + (column + 0.5) * box[2] / self.size[0]
        y = box[1] + (row + 0.5) * box[3] / self.size[1]
        at = {"x": x, "y": y, "button": "left", "clickCount": clicks}
        await self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        await self.call("Input.dispatchMouseEvent", type="mousePressed", **at)
        await self.call("Input.dispatchMouseEvent", type="mouseReleased", **at)

    async def resize(self, width: int, height: int) -> None:
        """Set the size of the window in pixels."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    async def picture(self, file: Path) -> None:
        """Write a picture of the page."""
        answer = await self.call("Page.captureScreenshot", format="png")
        await asyncio.to_thread(file.write_bytes, base64.b64decode(answer["data"]))

    async def until(self, test: Callable[[list[str]], Any], what: str) -> list[str]:
        """Wait until the console's screen passes the test; return its rows."""
        try:
            async with asyncio.timeout(START_LIMIT):
                while not test(self.grid.rows):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            shown = "\n".join(self.grid.rows)
            raise AssertionError(f"not seen: {what}\n{shown}") from None
        return self.grid.rows

    def _event(self, method: str, params: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requested.append(params["request"]["url"])
        elif method == "Network.webSocketCreated":
            query = parse_qs(urlsplit(params["url"]).query)
            self._resized(int(query["width"][0]), int(query["height"][0]))
        elif method == "Network.webSocketFrameSent":
            sent = json.loads(params["response"]["payloadData"])
            if sent[0] == "resize" and (sent[1]["width"], sent[1]["height"]) != self.size:
                self._resized(sent[1]["width"], sent[1]["height"])
        elif method == "Network.webSocketFrameReceived" and params["response"]["opcode"] == 2:
            data = base64.b64decode(params["response"]["payloadData"])
            self.grid.feed(data.decode("utf-8", "replace"))
            self._changed.set()

    def _resized(self, columns: int, rows: int) -> None:
        self.size = (columns, rows)
        self.grid = Grid(columns, rows)


@contextlib.asynccontextmanager
async def chromium(folder: Path) -> AsyncIterator[Page]:
    """Start Chromium with a folder of its own; yields a tab."""
    process = await asyncio.create_subprocess_exec(
        PROGRAM,
        *_FLAGS,
        f"--user-data-dir={folder}",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        port = folder / "DevToolsActivePort"
        end = time.monotonic() + START_LIMIT
        while not port.exists() or len(port.read_text().split()) < 2:
            assert time.monotonic() < end, "Chromium does not start"
            await asyncio.sleep(0.05)
        number, path = port.read_text().split()
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"ws://127.0.0.1:{number}{path}", max_msg_size=0) as ws,
            Tasks("chromium") as tasks,
        ):
            page = Page(ws)
            following = tasks.spawn(page.follow(), "events")
            await page.attach()
            yield page
            following.cancel()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), 10)
        except TimeoutError:
            process.kill()
            await process.wait()
