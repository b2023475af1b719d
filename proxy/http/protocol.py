"""HTTP/1.1 with limits on the size of a head, the time a request takes, and open connections.

A client that sends its request a byte at a time, opens connections without using them, or does not
read its response is refused or disconnected, so that it cannot hold resources for long.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Any, ClassVar, cast
from weakref import WeakKeyDictionary

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from core.settings import ProxySettings
from proxy.http import asgi
from proxy.http.asgi import FAST_RESPONSE, ON_LEAVE, UNREAD, Receive, Scope, Send, send_error
from proxy.http.errors import ApiError, overloaded, reason_phrase
from proxy.http.fast_response import fast_responder

log = logging.getLogger(__name__)

STALL = 120.0
"""Seconds until a client that does not read its response is disconnected."""
BODY_TIME_FACTOR = 10
"""A whole body may take this many times the limit on a pause within it."""
PIPELINE_LIMIT = 4
"""Pipelined requests that are read ahead while an earlier response is pending."""
IDLE = 3.0
"""Seconds without a request after which a connection counts as new. It exceeds the `Retry-After` of
a full queue, so that a retry on the same connection does not overtake."""
LINGER = 1.0
"""Seconds that a refused connection stays open: an immediate close would reset it before the client
has read the error."""


_on_header = HttpToolsProtocol.on_header


class _TooLarge(Exception):
    """The head of a request, or the discarded part of its body, exceeds the limit."""


class _WriteCoalescer:
    """Flushes all connections with pending data at the end of an event loop iteration."""

    __slots__ = ("_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[_CoalescingTransport] = []

    def put(self, connection: "_CoalescingTransport") -> None:
        if not self._waiting:
            self._loop.call_soon(self._send)
        self._waiting.append(connection)

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        for connection in waiting:
            connection.flush()


class _CoalescingTransport:
    """A transport that joins all writes of one event loop iteration into a single one.

    Each write may wake the client's process, and the head of a response alone is of no use to it.
    """

    __slots__ = ("_chunks", "_defer_close", "_outbox", "_transport")

    def __init__(
        self, transport: asyncio.Transport, outbox: _WriteCoalescer, lingers: Callable[[], bool]
    ) -> None:
        self._transport = transport
        self._outbox = outbox
        self._defer_close = lingers
        """Called before a close; True postpones it: the protocol closes the transport later."""
        self._chunks: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._chunks:
            self._outbox.put(self)
        self._chunks.append(data)

    def flush(self) -> None:
        chunks, self._chunks = self._chunks, []
        if chunks and not self._transport.is_closing():
            self._transport.write(chunks[0] if len(chunks) == 1 else b"".join(chunks))

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self.flush()
        if self._transport.is_closing() or not self._defer_close():
            self._transport.close()

    def write_eof(self) -> None:
        self.flush()
        self._transport.write_eof()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class _Http10Cycle(RequestResponseCycle):
    """A request over HTTP/1.0, without chunked encoding: closing the connection ends a stream."""

    async def send(self, message: Any) -> None:
        """Send a message without chunked encoding; see the base class."""
        self.chunked_encoding = False
        if message["type"] == "http.response.body":
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)


class _BodyDeadline:
    """Time limit for the body of a request: in total, and until the next part."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = 0.0
        """Deadline for the whole body, on the loop's clock; 0 before its first part."""

    def begin(self) -> None:
        """Start the limit for a new body."""
        self._until = 0.0

    def left(self, now: float, pause: float, *, reads: bool) -> float:
        """Return the seconds until the next part must arrive.

        Args:
            now: Time on the loop's clock.
            pause: Limit on a pause between two parts, in seconds.
            reads: Whether the server reads; if not, the time limit starts again.
        """
        if not reads:
            self._until = 0.0
            return pause
        self._until = self._until or now + BODY_TIME_FACTOR * pause
        return min(pause, max(self._until - now, 0.0))


