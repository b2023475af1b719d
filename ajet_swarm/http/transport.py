"""HTTP client over aiohttp, bounded in time and in memory; independent of the swarm protocol.

A transport keeps connections alive; their number is not limited. It never follows a redirect, never
stores a cookie, never reads proxies from the environment, never decompresses, and repeats only
requests that are marked as repeatable.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, cast

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection

from ajet_swarm.common.tasks import in_thread
from ajet_swarm.common.text import one_line
from ajet_swarm.http.interface import Request, Response, Streamed
from ajet_swarm.protocol.errors import TimedOut, TooLarge, TransportError, Unreachable

LARGEST_ANSWER = 64 * 1024 * 1024
"""Bytes of the largest response; a pool of 10,000 cached episodes takes about 2 MB."""
MOST_HELD = 256 * 1024 * 1024
"""Bytes of all responses in memory together; the call that would exceed it fails."""
KEEP_ALIVE = 4.0
"""Seconds for which an idle connection is kept: less than uvicorn's 5, so that the server does not
close it while a request is being sent."""
PIECE = 1 << 18
"""Bytes of a request body that are written to the socket at once."""
LONGEST_FIELD = 1 << 16
"""Bytes of the longest header field of a response."""
MOST_INFORMATIONAL = 100
"""Informational responses (1xx) before the response of a request."""
_HEAD_TOO_LARGE = ("Got more than", "Too many headers")
"""Messages of aiohttp's errors of long heads, which have no class of their own."""
_HEADERS = {"User-Agent": "ajet-console", "Accept-Encoding": "identity"}
ENDS_CONNECTION = 500
"""Status from which a connection is not used again: after an uncaught error the server closes it
without notice (protocol section 2), and a claim sent on it would have an unknown outcome."""


class HttpTransport:
    """`Transport` over plain or TLS sockets; used and closed in one event loop.

    Args:
        connect_timeout: Seconds to open a connection.
        largest: Largest accepted response in bytes.
        most_held: Bytes of all responses in memory together.

    Attributes:
        held: Bytes of all responses in memory.
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
        self.most_held = most_held
        self.held = 0
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def request(self, request: Request) -> Response:
        """See `Transport.request`."""
        try:
            return await self._whole(request)
        except Unreachable as error:
            if not (request.repeatable and error.sent):
                raise
        return await self._whole(request)

    @contextlib.asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Streamed]:
        """See `Transport.stream`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.timeout
        with _mapped_errors(request) as progress:
            async with asyncio.timeout_at(deadline):
                response = await self._open(request, progress)
        body = _Body(self, request, response, deadline)
        try:
            yield body
        finally:
            body.close()

    async def _whole(self, request: Request) -> Response:
        async with self.stream(request) as answer:
            return await answer.whole()

    async def _open(self, request: Request, progress: "_Progress") -> aiohttp.ClientResponse:
        """Send a request and return its response with an unread body."""
        if self._closed:
            raise Unreachable("this transport is closed", request.url, sent=False)
        if self._session is None:
            self._session = self._new_session()
        body = request.body or (b"" if request.method == "POST" else None)
        _PROGRESS.set(progress)
        headers = dict(request.headers or {})
        if body is not None:
            headers["Content-Length"] = str(len(body))
        response = await self._session.request(
            request.method,
            request.url,
            data=_pieces(body) if body is not None and len(body) > PIECE else body,
            headers=headers,
            allow_redirects=False,
        )
        codings = response.headers.getall("Transfer-Encoding", [])
        if codings and [coding.lower() for coding in codings] != ["chunked"]:
            response.close()
            text = f"an unsupported transfer coding: {one_line(codings[0], 80)}"
            raise Unreachable(text, request.url)
        if (response.content_length or 0) > (most := self.most_of(request)):
            response.close()
            raise _too_large(most, request)
        return response

    def most_of(self, request: Request) -> int:
        """Return how many bytes the response to a request may have."""
        return min(request.most or self.largest, self.largest)

    def _new_session(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=0,
            keepalive_timeout=KEEP_ALIVE,
            resolver=aiohttp.ThreadedResolver(loop=cast(Any, _Threads())),
            use_dns_cache=False,
        )
        loop = asyncio.get_running_loop()
        connector._factory = partial(_Connection, loop=loop)  # type: ignore[assignment]  # a subclass
        session = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None, connect=self.connect_timeout),
            headers=_HEADERS,
            skip_auto_headers=("Content-Type",),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            max_line_size=LONGEST_FIELD,
            max_field_size=LONGEST_FIELD,
            request_class=_Request,
            response_class=_Response,
        )
        session._retry_connection = False  # it would repeat each GET whose connection breaks
        return session

    async def close(self) -> None:
        """Close every connection; open requests fail as unreachable."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Body:
    """Implementation of `Streamed`."""

    def __init__(
        self,
        transport: HttpTransport,
        request: Request,
        response: aiohttp.ClientResponse,
        deadline: float,
    ) -> None:
        self._transport, self._request, self._response = transport, request, response
        self._deadline = deadline
        self._held = 0
        """Bytes that count as held by this body."""
        self.status, self.headers = response.status, response.headers

    async def read(self) -> bytes:
        """See `Streamed.read`."""
        with _mapped_errors(self._request, sent=True):
            async with asyncio.timeout_at(self._deadline):
                return await self._response.content.readany()

    async def whole(self) -> Response:
        """See `Streamed.whole`."""
        body = bytearray()
        try:
            while part := await self.read():
                body += part
                self.hold(len(body))
            return Response(self.status, self.headers, bytes(body))
        finally:
            body.clear()  # an error and its frames refer to it

    def hold(self, size: int) -> None:
        """See `Streamed.hold`."""
        transport, request = self._transport, self._request
        if size > (most := transport.most_of(request)):
            raise _too_large(most, request)
        others = transport.held - self._held
        if others + size > transport.most_held:
            text = f"all answers together are larger than {transport.most_held} bytes"
            raise TooLarge(text, request.url)
        transport.held, self._held = others + size, size

    def close(self) -> None:
        """Close the connection, unless the body was read to its end."""
        self._transport.held -= self._held
        self._held = 0
        self._response.close()  # a body that was read to its end has released its connection


class _Connection(ResponseHandler):
    """A connection that is closed at once, also if the server has not read the whole request:
    asyncio's `close` waits for that, which a server that hangs never does."""

    def close(self) -> None:
        self.abort()


