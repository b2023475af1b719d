"""HTTP/1.1 with bounds: on the size of a head, on how slowly a request may come, on connections.

A client that sends its request a byte at a time, or opens connections and says nothing, or does
not read what it is sent, is answered or dropped; it holds nothing for long.
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
from proxy.http.asgi import AT_ONCE, ON_LEAVE, UNREAD, Receive, Scope, Send, send_error
from proxy.http.errors import ApiError, overloaded, reason_phrase
from proxy.http.fast_response import whole_of

log = logging.getLogger(__name__)

STALL = 120.0
"""Seconds that a client may leave sent bytes unread."""
BODY_TIME_FACTOR = 10
"""Times the limit on a pause that a whole body may take; a trickled one ends there."""
PIPELINE_LIMIT = 4
"""Requests that are read ahead while an earlier answer is still awaited."""
IDLE = 3.0
"""Seconds without a request after which a connection counts as a new one. It exceeds the
`Retry-After` of a full queue, so that a retry on the same connection is no newcomer."""
LINGER = 1.0
"""Seconds a refused connection stays open: closed at once, it would be reset before the client
has read why."""


_on_header = HttpToolsProtocol.on_header


class _TooLarge(Exception):
    """The head of a request, or what is discarded of its body, is over the limit."""


class _WriteCoalescer:
    """Connections that have something to send at the end of this turn of the loop."""

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
    """A transport on which what is written in one turn of the loop goes out at its end, at once.

    Each write may have to wake the client's process; the head of an answer alone tells it nothing.
    """

    __slots__ = ("_held", "_lingers", "_outbox", "_transport")

    def __init__(
        self, transport: asyncio.Transport, outbox: _WriteCoalescer, lingers: Callable[[], bool]
    ) -> None:
        self._transport = transport
        self._outbox = outbox
        self._lingers = lingers
        """Asked before it is closed: True keeps it open, it is closed again later."""
        self._held: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._held:
            self._outbox.put(self)
        self._held.append(data)

    def flush(self) -> None:
        held, self._held = self._held, []
        if held and not self._transport.is_closing():
            self._transport.write(held[0] if len(held) == 1 else b"".join(held))

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self.flush()
        if self._transport.is_closing() or not self._lingers():
            self._transport.close()

    def write_eof(self) -> None:
        self.flush()
        self._transport.write_eof()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class _Http10Cycle(RequestResponseCycle):
    """An exchange with a client of HTTP/1.0, which knows no chunks: a stream ends as it closes."""

    async def send(self, message: Any) -> None:
        """See the base."""
        self.chunked_encoding = False
        if message["type"] == "http.response.body":
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)


class _BodyDeadline:
    """How long a client may still take for a body, in all and until the next part."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = 0.0
        """On the loop's clock: when it must be there; 0 until a part has come."""

    def begin(self) -> None:
        """Another body."""
        self._until = 0.0

    def left(self, now: float, pause: float, *, reads: bool) -> float:
        """Seconds until more must come, `pause` at most; time in which we do not read is ours."""
        if not reads:
            self._until = 0.0
            return pause
        self._until = self._until or now + BODY_TIME_FACTOR * pause
        return min(pause, max(self._until - now, 0.0))