class _ClosingProtocol(HttpToolsProtocol):
    """Orderly end of a connection: deliver the response, discard the rest of a body."""

    _too_slow: Callable[[], None]
    """Called when the alarm expires; subclasses define it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._alarm: asyncio.TimerHandle | None = None
        self._in_body = False
        self._discard_left = UNREAD
        """Bytes of a body that may still be discarded after its request was answered."""
        self._discarding = False
        """The connection is refused or ending: all further input is discarded."""

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        if self.cycle.response_complete:
            self._discard_left -= len(body)
            if self._discard_left < 0:
                self._linger()
                raise _TooLarge

    def _defer_close(self) -> bool:
        """Return whether to close later: with a body on its way, an immediate close would reset the
        connection before the client has read the response."""
        if self._discarding or not self._in_body:
            return False
        self._linger()
        return True

    def _linger(self) -> None:
        """Send no more, discard all input, and close after `LINGER` seconds."""
        self._discarding = True
        self._set_alarm(LINGER)
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def _reading_ended(self) -> bool:
        """Return whether the connection reads no more requests."""
        return self._discarding or self.transport.is_closing()

    def _busy(self) -> bool:
        """Return whether a request is not completely answered yet."""
        cycle: RequestResponseCycle | None = getattr(self, "cycle", None)  # None before the first
        return cycle is not None and not cycle.response_complete

    def _set_alarm(self, seconds: float | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = None if seconds is None else self.loop.call_later(seconds, self._too_slow)


class BoundedProtocol(_ClosingProtocol):
    """One connection; `bounded_protocol` creates the class with the limits of given settings."""

    max_head_bytes = 64 << 10
    head_limit = 20.0
    body_limit = 30.0
    max_connections = 4096
    _outboxes: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, _WriteCoalescer]] = (
        WeakKeyDictionary()
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stall: asyncio.TimerHandle | None = None
        self._in_head = False
        """Whether the head of a request is incomplete."""
        self._body_deadline = _BodyDeadline()
        self._head_parsed = self._head_received = 0
        """Bytes of the current head that were parsed, and that were received."""
        self._refeeding = False
        """Whether the parser gets a head a second time, see `_decline`."""
        self._idle_since = -math.inf
        """When the last response was complete, on the loop's clock; infinite during a request."""
        self._use = asgi.ConnectionUse()
        self._on_disconnect_calls: dict[object, Callable[[], None]] = {}
        """Callbacks for the client's disconnect."""

    # --- the connection ------------------------------------------------------------------------

    def connection_made(
        self,
        transport: asyncio.Transport,  # type: ignore[override]  # as in the base
    ) -> None:
        super().connection_made(transport)
        joined = _CoalescingTransport(transport, self.outbox(self.loop), self._defer_close)
        self.transport = cast(asyncio.Transport, joined)
        self._set_alarm(self.head_limit)
        if len(self.connections) > 2 * self.max_connections:
            transport.abort()
        elif len(self.connections) > self.max_connections:
            self.app = _refuse_connection

    @classmethod
    def outbox(cls, loop: asyncio.AbstractEventLoop) -> _WriteCoalescer:
        """Return the write coalescer that all connections of the loop share."""
        outbox = cls._outboxes.get(loop)
        if outbox is None:
            outbox = cls._outboxes[loop] = _WriteCoalescer(loop)
        return outbox

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_alarm(None)
        if self._stall is not None:
            self._stall.cancel()
        super().connection_lost(exc)
        for callback in tuple(self._on_disconnect_calls.values()):
            callback()

    def _add_disconnect_call(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when the client disconnects; return a function that cancels this."""
        key = object()
        self._on_disconnect_calls[key] = callback
        if self.transport.is_closing():  # it disconnected while its body was read
            self.loop.call_soon(callback)
        else:
            self.flow.resume_reading()  # or a disconnect stays unnoticed after a large body

        def remove() -> None:
            self._on_disconnect_calls.pop(key, None)

        return remove

    def data_received(self, data: bytes) -> None:
        if self._discarding:
            self._discard_left -= len(data)
            if self._discard_left < 0:
                self.flow.pause_reading()
            return
        self._head_received += len(data) if self._in_head else 0
        if self._head_received > self.max_head_bytes:
            self._too_large()
            return
        self._unset_keepalive_if_required()
        self._feed(data)
        if self._reading_ended():
            return
        if self._in_body:
            now, reads = self.loop.time(), not self.flow.read_paused
            self._set_alarm(self._body_deadline.left(now, self.body_limit, reads=reads))
        elif self._in_head or not self._busy():
            # Blank lines between requests do not keep a connection open either.
            if self._alarm is None:
                self._set_alarm(self.head_limit)
        else:
            self._set_alarm(None)

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._decline(data[offer.args[0] :])
        except httptools.HttpParserError:
            self._refuse(400, "Invalid HTTP request received.")

    def _decline(self, following: bytes) -> None:
        """Ignore the offer of another protocol, as Java's client makes, and serve the request.

        The parser assumes that data of that protocol follows the head. So a new parser gets the
        headers that determine the length of the body, then the data.
        """
        body_headers = (b"content-length", b"transfer-encoding")
        lines = [b"%s: %s\r\n" % header for header in self.headers if header[0] in body_headers]
        head = b"%s / HTTP/1.1\r\n%s\r\n" % (self.scope["method"].encode(), b"".join(lines))
        self.parser = httptools.HttpRequestParser(self)
        self._refeeding = True
        self._feed(head)
        self._refeeding = False
        if following and not self._reading_ended():
            self._feed(following)

    def close_after_response(self) -> None:
        """Close the connection after the pending response, if there is one."""
        if self._busy():
            self.cycle.keep_alive = False

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stall is None:
            self._stall = self.loop.call_later(STALL, self._stalled)

    def resume_writing(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        super().resume_writing()

    # --- the parser ----------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if not self._refeeding:
            super().on_message_begin()
            self._in_head, self._in_body = True, False
            self._head_parsed = self._head_received = 0
            self._discard_left = UNREAD

    def on_url(self, url: bytes) -> None:
        if not self._refeeding:
            self._count(len(url))
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._refeeding:
            self._head_parsed += len(name) + len(value) + 4
            if self._head_parsed > self.max_head_bytes:
                self._count(0)
            _on_header(self, name, value)

    def on_headers_complete(self) -> None:
        if not self._refeeding:
            self._in_head, self._in_body = False, True
            self._body_deadline.begin()
            super().on_headers_complete()
            if self._on_disconnect_calls and len(self.pipeline) <= PIPELINE_LIMIT:
                self.flow.resume_reading()  # paused, it would not notice a disconnect
            scope: Scope = self.scope  # type: ignore[assignment]  # uvicorn has a TypedDict
            scope[ON_LEAVE] = self._add_disconnect_call
            scope[asgi.CONNECTION] = self._begin_use()
            if scope["http_version"] == "1.0":
                self.cycle.__class__ = _Http10Cycle
                self.cycle.waiting_for_100_continue = False  # HTTP/1.0 has no status 100
            elif scope["method"] == "POST":
                scope[FAST_RESPONSE] = fast_responder(self.cycle)

    def _begin_use(self) -> asgi.ConnectionUse:
        lag = max(IDLE - (self.loop.time() - self._idle_since), 0.0)
        while_another_is_answered = lag > IDLE
        in_order = lag > 0.0 and (self._use.waited or while_another_is_answered)
        self._use = asgi.ConnectionUse(None if in_order else lag)
        self._idle_since = math.inf
        return self._use

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():  # see `_decline`
            self._in_body = False
            super().on_message_complete()

    def on_response_complete(self) -> None:
        if self._discarding:
            return
        self._idle_since = self.loop.time()
        if not (self._in_head or self._in_body):
            self._set_alarm(None)
        super().on_response_complete()

    def _count(self, size: int) -> None:
        self._head_parsed += size
        if self._head_parsed > self.max_head_bytes:
            self._too_large()
            raise _TooLarge

    # --- refusals ------------------------------------------------------------------------------

    def _too_large(self) -> None:
        text = f"The request's headers are larger than {self.max_head_bytes >> 10} KiB."
        self._refuse(431, text)

    def _too_slow(self) -> None:
        self._alarm = None
        busy = self._busy()
        if self._reading_ended():
            self.transport.close()
        elif self.flow.read_paused or self.pipeline or (self._in_head and busy):
            self._set_alarm(self.head_limit)  # not the client's fault
        elif self._in_head or (self._in_body and busy):
            self._refuse(408, "The request did not arrive in time.")
        else:
            self.transport.close()

    def _refuse(self, status: int, text: str) -> None:
        """Send an error without the application, then close once the client can have read it."""
        if self._discarding:
            return
        self._discarding = True
        if self._busy():
            cycle = self.cycle
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started or not self._in_body:
                self.transport.close()  # the client would read the error as part of the response
                return
        kind = reason_phrase(status)
        body = ApiError(status, None, text, kind=kind).body()
        head = (
            f"HTTP/1.1 {status} {kind}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self._linger()

    def _stalled(self) -> None:
        log.info("disconnected a client that did not read its response for %.0f s", STALL)
        self.transport.abort()


async def _refuse_connection(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer every request of a connection over the limit with a 503."""
    log.warning("refused a connection: too many are open")
    refusal = overloaded(5)
    await send_error(send, refusal, refusal.body(), ((b"connection", b"close"),))


def bounded_protocol(settings: ProxySettings) -> type[asyncio.Protocol]:
    """Return the protocol class with the limits of these settings."""
    limits = {
        "max_head_bytes": settings.max_header_kb << 10,
        "head_limit": settings.header_timeout,
        "body_limit": settings.body_timeout,
        "max_connections": settings.max_connections,
    }
    return type("BoundedByProtocolSettings", (BoundedProtocol,), limits)