class _Request(aiohttp.ClientRequest):
    """A request that is not sent on a connection with bytes of a response to no request."""

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        if conn.protocol is None or conn.protocol.should_close:
            raise aiohttp.ServerDisconnectedError("a response to no request")
        _PROGRESS.get().sent = True
        return await super().send(conn)


class _Response(aiohttp.ClientResponse):
    """A response with a bounded number of informational ones before it.

    A server error ends the connection.
    """

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        protocol = connection.protocol
        assert protocol is not None
        read, left = protocol.read, iter(range(MOST_INFORMATIONAL))

        async def read_next() -> Any:
            if next(left, None) is None:
                raise TooLarge("too many informational responses", str(self.url))
            return await read()

        protocol.read = read_next  # type: ignore[method-assign]
        try:
            response = await super().start(connection)
        finally:
            del protocol.read
        if self.status >= ENDS_CONNECTION:
            protocol.force_close()
            if self.content.is_eof():  # the connection is in the pool again
                protocol.close()
        return response


class _Threads:
    """What a resolver calls of an event loop, on own threads instead of the loop's executor; see
    `in_thread`."""

    async def getaddrinfo(self, host: str, port: int, **hints: Any) -> Any:
        find = partial(socket.getaddrinfo, host, port, hints["family"], hints["type"])
        return await in_thread(find)

    async def getnameinfo(self, address: Any, flags: int) -> Any:
        return await in_thread(partial(socket.getnameinfo, address, flags))


@dataclass(slots=True)
class _Progress:
    """What is known of a request in case it fails."""

    sent: bool
    """Whether bytes of it may have been sent."""


_PROGRESS: ContextVar[_Progress] = ContextVar("progress")
"""Of the call that the current task makes."""


@contextlib.contextmanager
def _mapped_errors(request: Request, sent: bool = False) -> Iterator[_Progress]:
    """Raise the errors of a call as a `TransportError`."""
    progress = _Progress(sent)
    try:
        yield progress
    except TransportError:
        raise
    except TimeoutError as error:
        if not progress.sent:
            text = "no connection: it took too long"
            raise Unreachable(text, request.url, sent=False) from error
        raise TimedOut(f"no answer within {request.timeout:.3g} s", request.url) from error
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
        todo = "Give it as http://host:port"
        raise Unreachable("not a usable address", request.url, todo, sent=False) from error
    except aiohttp.ClientResponseError as error:
        if error.message.startswith(_HEAD_TOO_LARGE):
            raise TooLarge("the head of the answer is too large", request.url) from error
        text = f"the connection was lost: {one_line(error.message, 80)}"
        raise Unreachable(text, request.url) from error
    except (aiohttp.ClientError, OSError, RuntimeError) as error:
        raise _unreachable(error, request.url, progress.sent) from error
    except ValueError as error:  # an unusable name, or a header with a line break
        raise _unreachable(error, request.url, sent) from error


def _too_large(most: int, request: Request) -> TooLarge:
    return TooLarge(f"the answer is larger than {most} bytes", request.url)


def _unreachable(error: Exception, url: str, sent: bool) -> Unreachable:
    if sent:
        return Unreachable(f"the connection was lost: {error}", url)
    cause: object = getattr(error, "os_error", error)
    refused = isinstance(cause, ConnectionRefusedError)  # the loop's text repeats the address
    text = "refused" if refused else getattr(cause, "strerror", None) or cause
    return Unreachable(f"no connection: {text}", url, sent=False)


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    for begin in range(0, len(body), PIECE):
        yield body[begin : begin + PIECE]