class _ClosingProtocol(HttpToolsProtocol):
    """How a connection ends: the answer arrives, what still comes of a body is discarded."""

    _too_slow: Callable[[], None]
    """Called when the alarm expires; each subclass has it."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._alarm: asyncio.TimerHandle | None = None
        self._in_body = False
        self._unread = UNREAD
        """Bytes that are still discarded of a body whose request is answered."""
        self._done = False
        """Refused: what still comes is thrown away."""

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        if self.cycle.response_complete:
            self._unread -= len(body)
            if self._unread < 0:
                self._linger()
                raise _TooLarge

    def _lingers(self) -> bool:
        """Whether the connection is closed later: with a body on its way it would be reset before
        the client has read the answer."""
        if self._done or not self._in_body:
            return False
        self._linger()
        return True

    def _linger(self) -> None:
        """Send nothing more, discard what comes, and close in a moment."""
        self._done = True
        self._set_alarm(LINGER)
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def _over(self) -> bool:
        """Whether nothing more is read from the client."""
        return self._done or self.transport.is_closing()

    def _busy(self) -> bool:
        """Whether a request waits for the end of its answer."""
        cycle: RequestResponseCycle | None = getattr(self, "cycle", None)  # None before the first
        return cycle is not None and not cycle.response_complete

    def _set_alarm(self, seconds: float | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = None if seconds is None else self.loop.call_later(seconds, self._too_slow)


class BoundedProtocol(_ClosingProtocol):
    """One connection; `bounded` makes the class for given settings."""

    largest_head = 64 << 10
    head_limit = 20.0
    body_limit = 30.0
    most_connections = 4096
    _outboxes: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, _WriteCoalescer]] = (
        WeakKeyDictionary()
    )

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._stall: asyncio.TimerHandle | None = None
        self._in_head = False
        """A request has begun and its head is not complete."""
        self._body_time = _BodyDeadline()
        self._head = self._raw = 0
        """Bytes of the head that were understood, and that came, so far."""
        self._again = False
        """The parser is fed what it has told before."""
        self._idle_since = -math.inf
        """On the loop's clock: when its last answer was complete; infinite until it is."""
        self._leaving: dict[object, Callable[[], None]] = {}
        """Whom to tell that the client has left."""

    # --- the connection ------------------------------------------------------------------------

    def connection_made(
        self,
        transport: asyncio.Transport,  # type: ignore[override]  # as in the base
    ) -> None:
        super().connection_made(transport)
        joined = _CoalescingTransport(transport, self.outbox(self.loop), self._lingers)
        self.transport = cast(asyncio.Transport, joined)
        self._set_alarm(self.head_limit)
        if len(self.connections) > 2 * self.most_connections:
            transport.abort()
        elif len(self.connections) > self.most_connections:
            self.app = _full

    @classmethod
    def outbox(cls, loop: asyncio.AbstractEventLoop) -> _WriteCoalescer:
        """One for all connections of these settings."""
        found = cls._outboxes.get(loop)
        if found is None:
            found = cls._outboxes[loop] = _WriteCoalescer(loop)
        return found

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_alarm(None)
        if self._stall is not None:
            self._stall.cancel()
        super().connection_lost(exc)
        for tell in tuple(self._leaving.values()):
            tell()

    def _on_leave(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Call `tell` when the client leaves; returns what takes that back."""
        key = object()
        self._leaving[key] = tell
        if self.transport.is_closing():  # it left while its body was read
            self.loop.call_soon(tell)
        else:
            self.flow.resume_reading()  # behind a large body nothing is read, nor the end seen

        def take_back() -> None:
            self._leaving.pop(key, None)

        return take_back

    def data_received(self, data: bytes) -> None:
        if self._done:
            self._unread -= len(data)
            if self._unread < 0:
                self.flow.pause_reading()
            return
        self._raw += len(data) if self._in_head else 0
        if self._raw > self.largest_head:
            self._too_large()
            return
        self._unset_keepalive_if_required()
        self._feed(data)
        if self._over():
            return
        if self._in_body:
            now, reads = self.loop.time(), not self.flow.read_paused
            self._set_alarm(self._body_time.left(now, self.body_limit, reads=reads))
        elif self._in_head or not self._busy():
            # Also after blank lines between requests: they do not keep a connection open.
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

    def _decline(self, rest: bytes) -> None:
        """The client offers another protocol, as Java's does: its request is served all the same.

        The parser takes what follows the head for that protocol, so a fresh one gets the rest,
        after as much of the head as tells how long the body is.
        """
        kept = (b"content-length", b"transfer-encoding")
        lines = [b"%s: %s\r\n" % header for header in self.headers if header[0] in kept]
        head = b"%s / HTTP/1.1\r\n%s\r\n" % (self.scope["method"].encode(), b"".join(lines))
        self.parser = httptools.HttpRequestParser(self)
        self._again = True
        self._feed(head)
        self._again = False
        if rest and not self._over():
            self._feed(rest)

    def last_answer(self) -> None:
        """The connection is closed after the answer that is under way, if one is."""
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
        if not self._again:
            super().on_message_begin()
            self._in_head, self._in_body = True, False
            self._head = self._raw = 0
            self._unread = UNREAD

    def on_url(self, url: bytes) -> None:
        if not self._again:
            self._count(len(url))
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._again:
            self._head += len(name) + len(value) + 4
            if self._head > self.largest_head:
                self._count(0)
            _on_header(self, name, value)

    def on_headers_complete(self) -> None:
        if not self._again:
            self._in_head, self._in_body = False, True
            self._body_time.begin()
            super().on_headers_complete()
            if self._leaving and len(self.pipeline) <= PIPELINE_LIMIT:
                self.flow.resume_reading()  # paused for it, we would not see that the client leaves
            scope: Scope = self.scope  # type: ignore[assignment]  # uvicorn's own kind of the same
            scope[ON_LEAVE] = self._on_leave
            if self.loop.time() - self._idle_since >= IDLE:
                scope[asgi.IDLE] = True
            self._idle_since = math.inf
            if scope["http_version"] == "1.0":
                self.cycle.__class__ = _Http10Cycle
                self.cycle.waiting_for_100_continue = False  # it knows no such answer
            elif scope["method"] == "POST":
                scope[AT_ONCE] = whole_of(self.cycle)

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():  # else it is not the end, see `_decline`
            self._in_body = False
            super().on_message_complete()

    def on_response_complete(self) -> None:
        if self._done:
            return
        self._idle_since = self.loop.time()
        if not (self._in_head or self._in_body):
            self._set_alarm(None)
        super().on_response_complete()

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > self.largest_head:
            self._too_large()
            raise _TooLarge

    # --- refusals ------------------------------------------------------------------------------

    def _too_large(self) -> None:
        text = f"The request's headers are larger than {self.largest_head >> 10} KiB."
        self._refuse(431, text)

    def _too_slow(self) -> None:
        self._alarm = None
        busy_still = self._busy()
        if self._over():
            self.transport.close()
        elif self.flow.read_paused or self.pipeline or (self._in_head and busy_still):
            self._set_alarm(self.head_limit)  # we do not read, or they wait for an answer
        elif self._in_head or (self._in_body and busy_still):
            self._refuse(408, "The request did not arrive in time.")
        else:
            self.transport.close()

    def _refuse(self, status: int, text: str) -> None:
        """Answer without the application and close, in a way that lets the client read it."""
        if self._done:
            return
        self._done = True
        if self._busy():
            cycle = self.cycle
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started or not self._in_body:
                self.transport.close()  # a second answer would be taken for the first one's end
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
        log.info("a client did not read its answer for %.0f s: dropped", STALL)
        self.transport.abort()


async def _full(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers on a connection that is one too many."""
    log.warning("a connection was refused: too many are open")
    refusal = overloaded(5)
    await send_error(send, refusal, refusal.body(), ((b"connection", b"close"),))


def bounded(settings: ProxySettings) -> type[asyncio.Protocol]:
    """The protocol with these settings' limits."""
    limits = {
        "largest_head": settings.max_header_kb << 10,
        "head_limit": settings.header_timeout,
        "body_limit": settings.body_timeout,
        "most_connections": settings.max_connections,
    }
    return type("Bounded", (BoundedProtocol,), limits)
