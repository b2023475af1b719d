"""The web server of the consoles: pages, the websocket, the list of consoles."""

import asyncio
import contextlib
import hmac
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from aiohttp import WSMsgType, web

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.tasks import Tasks
from console.web.consoles import BrowserConsole, BrowserConsoles
from console.web.handshake import Addresses, Handshake

LINK_ENDED = 4401
"""Close code: the link has expired or is revoked."""
FULL = 4429
"""Close code: as many consoles as allowed are open."""
_CHECK_SECONDS = 1.0
_MOST_MESSAGE = 1 << 20
_LARGEST = 1_000
"""Most columns and rows of a terminal."""
_PAGES = files("console.web") / "pages"
_CSP = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "frame-ancestors 'none'; form-action 'none'; base-uri 'none'"
)
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": _CSP,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_NO_LINK = (
    "This page needs a link",
    "Ask the operator for one: ajet-console web --link rater. Open an earlier link again after a "
    "restart of the server.",
)
_BAD_LINK = (
    "This link is wrong, expired or revoked",
    "Ask the operator for a new one: ajet-console web --link rater",
)

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class WebOptions:
    """How the server is reached, and what it reports."""

    base_path: str = ""
    """Path in front of all others, as `/console`; empty for none."""
    cookie: str = "ajet_console"
    owner: str = ""
    """Token of the owner of the home, for the list of consoles."""
    say: Callable[[str], None] = lambda _line: None
    """Shows a line to the operator."""


