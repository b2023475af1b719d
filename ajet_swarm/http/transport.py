"""How bytes get to a swarm server and back: kept-alive sockets of our own behind the seam.

Nothing here knows the protocol. There is no limit on the number of connections and no model on the
way: the client sends ready bytes and gets bytes. A connection carries one request at a time.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from ajet_swarm.http.connection import Connection, WriteCoalescer
from ajet_swarm.http.interface import Response, Streamed, Transport
from ajet_swarm.http.parser import Headers
from ajet_swarm.protocol.errors import TimedOut, TooLarge, TransportError, Unreachable

__all__ = [
    "HttpTransport",
    "Response",
    "Streamed",
    "TimedOut",
    "TooLarge",
    "Transport",
    "TransportError",
    "Unreachable",
]

LARGEST_ANSWER = 64 * 1024 * 1024
"""Bytes of one answer; a pool of 10,000 cached episodes is about 2 MB."""

KEEP_ALIVE = 4.0
"""Seconds an idle connection is kept: less than uvicorn's 5, so that the server is never the one
who closes it while a request is on its way."""

EXACT = 2.0
"""Seconds; a shorter timeout has a timer of its own, a longer one ends up to `LOOK` later."""
LOOK = 0.25

F = TypeVar("F", bound="asyncio.Future[Any]")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a url leads."""

    origin: str
    host: str
    port: int
    tls: bool
    head: str
    """What follows the method in a request's head."""


class HttpTransport:
    """`Transport` over plain or TLS sockets.

    Args:
        connect_timeout: Seconds to make a connection.
        largest: Bytes of the largest answer accepted.
    """

    def __init__(self, *, connect_timeout: float = 5.0, largest: int = LARGEST_ANSWER) -> None:
        self.connect_timeout = connect_timeout
        self.largest = largest
        self._idle: dict[str, list[Connection]] = {}
        """By origin, the one used last at the end."""
        self._busy: set[Connection] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self._looker: asyncio.TimerHandle | None = None
        self._tls: ssl.SSLContext | None = None
        self._outbox: WriteCoalescer | None = None
        self._closed = False

    async def request(
        self,
        method: str,
        url: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float,
        repeatable: bool = False,
    ) -> Response:
        """See `Transport.request`."""
        place = _placed(url)
        head = _head(method, place, url, headers, body)
        data = body or b""
        connection = self._idle_one(place, url)
        try:
            if connection is None:
                return await self._on_fresh(place, url, head, data, timeout)
            return await self._asked(connection, connection.ask(url, head, data, timeout), timeout)
        except Unreachable as error:
            if not (repeatable and error.sent):
                raise
        # The pool may hold more dead connections of the same restart, so none of it is used.
        return await self._on_fresh(place, url, head, data, timeout)

    def start(
        self,
        method: str,
        url: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float,
    ) -> "asyncio.Future[Response] | None":
        """See `EagerTransport.start`."""
        place = _placed(url)
        idle = self._idle.get(place.origin)
        if not idle or self._closed:
            return None
        connection: Connection | None = idle.pop()
        assert connection is not None
        if not connection.sound or connection.idle_since <= connection.now() - KEEP_ALIVE:
            connection.drop()
            connection = self._idle_one(place, url)
            if connection is None:
                return None
        head = _head(method, place, url, headers, body)
        if timeout < EXACT or self._looker is None:
            return self._asked(connection, connection.ask(url, head, body or b"", timeout), timeout)
        self._busy.add(connection)
        return connection.ask(url, head, body or b"", timeout)

    async def _on_fresh(
        self, place: _Place, url: str, head: bytes, body: bytes, timeout: float
    ) -> Response:
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        connection = await self._connect(place, url, timeout)
        left = max(until - loop.time(), 0.001)
        return await self._asked(connection, connection.ask(url, head, body, left), left)

    def _asked(self, connection: Connection, answer: F, timeout: float) -> F:
        """Note what is under way, and see that it ends."""
        self._busy.add(connection)
        if timeout < EXACT:
            loop = asyncio.get_running_loop()
            connection.alarm = loop.call_later(timeout, connection.time_out)
        elif self._looker is None:
            self._looker = asyncio.get_running_loop().call_later(LOOK, self._look)
        return answer

    def _look(self) -> None:
        """End what takes too long. One timer for all: one for each would cost more than sending."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in [one for one in self._busy if one.deadline <= now]:
            connection.time_out()
        self._looker = loop.call_later(LOOK, self._look) if self._busy else None

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float,
    ) -> AsyncIterator[Streamed]:
        """See `Transport.stream`."""
        place = _placed(url)
        head = _head(method, place, url, headers, body)
        connection = self._idle_one(place, url)
        if connection is None:
            connection = await self._connect(place, url, timeout)
        begun = connection.ask_stream(url, head, body or b"", timeout)
        try:
            await self._asked(connection, begun, timeout)
            yield _Body(connection)
        finally:
            if connection.sound:
                connection.release()
            else:
                connection.drop()

    # --- connections ---------------------------------------------------------------------------

    def _idle_one(self, place: _Place, url: str) -> Connection | None:
        if self._closed:
            raise Unreachable("this transport is closed", url, sent=False)
        idle = self._idle.get(place.origin)
        while idle:
            connection = idle.pop()
            if connection.sound and connection.idle_since > connection.now() - KEEP_ALIVE:
                return connection
            connection.drop()
        return None

    async def _connect(self, place: _Place, url: str, timeout: float) -> Connection:
        loop = asyncio.get_running_loop()
        outbox = self._outbox = self._outbox or WriteCoalescer()
        tls = await self._context() if place.tls else None
        try:
            async with asyncio.timeout(min(self.connect_timeout, timeout)):
                _, connection = await loop.create_connection(
                    lambda: Connection(place.origin, self.largest, self._freed, outbox),
                    place.host,
                    place.port,
                    ssl=tls,
                )
        except TimeoutError as error:
            raise Unreachable("no connection: it took too long", url, sent=False) from error
        except (OSError, ssl.SSLError) as error:
            # The loop's own words for a refusal name the address once more.
            refused = isinstance(error, ConnectionRefusedError)
            text = f"no connection: {'refused' if refused else error.strerror or error}"
            raise Unreachable(text, url, sent=False) from error
        if self._closed:
            connection.drop()
            raise Unreachable("this transport is closed", url, sent=False)
        return connection

    async def _context(self) -> ssl.SSLContext:
        if self._tls is None:  # reads all certificates of the system: too long for the loop
            self._tls = await asyncio.to_thread(ssl.create_default_context)
        return self._tls

    def _freed(self, connection: Connection) -> None:
        self._busy.discard(connection)
        if self._closed or not connection.sound:
            connection.drop()
            return
        connection.idle_since = connection.now()
        idle = self._idle.get(connection.origin)
        if idle is None:
            idle = self._idle[connection.origin] = []
        idle.append(connection)
        if self._sweeper is None:
            loop = asyncio.get_running_loop()
            self._sweeper = loop.call_later(KEEP_ALIVE, self._sweep)

    def _sweep(self) -> None:
        """Close what nobody has used for long."""
        loop = asyncio.get_running_loop()
        oldest = loop.time() - KEEP_ALIVE
        for origin, idle in tuple(self._idle.items()):
            kept = [one for one in idle if one.sound and one.idle_since > oldest]
            for connection in set(idle).difference(kept):
                connection.drop()
            if kept:
                self._idle[origin] = kept
            else:
                del self._idle[origin]
        again = KEEP_ALIVE / 2
        self._sweeper = loop.call_later(again, self._sweep) if self._idle else None

    async def close(self) -> None:
        """Close every connection; what is still asked fails as unreachable."""
        self._closed = True
        for timer in (self._sweeper, self._looker):
            if timer is not None:
                timer.cancel()
        for idle in self._idle.values():
            for connection in idle:
                connection.drop()
        self._idle.clear()
        for connection in tuple(self._busy):
            connection.abandon()
        await asyncio.sleep(0)  # lets the closed sockets' callbacks run

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class _Body:
    """`Streamed` over one answer."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._reader = connection.reader
        self.status = self._reader.status
        self.headers = Headers(self._reader.head)

    async def read(self) -> bytes:
        """See `Streamed.read`."""
        reader = self._reader
        while not reader.parts:
            if reader.done:
                return b""
            await self._connection.more()
        parts, reader.parts = reader.parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)


