"""A kept-alive connection to a server. It carries one request at a time."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from ajet_swarm.http.interface import Response, ResponseFuture
from ajet_swarm.http.parser import (
    BodyTooLarge,
    MalformedResponse,
    ResponseParser,
    headers,
    parse_whole,
)
from ajet_swarm.protocol.errors import TimedOut, TooLarge, TransportError, Unreachable

PAUSE = 1 << 20
"""Bytes of a streamed body that may stay unread; request bodies from this size on are sent in
pieces."""
PIECE = 1 << 18
"""Bytes of such a piece; one is written in each iteration of the event loop."""


class PendingResponse(ResponseFuture):
    """Future response to a request on a connection; cancelling it closes the connection."""

    __slots__ = ("connection",)
    connection: "Connection"

    def send_now(self) -> None:
        """See `ResponseFuture.send_now`."""
        self.connection.send_now()

    def cancel(self, msg: Any = None) -> bool:
        """See `asyncio.Future.cancel`."""
        done = super().cancel(msg)
        if done:
            self.connection.drop()
        return done


class WriteCoalescer:
    """Buffer of the requests of one iteration of the event loop, written together at its end.

    A write may wake the server's process; of several writes in a row only the first one does.
    """

    __slots__ = ("_loop", "waiting")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.waiting: list[tuple[asyncio.Transport, bytes]] = []
        """Pairs of a transport and the bytes to write to it."""

    def wake(self) -> None:
        """Schedule `send`; call this before the first request of an iteration."""
        self._loop.call_soon(self.send)

    def send(self) -> None:
        """Write the waiting requests."""
        waiting, self.waiting = self.waiting, []
        for transport, data in waiting:
            if not transport.is_closing():
                transport.write(data)


class HeldBytes:
    """Bytes of all responses in memory together.

    Args:
        most: Maximum number of bytes.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0