class WebServer:
    """Serves consoles to browsers.

    Args:
        handshake: Knows links and cookies.
        addresses: Knows Host and Origin.
        consoles: Starts and ends the consoles.
        options: See there.
    """

    def __init__(
        self,
        handshake: Handshake,
        addresses: Addresses,
        consoles: BrowserConsoles,
        options: WebOptions,
    ) -> None:
        self._handshake = handshake
        self._addresses = addresses
        self._consoles = consoles
        self._options = options
        self._sockets: set[web.WebSocketResponse] = set()

    @contextlib.asynccontextmanager
    async def serve(self, sock: socket.socket, tls: ssl.SSLContext | None) -> AsyncIterator[None]:
        """Serve on a bound socket; at the end all consoles end."""
        app = web.Application(middlewares=[self._checked], client_max_size=1 << 16)
        static = Path(str(files("textual_serve"))) / "static"
        for base in {"", self._options.base_path}:
            app.router.add_get(f"{base}/", self._index)
            app.router.add_get(f"{base}/ws", self._socket)
            app.router.add_get(f"{base}/consoles", self._list)
            app.router.add_static(f"{base}/static", static)
            app.router.add_static(f"{base}/pages", Path(str(_PAGES)))
        if self._options.base_path:
            app.router.add_get(self._options.base_path, self._add_slash)
        app.on_shutdown.append(self._close_all)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=10.0)
        await runner.setup()
        try:
            await web.SockSite(runner, sock, ssl_context=tls).start()
            yield
        finally:
            await runner.cleanup()

    @web.middleware
    async def _checked(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        if not self._addresses.served(request.headers):
            raise web.HTTPForbidden(text="this Host is not served here: see --public-url\n")
        response = await handler(request)
        if not response.prepared:
            for name, value in _HEADERS.items():
                response.headers.setdefault(name, value)
        return response

    async def _add_slash(self, request: web.Request) -> web.StreamResponse:
        query = f"?{request.query_string}" if request.query_string else ""
        raise web.HTTPFound(f"{self._options.base_path}/{query}", headers=_HEADERS)

    async def _index(self, request: web.Request) -> web.StreamResponse:
        key = request.query.get("k")
        if key is not None:
            return await self._enter(request, key)
        token = self._token(request)
        if not token:
            return _message(401, *_NO_LINK)
        if await self._handshake.identity(token) is None:
            return _message(401, *_BAD_LINK)
        if self._consoles.full:
            title = f"All consoles are in use: at most {self._consoles.most} at once"
            return _message(503, title, "Close one, or ask the operator for more: --most")
        return _page(200, "index.html")

    async def _enter(self, request: web.Request, key: str) -> web.StreamResponse:
        """Exchange the key of a link for a cookie."""
        if await self._handshake.identity(key) is None:
            return _message(401, *_BAD_LINK)
        response = _page(200, "enter.html")
        response.set_cookie(
            self._options.cookie,
            self._handshake.cookie_for(key),
            path="/",
            httponly=True,
            samesite="Strict",
            secure=request.secure or request.headers.get("X-Forwarded-Proto") == "https",
        )
        return response

    async def _list(self, request: web.Request) -> web.StreamResponse:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        owner = self._options.owner.encode()
        if scheme.lower() != "bearer" or not hmac.compare_digest(token.strip().encode(), owner):
            raise web.HTTPUnauthorized(text="the owner's token is missing or wrong\n")
        rows = await asyncio.to_thread(self._consoles.rows)
        return web.json_response({"most": self._consoles.most, "consoles": rows})

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        """Connect a browser with a console of its own."""
        if not self._addresses.same_origin(request.headers):
            raise web.HTTPForbidden(text="this Origin may not open a console\n")
        token = self._token(request)
        identity = await self._handshake.identity(token) if token else None
        if identity is None:
            raise web.HTTPUnauthorized(text=f"{_BAD_LINK[0]}\n")
        ws = web.WebSocketResponse(heartbeat=15, max_msg_size=_MOST_MESSAGE, timeout=2.0)
        await ws.prepare(request)
        size = (_cells(request.query.get("width"), 80), _cells(request.query.get("height"), 24))
        try:
            console = await self._consoles.open(identity, token, size, ws.send_bytes, _closer(ws))
        except AjetError as error:
            self._options.say(f"{identity.name} ({identity.role}): {error}")
            await ws.close(code=FULL, message=str(error).encode()[:120])
            return ws
        self._sockets.add(ws)
        try:
            async with Tasks("browser") as tasks:
                tasks.spawn(self._follow_link(ws, token), "link")
                tasks.spawn(self._announce(console), "memory")
                tasks.spawn(_follow_process(ws, console), "process")
                await _pass_on(ws, console)
        finally:
            self._sockets.discard(ws)
            memory = await asyncio.to_thread(console.rss)
            await asyncio.shield(self._consoles.end(console))
            self._options.say(_line(console, "closed", memory))
        return ws

    async def _follow_link(self, ws: web.WebSocketResponse, token: str) -> None:
        """Close the websocket when its link expires or is revoked."""
        while True:
            if await self._handshake.identity(token) is None:
                break
            await asyncio.sleep(_CHECK_SECONDS)
        await ws.close(code=LINK_ENDED, message=_BAD_LINK[0].encode())

    async def _announce(self, console: BrowserConsole) -> None:
        await console.painted.wait()
        memory = await asyncio.to_thread(console.rss)
        count = len(self._sockets)
        line = _line(console, "opened", memory)
        self._options.say(f"{line}, {count} of {self._consoles.most}")

    async def _close_all(self, _app: web.Application) -> None:
        async with asyncio.TaskGroup() as group:
            for ws in list(self._sockets):
                group.create_task(ws.close(code=1001, message=b"the server ends"))

    def _token(self, request: web.Request) -> str:
        return self._handshake.token_of(request.cookies.get(self._options.cookie, ""))


async def _follow_process(ws: web.WebSocketResponse, console: BrowserConsole) -> None:
    """Close the websocket when the console ends by itself."""
    await console.ended()
    await ws.close(code=1000, message=b"the console has ended")


async def _pass_on(ws: web.WebSocketResponse, console: BrowserConsole) -> None:
    """Pass keys, clicks and sizes on to the console until the browser leaves."""
    async for message in ws:
        if message.type is not WSMsgType.TEXT:
            continue
        match _parsed(message.data):
            case ["stdin", str(text)]:
                await console.send_bytes(text.encode("utf-8", "replace"))
            case ["resize", {"width": width, "height": height}]:
                await console.set_terminal_size(_cells(width, 80), _cells(height, 24))
            case ["ping", str(text)]:
                await ws.send_json(["pong", text])
            case ["focus"]:
                await console.focus()
            case ["blur"]:
                await console.blur()


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _cells(value: object, default: int) -> int:
    try:
        return max(1, min(_LARGEST, int(str(value))))
    except ValueError:
        return default


def _closer(ws: web.WebSocketResponse) -> Callable[[], Awaitable[None]]:
    async def close() -> None:
        await ws.close()

    return close


def _line(console: BrowserConsole, what: str, memory: int) -> str:
    who = f"{console.identity.name} ({console.identity.role})"
    return f"{who} {what} a console: pid {console.pid}, {memory / 1e6:.0f} MB"


def _page(status: int, name: str, **words: str) -> web.Response:
    text = (_PAGES / name).read_text(encoding="utf-8")
    if words:
        text = Template(text).substitute({key: escape(word) for key, word in words.items()})
    return web.Response(status=status, text=text, content_type="text/html")


def _message(status: int, title: str, todo: str) -> web.Response:
    return _page(status, "message.html", title=title, todo=todo)