@lru_cache(maxsize=512)
def _placed(url: str) -> _Place:
    """Where `url` leads.

    Raises:
        Unreachable: nowhere.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        sound = url.isascii() and url.isprintable() and " " not in url
    except ValueError:
        parts, host, port, sound = urlsplit(""), None, None, False
    tls = parts.scheme == "https"
    if not sound or not host or not (parts.scheme == "http" or tls):
        raise Unreachable("not a usable address", url, "Give it as http://host:port", sent=False)
    port = port or (443 if tls else 80)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    name = parts.netloc.rpartition("@")[2]
    head = (
        f" {target} HTTP/1.1\r\nHost: {name}\r\nUser-Agent: ajet-console\r\nAccept: */*\r\n"
        "Accept-Encoding: identity\r\n"
    )
    return _Place(f"{parts.scheme}://{host}:{port}", host, port, tls, head)


def _head(
    method: str, place: _Place, url: str, headers: Mapping[str, str] | None, body: bytes | None
) -> bytes:
    begin = _begin(method, place.head, tuple(headers.items()) if headers else ())
    if begin is None:
        raise Unreachable("a header with a line break", url, sent=False)
    if body is None and method == "GET":
        return begin + b"\r\n"
    return b"%bContent-Length: %d\r\n\r\n" % (begin, len(body or b""))


@lru_cache(maxsize=512)
def _begin(method: str, head: str, headers: tuple[tuple[str, str], ...]) -> bytes | None:
    """A head without its end; None when there is a line break in a header."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
    if not lines.count("\n") == lines.count("\r") == len(headers):
        return None
    return f"{method}{head}{lines}".encode()
