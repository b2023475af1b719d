"""How bytes get to a swarm server and back: aiohttp behind the seam.

Nothing here knows the protocol. One session, kept-alive connections, no limit on their number and
no models on the way: the client sends prebuilt bytes and gets bytes.
"""

import asyncio
import io
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import lru_cache
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp.connector import Connection
from yarl import URL

from swarm.errors import TimedOut, TooLarge, TransportError, Unreachable
from swarm.seam import Response, Streamed, Transport

__all__ = [
    "AiohttpTransport",
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

_BIG_BODY = 1 << 20
_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "ajet-console"}


class AiohttpTransport:
    """`Transport` over one shared `aiohttp.ClientSession`, made on first use.

    Args:
        connect_timeout: Seconds to make a connection.
        largest: Bytes of the largest answer accepted.
    """

    def __init__(self, *, connect_timeout: float = 5.0, largest: int = LARGEST_ANSWER) -> None:
        self.connect_timeout = connect_timeout
        self.largest = largest
        self._session: aiohttp.ClientSession | None = None
        self._fresh: aiohttp.ClientSession | None = None
        self._timeouts: dict[float, aiohttp.ClientTimeout] = {}
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
        self._check_open(url)
        try:
            return await self._exchange(self._own(), method, url, body, headers, timeout)
        except Unreachable as error:
            if not (repeatable and error.sent):
                raise
        # The pool may hold more dead connections of the same restart, so none of it is used.
        if self._fresh is None:
            self._fresh = _session(aiohttp.TCPConnector(limit=0, force_close=True))
        return await self._exchange(self._fresh, method, url, body, headers, timeout)

    async def _exchange(
        self,
        session: aiohttp.ClientSession,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str] | None,
        timeout: float,
    ) -> Response:
        try:
            async with session.request(
                method,
                _parsed(url),
                data=_data(body),
                headers=headers,
                timeout=self._timeout(timeout),
                allow_redirects=False,
            ) as answer:
                return Response(answer.status, answer.headers, await self._body(answer, url))
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _translated(error, url, timeout) from error

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
        self._check_open(url)
        try:
            answer = await self._own().request(
                method,
                _parsed(url),
                data=_data(body),
                headers=headers,
                timeout=self._timeout(timeout),
                allow_redirects=False,
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _translated(error, url, timeout) from error
        try:
            yield _Body(answer, url, timeout, self.largest)
        finally:
            answer.close()  # once the body has ended its connection is back in the pool

    def _check_open(self, url: str) -> None:
        if self._closed:
            raise Unreachable("this transport is closed", url, sent=False)

    def _own(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = _session(aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE))
        return self._session

    async def _body(self, answer: aiohttp.ClientResponse, url: str) -> bytes:
        length = answer.content_length
        if length is not None and length <= self.largest:
            return await answer.read()
        parts = bytearray()
        while length is None and (part := await answer.content.readany()):
            parts += part
            if len(parts) > self.largest:
                length = len(parts)
        if length is None:
            return bytes(parts)
        answer.close()
        raise TooLarge(f"the answer is larger than {self.largest} bytes", url)

    def _timeout(self, seconds: float) -> aiohttp.ClientTimeout:
        known = self._timeouts.get(seconds)
        if known is None:
            if len(self._timeouts) > 100:  # a caller counting down a budget makes many
                self._timeouts.clear()
            known = aiohttp.ClientTimeout(total=seconds, sock_connect=self.connect_timeout)
            self._timeouts[seconds] = known
        return known

    async def close(self) -> None:
        """Close every connection; what is still asked fails as unreachable."""
        self._closed = True
        for session in (self._session, self._fresh):
            if session is not None:
                await session.close()
        self._session = self._fresh = None
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

    def __init__(
        self, answer: aiohttp.ClientResponse, url: str, timeout: float, largest: int
    ) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self._answer, self._url, self._timeout = answer, url, timeout
        self._left = largest

    async def read(self) -> bytes:
        """See `Streamed.read`."""
        try:
            data = await self._answer.content.readany()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _translated(error, self._url, self._timeout) from error
        self._left -= len(data)
        if self._left < 0:
            raise TooLarge("the answer is larger than the bound", self._url)
        return data


class _Answer(aiohttp.ClientResponse):
    """Keeps a connection that answered 5xx out of the pool.

    The server closes it right after such an answer without saying so (protocol section 2), and a
    claim sent on it would be lost with an unknown outcome.
    """

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        protocol = connection.protocol
        await super().start(connection)
        if self.status >= 500 and protocol is not None:
            if connection.protocol is None:  # the body came with the head: already in the pool
                protocol.close()
            else:
                protocol.force_close()
        return self


def _data(body: bytes | None) -> bytes | io.BytesIO | None:
    """aiohttp warns about (and copies) large plain bytes; a file object it sends in parts."""
    return io.BytesIO(body) if body is not None and len(body) > _BIG_BODY else body


def _translated(error: Exception, url: str, timeout: float) -> TransportError:
    if isinstance(error, aiohttp.ConnectionTimeoutError | aiohttp.ClientConnectorError):
        why = getattr(error, "os_error", None) or error
        text = f"no connection: {getattr(why, 'strerror', None) or why}"
        return Unreachable(text, url, sent=False)
    if isinstance(error, aiohttp.InvalidURL):
        todo = "Give it as http://host:port"
        return Unreachable("not a usable address", url, todo, sent=False)
    if isinstance(error, TimeoutError):
        return TimedOut(f"no answer within {timeout:g} s", url)
    return Unreachable(f"the connection was lost: {str(error) or type(error).__name__}", url)


def _session(connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        response_class=_Answer,
        headers=_HEADERS,
        auto_decompress=False,
    )


@lru_cache(maxsize=512)
def _parsed(url: str) -> URL:
    return URL(url, encoded=True)
