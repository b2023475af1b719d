"""The web server of the consoles: pages, the websocket, the list of consoles."""

import asyncio
import contextlib
import hmac
import json
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from aiohttp import ClientError, WSMsgType, web
from aiohttp.http import HttpProcessingError

from ajet_swarm.common.tasks import Tasks
from console.web.consoles import BrowserConsole, BrowserConsoles, Refused
from console.web.handshake import Addresses, Handshake
from console.web.notices import BAD_LINK, ENDED, MOVED, NO_LINK, SERVER_ENDS, Notice

_CHECK_SECONDS = 1.0
_CLOSE_SECONDS = 2.0
_HEARTBEAT_SECONDS = 15.0
_MOST_MESSAGE = 1 << 16
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
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class WebOptions:
    """How the server is reached, and what it reports."""

    base_path: str = ""
    """Path in front of all others, as `/console`; empty for none."""
    cookie: str = "ajet_console"
    cookie_path: str = "/"
    secure: bool = False
    """Whether browsers reach it by https alone."""
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
        self._stopping = asyncio.Event()

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
        app.on_shutdown.append(self._stop)
        runner = web.AppRunner(app, access_log=None, logger=_log(), shutdown_timeout=10.0)
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
            return _message(NO_LINK)
        identity = await self._handshake.identity(token)
        if identity is None:
            return _message(BAD_LINK)
        try:
            await self._consoles.check(identity)
        except Refused as error:
            return _message(error.notice)
        return _page(200, "index.html", who=f"{identity.name} ({identity.role})")

    async def _enter(self, request: web.Request, key: str) -> web.StreamResponse:
        """Exchange the key of a link for a cookie."""
        identity = await self._handshake.identity(key)
        if identity is None:
            return _message(BAD_LINK)
        token = self._token(request)
        before = await self._handshake.identity(token) if token else None
        message = ""
        if before not in (None, identity):
            message = f"This browser now opens the console of {identity.name} ({identity.role})"
        response = _page(200, "enter.html", message=message)
        response.set_cookie(
            self._options.cookie,
            await self._handshake.cookie_for(key),
            path=self._options.cookie_path,
            httponly=True,
            samesite="Strict",
            secure=self._options.secure
            or request.secure
            or request.headers.get("X-Forwarded-Proto") == "https",
        )
        return response

    async def _list(self, request: web.Request) -> web.StreamResponse:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        sent = token.strip().encode("utf-8", "surrogateescape")
        owner = self._options.owner.encode()
        if scheme.lower() != "bearer" or not hmac.compare_digest(sent, owner):
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
            raise web.HTTPUnauthorized(text=f"{BAD_LINK.title}\n")
        ws = web.WebSocketResponse(
            heartbeat=_HEARTBEAT_SECONDS,
            max_msg_size=_MOST_MESSAGE,
            timeout=_CLOSE_SECONDS,
            autoclose=False,
        )
        await ws.prepare(request)
        size = (_cells(request.query.get("width"), 80), _cells(request.query.get("height"), 24))

        async def send(data: bytes) -> None:
            with contextlib.suppress(ConnectionError, ClientError):  # the browser has left
                await ws.send_bytes(data)

        try:
            console = await self._consoles.open(identity, token, size, send)
        except Refused as error:
            self._options.say(f"{identity.name} ({identity.role}): {error}")
            await _close(request, ws, error.notice)
            return ws
        notice = SERVER_ENDS
        try:
            async with Tasks("browser") as tasks:
                tasks.spawn(self._announce(console), "memory")
                endings = {
                    tasks.spawn(_pass_on(ws, console), "input"): ENDED,
                    tasks.spawn(_left(request), "browser"): ENDED,
                    tasks.spawn(self._follow_link(token), "link"): BAD_LINK,
                    tasks.spawn(self._consoles.moved(console), "proxy"): MOVED,
                    tasks.spawn(_once(console.ended), "process"): ENDED,
                    tasks.spawn(_once(self._stopping), "server"): SERVER_ENDS,
                }
                done, _ = await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
                notice = endings[done.pop()]
        finally:
            memory = await asyncio.to_thread(console.rss)
            ending = asyncio.gather(_close(request, ws, notice), self._consoles.end(console))
            await asyncio.shield(ending)
            self._options.say(_line(console, "closed", memory))
            if console.failure:
                self._options.say(f"{identity.name}: the console failed: {console.failure}")
        return ws

    async def _follow_link(self, token: str) -> None:
        """Wait until a link expires or is revoked."""
        while True:
            if await self._handshake.identity(token) is None:
                return
            await asyncio.sleep(_CHECK_SECONDS)

    async def _announce(self, console: BrowserConsole) -> None:
        await console.painted.wait()
        memory = await asyncio.to_thread(console.rss)
        count = self._consoles.count
        line = _line(console, "opened", memory)
        self._options.say(f"{line}, {count} of {self._consoles.most}")

    async def _stop(self, _app: web.Application) -> None:
        self._stopping.set()

    def _token(self, request: web.Request) -> str:
        return self._handshake.token_of(request.cookies.get(self._options.cookie, ""))


async def _once(event: asyncio.Event) -> None:
    await event.wait()


async def _left(request: web.Request) -> None:
    """Wait until the connection is lost; a console that takes no keys hides its end."""
    while True:
        if request.transport is None or request.transport.is_closing():
            return
        await asyncio.sleep(_CHECK_SECONDS)


async def _close(request: web.Request, ws: web.WebSocketResponse, notice: Notice) -> None:
    """Close a websocket, also one whose browser reads and answers nothing."""
    transport = request.transport
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await ws.close(code=notice.code, message=notice.reason, drain=False)
    if transport is not None:
        transport.abort()


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


def _line(console: BrowserConsole, what: str, memory: int) -> str:
    who = f"{console.identity.name} ({console.identity.role})"
    return f"{who} {what} a console: pid {console.pid}, {memory / 1e6:.0f} MB"


def _page(status: int, name: str, **words: str) -> web.Response:
    text = (_PAGES / name).read_text(encoding="utf-8")
    if words:
        text = Template(text).substitute({key: escape(word) for key, word in words.items()})
    return web.Response(status=status, text=text, content_type="text/html")


def _message(notice: Notice) -> web.Response:
    return _page(notice.status, "message.html", title=notice.title, todo=notice.todo)


def _log() -> logging.Logger:
    """Return the log of aiohttp without what requests contain: keys of links, and cookies."""
    log = logging.getLogger(f"{__name__}.requests")
    log.addFilter(_without_request)
    return log


def _without_request(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError):
        record.msg = "bad request from %s"
    elif error is not None:
        record.msg = f"no answer to %s: {type(error).__name__}"
    record.args = record.args or ("a browser",)
    record.exc_info = record.exc_text = None
    return True
