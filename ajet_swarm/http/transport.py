"""HTTP/1.1 client over kept-alive connections.

It does not depend on the swarm protocol. The number of connections is not limited, and a connection
carries one request at a time.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from ajet_swarm.common.tasks import in_thread
from ajet_swarm.http.connection import Connection, HeldBytes, WriteCoalescer
from ajet_swarm.http.interface import Request, Response, Streamed, Transport
from ajet_swarm.http.parser import Headers
from ajet_swarm.protocol.errors import TimedOut, TooLarge, TransportError, Unreachable

__all__ = [
    "HttpTransport",
    "Request",
    "Response",
    "Streamed",
    "TimedOut",
    "TooLarge",
    "Transport",
    "TransportError",
    "Unreachable",
]

LARGEST_ANSWER = 64 * 1024 * 1024
"""Bytes of the largest response; a pool of 10,000 cached episodes takes about 2 MB."""

MOST_HELD = 256 * 1024 * 1024
"""Bytes of all responses in memory together; the call that would exceed it fails."""

KEEP_ALIVE = 4.0
"""Seconds for which an idle connection is kept: less than uvicorn's 5, so that the server does not
close it while a request is being sent."""

EXACT = 2.0
"""Timeout in seconds below which a request has its own timer; others time out up to `SCAN` late."""
SCAN = 0.25
"""Seconds between two scans for requests that have timed out."""

F = TypeVar("F", bound="asyncio.Future[Any]")


@dataclass(frozen=True, slots=True)
class _Origin:
    """Server of a URL, and the beginning of a request head for it."""

    key: str
    """Scheme, host and port: key of a pool of connections."""
    host: str
    port: int
    tls: bool
    head: str
    """Request head after the method, without the headers of the caller."""


class HttpTransport:
    """`Transport` over plain or TLS sockets.

    Args:
        connect_timeout: Seconds to open a connection.
        largest: Largest accepted response in bytes.
        most_held: Bytes of all responses in memory together.
    """

    def __init__(
        self,
        *,
        connect_timeout: float = 5.0,
        largest: int = LARGEST_ANSWER,
        most_held: int = MOST_HELD,
    ) -> None:
        self.connect_timeout = connect_timeout
        self.largest = largest
        self.held = HeldBytes(most_held)
        self._idle: dict[str, list[Connection]] = {}
        """Origin -> idle connections; the most recently used one is last."""
        self._busy: set[Connection] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self._scanner: asyncio.TimerHandle | None = None
        self._tls: ssl.SSLContext | None = None
        self._coalescer: WriteCoalescer | None = None
        self._closed = False

    async def request(self, request: Request) -> Response:
        """See `Transport.request`."""
        url, timeout, most = request.url, request.timeout, request.most
        data = request.body or b""
        origin = _origin_of(url)
        head = _head(request, origin)
        connection = self._take_idle(origin, url)
        try:
            if connection is None:
                return await self._on_fresh(origin, url, head, data, timeout, most)
            answer = connection.send(url, head, data, timeout, most)
            return await self._track(connection, answer, timeout)
        except Unreachable as error:
            if not (request.repeatable and error.sent):
                raise
        # The same restart of the server may have closed other idle connections: open a new one.
        return await self._on_fresh(origin, url, head, data, timeout, most)

    def start(self, request: Request) -> "asyncio.Future[Response] | None":
        """See `EagerTransport.start`."""
        url, timeout = request.url, request.timeout
        origin = _origin_of(url)
        idle = self._idle.get(origin.key)
        if not idle or self._closed:
            return None
        connection: Connection | None = idle.pop()
        assert connection is not None
        if not connection.reusable or connection.idle_since <= connection.now() - KEEP_ALIVE:
            connection.drop()
            connection = self._take_idle(origin, url)
            if connection is None:
                return None
        head = _head(request, origin)
        answer = connection.send(url, head, request.body or b"", timeout, request.most)
        if timeout < EXACT or self._scanner is None:
            return self._track(connection, answer, timeout)
        self._busy.add(connection)
        return answer

    async def _on_fresh(
        self, origin: _Origin, url: str, head: bytes, body: bytes, timeout: float, most: int
    ) -> Response:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        connection = await self._connect(origin, url, timeout)
        left = max(deadline - loop.time(), 0.001)
        return await self._track(connection, connection.send(url, head, body, left, most), left)

    def _track(self, connection: Connection, answer: F, timeout: float) -> F:
        """Register the connection as busy, and start its timer or the periodic scan."""
        self._busy.add(connection)
        if timeout < EXACT:
            loop = asyncio.get_running_loop()
            connection.alarm = loop.call_later(timeout, connection.time_out)
        elif self._scanner is None:
            self._scanner = asyncio.get_running_loop().call_later(SCAN, self._scan)
        return answer

    def _scan(self) -> None:
        """Time out requests. All share one timer: a timer each would cost more than the request."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        try:
            for connection in [one for one in self._busy if one.deadline <= now]:
                connection.time_out()
        finally:  # a listener of a response may raise
            self._scanner = loop.call_later(SCAN, self._scan) if self._busy else None

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Streamed]:
        """See `Transport.stream`."""
        url, timeout = request.url, request.timeout
        origin = _origin_of(url)
        head = _head(request, origin)
        connection = self._take_idle(origin, url)
        if connection is None:
            connection = await self._connect(origin, url, timeout)
        body = request.body or b""
        started = connection.send_streamed(url, head, body, timeout, request.most)
        try:
            await self._track(connection, started, timeout)
            yield _Body(connection)
        finally:
            if connection.reusable:
                connection.release()
            else:
                connection.drop()

    # --- connections ---------------------------------------------------------------------------

    def _take_idle(self, origin: _Origin, url: str) -> Connection | None:
        if self._closed:
            raise Unreachable("this transport is closed", url, sent=False)
        idle = self._idle.get(origin.key)
        while idle:
            connection = idle.pop()
            if connection.reusable and connection.idle_since > connection.now() - KEEP_ALIVE:
                return connection
            connection.drop()
        return None

    async def _connect(self, origin: _Origin, url: str, timeout: float) -> Connection:
        coalescer = self._coalescer = self._coalescer or WriteCoalescer()
        try:
            async with asyncio.timeout(min(self.connect_timeout, timeout)):
                connection = await self._connect_to_any(
                    origin,
                    lambda: Connection(origin.key, self.largest, self.held, self._freed, coalescer),
                )
        except TimeoutError as error:
            raise Unreachable("no connection: it took too long", url, sent=False) from error
        except (OSError, ValueError, RuntimeError) as error:
            # The event loop's text for a refusal repeats the address.
            refused = isinstance(error, ConnectionRefusedError)
            text = "refused" if refused else getattr(error, "strerror", None) or error
            raise Unreachable(f"no connection: {text}", url, sent=False) from error
        if self._closed:
            connection.drop()
            raise Unreachable("this transport is closed", url, sent=False)
        return connection

    async def _connect_to_any(
        self, origin: _Origin, create: Callable[[], Connection]
    ) -> Connection:
        """Connect to the first address of a server that accepts it; raise the error of the last."""
        if origin.tls and self._tls is None:  # reading the certificates would block the loop
            self._tls = await in_thread(ssl.create_default_context)
        failure = OSError("the name has no address")
        for address in await _addresses(origin.host):
            try:
                _, connection = await asyncio.get_running_loop().create_connection(
                    create,
                    address,
                    origin.port,
                    ssl=self._tls if origin.tls else None,
                    server_hostname=origin.host if origin.tls else None,
                )
            except OSError as error:
                failure = error
            else:
                return connection
        raise failure

    def _freed(self, connection: Connection) -> None:
        self._busy.discard(connection)
        if self._closed or not connection.reusable:
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
        """Close the connections that have been idle for `KEEP_ALIVE`."""
        loop = asyncio.get_running_loop()
        oldest = loop.time() - KEEP_ALIVE
        for origin, idle in tuple(self._idle.items()):
            fresh = [one for one in idle if one.reusable and one.idle_since > oldest]
            for connection in set(idle).difference(fresh):
                connection.drop()
            if fresh:
                self._idle[origin] = fresh
            else:
                del self._idle[origin]
        self._sweeper = loop.call_later(KEEP_ALIVE / 2, self._sweep) if self._idle else None

    async def close(self) -> None:
        """Close every connection; open requests fail as unreachable."""
        self._closed = True
        for timer in (self._sweeper, self._scanner):
            if timer is not None:
                timer.cancel()
        for idle in self._idle.values():
            for connection in idle:
                connection.drop()
        self._idle.clear()
        for connection in tuple(self._busy):
            connection.abandon()
        await asyncio.sleep(0)  # run the callbacks of the closed sockets

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
    """Implementation of `Streamed` over a connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._reader = connection.reader
        self.status = self._reader.status
        self.headers = Headers(self._reader.head)

    async def read(self) -> bytes:
        """See `Streamed.read`."""
        reader = self._reader
        while not reader.body:
            if reader.done:
                return b""
            await self._connection.more()
        data, reader.body = bytes(reader.body), bytearray()
        return data

    def hold(self, size: int) -> None:
        """See `Streamed.hold`."""
        self._connection.hold(size)


async def _addresses(host: str) -> Sequence[str]:
    """Return the IP addresses of a host, without the event loop's executor; see `in_thread`.

    Raises:
        OSError: the name is unknown.
        ValueError: it cannot be a name.
    """
    try:
        socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
    except OSError:
        look_up = partial(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM)
        found = [address for *_, address in await in_thread(look_up)]
        return [
            f"{address[0]}%{address[3]}" if len(address) == 4 and address[3] else str(address[0])
            for address in found
        ]
    return (host,)


@lru_cache(maxsize=512)
def _origin_of(url: str) -> _Origin:
    """Return the server of a URL.

    Raises:
        Unreachable: the URL is not a usable address.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        valid = url.isascii() and url.isprintable() and " " not in url
    except ValueError:
        parts, host, port, valid = urlsplit(""), None, None, False
    tls = parts.scheme == "https"
    if not valid or not host or not (parts.scheme == "http" or tls):
        raise Unreachable("not a usable address", url, "Give it as http://host:port", sent=False)
    port = port or (443 if tls else 80)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    name = parts.netloc.rpartition("@")[2]
    head = (
        f" {target} HTTP/1.1\r\nHost: {name}\r\nUser-Agent: ajet-console\r\nAccept: */*\r\n"
        "Accept-Encoding: identity\r\n"
    )
    return _Origin(f"{parts.scheme}://{host}:{port}", host, port, tls, head)


def _head(request: Request, origin: _Origin) -> bytes:
    headers, body = request.headers, request.body
    begin = _begin(request.method, origin.head, tuple(headers.items()) if headers else ())
    if begin is None:
        raise Unreachable("a header with a line break", request.url, sent=False)
    if body is None and request.method == "GET":
        return begin + b"\r\n"
    return b"%bContent-Length: %d\r\n\r\n" % (begin, len(body or b""))


@lru_cache(maxsize=512)
def _begin(method: str, head: str, headers: tuple[tuple[str, str], ...]) -> bytes | None:
    """Return a request head without its end; None when a header contains a line break."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
    if not lines.count("\n") == lines.count("\r") == len(headers):
        return None
    return f"{method}{head}{lines}".encode()
