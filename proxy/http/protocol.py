"""HTTP/1.1 with limits on connections: their number, the head of a request, silence, slow readers.

Limits on requests, such as the size of a body, are in `proxy.http.middleware`.
"""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httptools
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from core.dialects.errors import ApiError, reason_phrase
from core.settings import ProxySettings
from proxy.http.errors import overloaded
from proxy.http.exchange import error_response

log = logging.getLogger(__name__)

HEAD_LIMIT = 64 << 10
"""Maximum bytes of a request's headers."""
STALL = 120.0
"""Seconds until a client that does not read its response is disconnected."""
PIPELINE_LIMIT = 4
"""Pipelined requests that are read ahead while an earlier response is pending."""
LINGER = 1.0
"""Seconds that a refused connection stays open: an immediate close would reset it before the client
has read the error."""


class Connections:
    """All open connections of a server.

    When all are taken, or half of them by one address, a new one takes the place of the oldest
    silent one, which has no request in progress: one of that address, or of the address with the
    most silent ones.

    Args:
        most: Maximum number of connections.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: Counter[str] = Counter()
        self._silent: defaultdict[str, dict[BoundedProtocol, None]] = defaultdict(dict)
        """Address -> its silent connections, the oldest first."""

    def add(self, connection: "BoundedProtocol") -> bool:
        """Count a new connection; return False if there is no room for it."""
        address = connection.address
        self._open[address] += 1
        self.silent(connection)
        if self._open[address] > max(self._most // 2, 1):
            oldest = next(iter(self._silent[address]))
        elif self._open.total() > self._most:
            most_silent = max(self._silent.values(), key=len)
            oldest = next(iter(most_silent))
        else:
            return True
        if oldest is connection:
            return False
        self.busy(oldest)
        oldest.abort()
        return True

    def silent(self, connection: "BoundedProtocol") -> None:
        """Record that a connection has no request in progress."""
        self._silent[connection.address][connection] = None

    def busy(self, connection: "BoundedProtocol") -> None:
        """Record that a connection has a request in progress, or closes."""
        silent = self._silent[connection.address]
        silent.pop(connection, None)
        if not silent:
            del self._silent[connection.address]

    def remove(self, connection: "BoundedProtocol") -> None:
        """Forget a closed connection."""
        self.busy(connection)
        self._open[connection.address] -= 1
        if not self._open[connection.address]:
            del self._open[connection.address]


class BoundedProtocol(HttpToolsProtocol):
    """One connection.

    Args:
        settings: The limits.
        connections: All connections of the server.
        uvicorn: Arguments of the base class.
    """

    def __init__(self, settings: ProxySettings, connections: Connections, **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        self.address = ""
        """Address of the client."""
        self.abort: Callable[[], object]
        """Closes the connection at once."""
        self._counted = False
        self.answered: RequestResponseCycle | None = None
        """The request that is being answered, if any; `cycle` is the newest one."""
        self._connections = connections
        self._head_time = settings.header_timeout
        self._head_bytes = 0
        """Bytes of an incomplete head that were received."""
        self._deadline: float | None = None
        """Until when a head, or the rest of a body that nobody reads, must be complete; None if
        nothing is incomplete."""
        self._refused = False
        """All further input is discarded."""
        self._stall: asyncio.TimerHandle | None = None

    @property
    def _in_head(self) -> bool:
        return bool(self.scope) and "method" not in self.scope

    # --- the connection ------------------------------------------------------------------------

    def enter(self, address: str, abort: Callable[[], object]) -> None:
        """Count the connection; under TLS before its handshake.

        Args:
            address: Address of the client.
            abort: Closes the connection.
        """
        self.address, self.abort, self._counted = address, abort, True
        if not self._connections.add(self):
            log.warning("refused a connection: too many are open")
            self.app = _refusing(overloaded(5))

    def leave(self) -> None:
        """Count the connection no more."""
        self._connections.remove(self)

    def connection_made(
        self,
        transport: asyncio.Transport,  # type: ignore[override]  # as in the base
    ) -> None:
        super().connection_made(transport)
        if not self._counted:
            self.enter(self.client[0] if self.client else "", transport.abort)
        self.abort = transport.abort
        self._arm(self._head_time)

    def connection_lost(self, exc: Exception | None) -> None:
        self.leave()
        self._arm(None)
        self.resume_writing()
        super().connection_lost(exc)
        if self.answered is not None:
            self.answered.disconnected = True
            self.answered.message_event.set()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._arm(None)
        self._head_bytes += len(data) if self._in_head else 0
        self._deadline = self._deadline or self.loop.time() + self._head_time
        self._feed(data)
        if self._in_head and self._head_bytes > HEAD_LIMIT:
            self._refuse(_head_too_large())
        self._wait_for_client()

    def _wait_for_client(self) -> None:
        """Limit the time until the client sends what is missing, or its next request."""
        if self.answered or self._refused or self.transport.is_closing():
            return
        if self._deadline is None:
            self._arm(self.timeout_keep_alive)
        else:
            self._arm(max(self._deadline - self.loop.time(), 0.0))

    def _arm(self, seconds: float | None) -> None:
        """Call `timeout_keep_alive_handler` after so many seconds instead of earlier plans."""
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None
        if seconds is not None:
            alarm = self.loop.call_later(seconds, self.timeout_keep_alive_handler)
            self.timeout_keep_alive_task = alarm

    def timeout_keep_alive_handler(self) -> None:
        if self._in_head and not self._refused:
            self._refuse(ApiError(408, None, "The request did not arrive in time."))
        else:
            super().timeout_keep_alive_handler()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall = self._stall or self.loop.call_later(STALL, self._stalled)

    def resume_writing(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        super().resume_writing()

    def _stalled(self) -> None:
        log.info("disconnected a client that did not read its response for %.0f s", STALL)
        self.transport.abort()

    # --- the parser ----------------------------------------------------------------------------

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._decline(data[offer.args[0] :])
        except httptools.HttpParserError:
            self._refuse(ApiError(400, None, "Invalid HTTP request received.", kind="Bad Request"))

    def _decline(self, body: bytes) -> None:
        """Ignore the offer of another protocol, as Java's client makes, and serve the request.

        The parser assumes that data of that protocol follows the head: another one reads the body.
        """
        lengths = (b"content-length", b"transfer-encoding")
        lines = [b"%s: %s\r\n" % header for header in self.headers if header[0] in lengths]
        callbacks = SimpleNamespace(on_body=self.on_body, on_message_complete=self._declined)
        self.parser = httptools.HttpRequestParser(callbacks)
        self._feed(b"POST / HTTP/1.1\r\n%s\r\n" % b"".join(lines))
        if body:
            self._feed(body)

    def _declined(self) -> None:
        self.parser = httptools.HttpRequestParser(self)
        self.on_message_complete()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes, self._deadline = 0, self.loop.time() + self._head_time

    def on_headers_complete(self) -> None:
        self._deadline = None
        lines = sum([len(name) + len(value) + 4 for name, value in self.headers])
        if len(self.url) + lines > HEAD_LIMIT:
            self.app = _refusing(_head_too_large())
        elif self.parser.get_http_version() == "1.0":
            self.app, self.expect_100_continue = self._without_chunks, False
        super().on_headers_complete()
        self.answered = self.answered or self.cycle
        self._connections.busy(self)
        if 0 < len(self.pipeline) <= PIPELINE_LIMIT:
            self.flow.resume_reading()  # paused, it would not notice a disconnect

    async def _without_chunks(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of HTTP/1.0: a stream has no chunks, and ends with the connection."""
        cycle = self.cycle

        async def send_without_chunks(message: Message) -> None:
            cycle.chunked_encoding = False
            cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await self.config.loaded_app(scope, receive, send_without_chunks)

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():  # then the body is still to come, see `_decline`
            self._deadline = None
            super().on_message_complete()

    def on_response_complete(self) -> None:
        self.answered = self.pipeline[-1][0] if self.pipeline else None
        super().on_response_complete()
        if self.answered is None and not self.transport.is_closing():
            self._connections.silent(self)
            if self._deadline is not None:
                self._deadline = self.loop.time() + self._head_time
            self._wait_for_client()

    # --- refusals ------------------------------------------------------------------------------

    def _refuse(self, refusal: ApiError) -> None:
        """Send an error without the application, then close once the client can have read it."""
        if self._refused:
            return
        self._refused = True
        if self.answered:  # the client would read the error as part of the response
            self.transport.close()
            return
        body = refusal.body()
        head = (
            f"HTTP/1.1 {refusal.status} {reason_phrase(refusal.status)}\r\n"
            "content-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._arm(LINGER)


def _head_too_large() -> ApiError:
    return ApiError(431, None, f"The request's headers are larger than {HEAD_LIMIT >> 10} KiB.")


def _refusing(refusal: ApiError) -> ASGIApp:
    """Return an application that answers each request with an error and closes the connection."""

    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        response = error_response(refusal, headers={"connection": "close"})
        await response(scope, receive, send)

    return refuse