class Connection(asyncio.Protocol):
    """A connection to one server, which a transport keeps in a pool.

    Args:
        origin: Key of its pool: scheme, host and port.
        largest: Largest accepted body in bytes.
        held: Counter of the bytes of all connections.
        free: Called when a request has ended, with or without a response.
        coalescer: Buffer of the requests of one iteration.

    Attributes:
        deadline: Deadline of the current request, on the loop's clock.
        idle_since: Time on the loop's clock at which the last request ended.
        lost: Error that ended the connection.
        reusable: Whether the connection may carry another request. It may not after a 5xx: the
            server closes it without notice (protocol section 2), and a claim sent on it would
            have an unknown outcome.
    """

    __slots__ = (
        "_busy",
        "_coalescer",
        "_free",
        "_full",
        "_held",
        "_held_by_all",
        "_largest",
        "_loop",
        "_more",
        "_most",
        "_paused",
        "_reader",
        "_seconds",
        "_unsent",
        "_url",
        "_whole",
        "alarm",
        "deadline",
        "idle_since",
        "lost",
        "now",
        "origin",
        "reusable",
        "transport",
    )  # fmt: skip

    def __init__(
        self,
        origin: str,
        largest: int,
        held: HeldBytes,
        free: "Callable[[Connection], None]",
        coalescer: "WriteCoalescer",
    ) -> None:
        self.origin = origin
        self._coalescer = coalescer
        self.reusable = True
        self.transport: asyncio.Transport | None = None
        self.idle_since = 0.0
        self.deadline = 0.0
        self.alarm: asyncio.TimerHandle | None = None
        self.lost: TransportError | None = None
        self._loop = asyncio.get_running_loop()
        self.now: Callable[[], float] = self._loop.time
        self._reader: ResponseParser | None = None
        """Parser of the current response; None if the response arrived in one piece."""
        self._free = free
        self._largest = self._most = largest
        self._held = 0
        self._held_by_all = held
        self._whole: PendingResponse | None = None
        self._more: asyncio.Future[None] | None = None
        """Future that is done when more of a streamed response has arrived."""
        self._busy = self._paused = self._full = False
        self._unsent: memoryview | None = None
        """Unsent rest of a long request body."""
        self._url = origin
        self._seconds = 0.0

    @property
    def reader(self) -> ResponseParser:
        """The parser of the current response."""
        if self._reader is None:
            # The reader of a stream counts what it keeps.
            self._reader = ResponseParser(self._largest if self._whole is None else self._most)
        return self._reader

    def hold(self, size: int) -> None:
        """Record how many bytes of the response are in memory.

        Raises:
            TooLarge: They are too many; the request has failed.
        """
        total = self._held_by_all
        total.used += size - self._held
        self._held = size
        if size <= self._most and (total.used <= total.most or not size):
            return
        text = "the answers of all calls are too large together"
        error = TooLarge(_too_large(self._most) if size > self._most else text, self._url)
        self._fail(error)
        raise error

    # --- requests ------------------------------------------------------------------------------

    def send(
        self, url: str, head: bytes, body: bytes, seconds: float, most: int = 0
    ) -> PendingResponse:
        """Send a request and return its future response; `url` is for errors."""
        self._most = most or self._largest
        self._whole = pending = PendingResponse(loop=self._loop)
        pending.connection, pending.listener = self, None
        if len(body) >= PAUSE:
            self._send(url, head, body, seconds)
            return pending
        assert self.transport is not None
        self._url, self._seconds, self._busy = url, seconds, True  # as in `_send`
        self.deadline = self.now() + seconds
        self._reader = None
        self.reusable = False
        coalescer = self._coalescer
        if not coalescer.waiting:
            coalescer.wake()
        coalescer.waiting.append((self.transport, head + body))
        return pending

    def send_streamed(
        self, url: str, head: bytes, body: bytes, seconds: float, most: int = 0
    ) -> "asyncio.Future[None]":
        """Send a request whose response is streamed; the future is done with the head."""
        self._most = most or self._largest
        self._more = arrived = self._loop.create_future()
        self._send(url, head, body, seconds)
        return arrived

    def more(self) -> "asyncio.Future[None]":
        """Return a future that is done when more of a streamed response has arrived."""
        self._more = arrived = self._loop.create_future()
        if self._paused and self.transport is not None:
            self._paused = False
            self.transport.resume_reading()
        if self.lost is not None:
            arrived.set_exception(self.lost)
        return arrived

    def _send(self, url: str, head: bytes, body: bytes, seconds: float) -> None:
        transport = self.transport
        assert transport is not None
        self._url, self._seconds, self._busy = url, seconds, True
        self.deadline = self.now() + seconds
        self._reader = None
        self.reusable = False
        if len(body) < PAUSE:
            coalescer = self._coalescer
            if not coalescer.waiting:
                coalescer.wake()
            coalescer.waiting.append((transport, head + body))
        else:
            transport.write(head)
            self._unsent = memoryview(body)
            self._send_next_piece()

    def _send_next_piece(self) -> None:
        """Write the next piece of a long body unless the socket is full; schedule the one after."""
        rest, transport = self._unsent, self.transport
        if rest is None or transport is None or self._full or transport.is_closing():
            return
        transport.write(rest[:PIECE])
        rest = rest[PIECE:]
        self._unsent = rest or None
        if rest:
            self._loop.call_soon(self._send_next_piece)

    def send_now(self) -> None:
        """Write the waiting requests now, not at the end of the loop's iteration."""
        self._coalescer.send()

    # --- ends ----------------------------------------------------------------------------------

    def time_out(self) -> None:
        """Fail the current request with `TimedOut`."""
        self._fail(TimedOut(f"no answer within {self._seconds:.3g} s", self._url))

    def abandon(self) -> None:
        """Fail the current request because the transport is closed."""
        self._fail(Unreachable("this transport is closed", self._url))

    def drop(self) -> None:
        """Close the connection and discard the rest of the response."""
        self._whole = self._more = self._unsent = None
        self.lost = self.lost or Unreachable("the connection was closed", self._url)
        self.reusable = False
        if self.transport is not None:
            self.transport.abort()
        self.release()

    def release(self) -> None:
        """Return the connection to its pool once its request has ended; forget its response."""
        self.hold(0)
        if self._reader is not None:  # errors and their frames refer to it
            self._reader.body = bytearray()
        if self.alarm is not None:
            self.alarm.cancel()
            self.alarm = None
        if self._busy:
            self._busy = False
            self._free(self)

    # --- called by the loop --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Part of `asyncio.Protocol`."""
        self.transport = cast(asyncio.Transport, transport)

    def pause_writing(self) -> None:
        """Part of `asyncio.Protocol`."""
        self._full = True

    def resume_writing(self) -> None:
        """Part of `asyncio.Protocol`."""
        self._full = False
        self._send_next_piece()

    def data_received(self, data: bytes) -> None:
        """Part of `asyncio.Protocol`."""
        if not self._busy:  # no request is open
            self.drop()
            return
        if self._reader is None and self._whole is not None:
            parsed = parse_whole(data, self._most)
            if parsed is not None:
                status, head, body, keep = parsed
                self._complete(Response(status, headers(head), body), keep)
                return
        try:
            self.reader.feed(data)
            if self._whole is not None:
                self.hold(len(self.reader.body))
        except MalformedResponse as error:
            self._fail(Unreachable(f"the connection was lost: {error}", self._url))
        except BodyTooLarge:
            self._fail(TooLarge(_too_large(self._most), self._url))
        except TooLarge:
            pass
        else:
            self._on_parsed(self.reader)

    def _on_parsed(self, reader: ResponseParser) -> None:
        if self._whole is None:
            complete = reader.done and self._unsent is None
            self.reusable = complete and reader.keep and reader.status < 500
            if reader.status:
                self._wake_reader()
                self._limit_unread(reader)
        elif reader.done:
            body = bytes(reader.body)
            self._complete(Response(reader.status, headers(reader.head), body), reader.keep)

    def _complete(self, answer: Response, keep: bool) -> None:
        """Return the connection to its pool, then complete the response."""
        pending, self._whole = self._whole, None
        self.reusable = keep and answer.status < 500 and self._unsent is None
        if self.alarm is not None:
            self.alarm.cancel()
            self.alarm = None
        self._busy = False
        self._reader = None
        if self._held:
            self.hold(0)
        self._free(self)
        if pending is not None and not pending.done():
            pending.set_result(answer)

    def _limit_unread(self, reader: ResponseParser) -> None:
        if len(reader.body) > PAUSE and not self._paused and self.transport is not None:
            self._paused = True
            self.transport.pause_reading()

    def eof_received(self) -> None:
        """Part of `asyncio.Protocol`: the loop closes the connection in its next iteration."""
        self.reusable = False

    def connection_lost(self, error: Exception | None) -> None:
        """Part of `asyncio.Protocol`."""
        self.transport, self.reusable, self._unsent = None, False, None
        if not self._busy:
            self.lost = self.lost or Unreachable("the connection was closed", self._url)
            return
        try:
            self.reader.end()
        except MalformedResponse as bad:
            why = getattr(error, "strerror", None) or error or bad
            self._fail(Unreachable(f"the connection was lost: {why}", self._url))
        else:
            self._on_parsed(self.reader)

    def _wake_reader(self) -> None:
        arrived, self._more = self._more, None
        if arrived is not None and not arrived.done():
            arrived.set_result(None)

    def _fail(self, error: TransportError) -> None:
        self.lost, self.reusable = self.lost or error, False
        waiting = (self._whole, self._more)
        self._whole = self._more = None
        for future in waiting:
            if future is not None and not future.done():
                future.set_exception(error)
        if self.transport is not None:
            self.transport.abort()
        self.release()


def _too_large(most: int) -> str:
    return f"the answer is larger than {most} bytes"
