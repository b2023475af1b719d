"""One kept-alive connection to a server: one request at a time, its answer whole or in parts."""

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
"""Bytes of a streamed body that may lie unread, and of one that goes out in a single piece."""
PIECE = 1 << 18
"""Bytes of a longer one that are handed to the socket in one turn of the loop."""


class PendingResponse(ResponseFuture):
    """An answer under way. Cancelled, it closes its connection: nobody wants the answer."""

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
    """Requests of one turn of the loop, sent at its end, one right after the other.

    Each write may have to wake the server's process; sent together, all but the first find it
    awake.
    """

    __slots__ = ("_loop", "waiting")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.waiting: list[tuple[asyncio.Transport, bytes]] = []
        """What is sent where."""

    def wake(self) -> None:
        """The first of this turn is about to be put in."""
        self._loop.call_soon(self.send)

    def send(self) -> None:
        """Send what waits."""
        waiting, self.waiting = self.waiting, []
        for transport, data in waiting:
            if not transport.is_closing():
                transport.write(data)


class Connection(asyncio.Protocol):
    """Made by the loop; asked by its pool.

    Args:
        origin: Which pool it belongs to.
        largest: Bytes of the largest body accepted.
        free: Called when it is asked nothing any more, however that came about.

    Attributes:
        deadline: On the loop's clock, for what it is asked now.
        idle_since: On the loop's clock.
        lost: Why it is no use any more.
        sound: It may be asked again. After a 5xx it may not: the server closes it without saying so
            (protocol section 2), and a claim sent on it would be lost with an unknown outcome.
    """

    __slots__ = ("_busy", "_free", "_full", "_largest", "_loop", "_news", "_outbox", "_paused",
                 "_reader", "_seconds", "_unsent", "_url", "_whole", "alarm", "deadline",
                 "idle_since", "lost", "now", "origin", "sound", "transport")  # fmt: skip

    def __init__(
        self,
        origin: str,
        largest: int,
        free: "Callable[[Connection], None]",
        outbox: "WriteCoalescer",
    ) -> None:
        self.origin = origin
        self._outbox = outbox
        self.sound = True
        self.transport: asyncio.Transport | None = None
        self.idle_since = 0.0
        self.deadline = 0.0
        self.alarm: asyncio.TimerHandle | None = None
        self.lost: TransportError | None = None
        self._loop = asyncio.get_running_loop()
        self.now: Callable[[], float] = self._loop.time
        self._reader: ResponseParser | None = None
        """Of what it is asked now, unless that came in one piece."""
        self._free = free
        self._largest = largest
        self._whole: PendingResponse | None = None
        self._news: asyncio.Future[None] | None = None
        """Of a streamed answer."""
        self._busy = self._paused = self._full = False
        self._unsent: memoryview | None = None
        """What is still to go out of a long body."""
        self._url = origin
        self._seconds = 0.0

    @property
    def reader(self) -> ResponseParser:
        """What is known of the answer."""
        if self._reader is None:
            self._reader = ResponseParser(self._largest)
        return self._reader

    # --- asking --------------------------------------------------------------------------------

    def ask(self, url: str, head: bytes, body: bytes, seconds: float) -> PendingResponse:
        """Send a request whose answer is wanted whole; `url` is for errors."""
        self._whole = pending = PendingResponse(loop=self._loop)
        pending.connection, pending.listener = self, None
        if len(body) >= PAUSE:
            self._send(url, head, body, seconds)
            return pending
        assert self.transport is not None
        self._url, self._seconds, self._busy = url, seconds, True  # as in `_send`
        self.deadline = self.now() + seconds
        self._reader = None
        self.sound = False
        outbox = self._outbox
        if not outbox.waiting:
            outbox.wake()
        outbox.waiting.append((self.transport, head + body))
        return pending

    def ask_stream(
        self, url: str, head: bytes, body: bytes, seconds: float
    ) -> "asyncio.Future[None]":
        """Send a request whose answer is read as it comes; done when its head is there."""
        self._news = news = self._loop.create_future()
        self._send(url, head, body, seconds)
        return news

    def more(self) -> "asyncio.Future[None]":
        """Done when the streamed answer goes on; with the error when it does not."""
        self._news = news = self._loop.create_future()
        if self._paused and self.transport is not None:
            self._paused = False
            self.transport.resume_reading()
        if self.lost is not None:
            news.set_exception(self.lost)
        return news

    def _send(self, url: str, head: bytes, body: bytes, seconds: float) -> None:
        transport = self.transport
        assert transport is not None
        self._url, self._seconds, self._busy = url, seconds, True
        self.deadline = self.now() + seconds
        self._reader = None
        self.sound = False
        if len(body) < PAUSE:
            outbox = self._outbox
            if not outbox.waiting:
                outbox.wake()
            outbox.waiting.append((transport, head + body))
        else:
            transport.write(head)
            self._unsent = memoryview(body)
            self._send_on()

    def _send_on(self) -> None:
        """A piece more of a long body, as long as the socket takes it; others have their turns."""
        rest, transport = self._unsent, self.transport
        if rest is None or transport is None or self._full or transport.is_closing():
            return
        transport.write(rest[:PIECE])
        rest = rest[PIECE:]
        self._unsent = rest or None
        if rest:
            self._loop.call_soon(self._send_on)

    def send_now(self) -> None:
        """Do not wait for the end of the loop's turn."""
        self._outbox.send()

    # --- ends ----------------------------------------------------------------------------------

    def time_out(self) -> None:
        """The answer takes too long."""
        self._fail(TimedOut(f"no answer within {self._seconds:.3g} s", self._url))

    def abandon(self) -> None:
        """The whole transport is closed: whoever waits is told."""
        self._fail(Unreachable("this transport is closed", self._url))

    def drop(self) -> None:
        """Nobody wants what may still come."""
        self._whole = self._news = self._unsent = None
        self.lost = self.lost or Unreachable("the connection was closed", self._url)
        self.sound = False
        if self.transport is not None:
            self.transport.abort()
        self.release()

    def release(self) -> None:
        """It is asked nothing any more."""
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
        self._send_on()

    def data_received(self, data: bytes) -> None:
        """Part of `asyncio.Protocol`."""
        if not self._busy:  # nobody asked
            self.drop()
            return
        if self._reader is None and self._whole is not None:
            found = parse_whole(data, self._largest)
            if found is not None:
                status, head, body, keep = found
                self._answer(Response(status, headers(head), body), keep)
                return
        try:
            self.reader.feed(data)
        except MalformedResponse as error:
            self._fail(Unreachable(f"the connection was lost: {error}", self._url))
        except BodyTooLarge:
            self._fail(TooLarge(f"the answer is larger than {self._largest} bytes", self._url))
        else:
            self._came(self.reader)

    def _came(self, reader: ResponseParser) -> None:
        if self._whole is None:
            over = reader.done and self._unsent is None
            self.sound = over and reader.keep and reader.status < 500
            if reader.status:
                self._tell()
                self._mind(reader)
        elif reader.done:
            body = b"".join(reader.parts)
            self._answer(Response(reader.status, headers(reader.head), body), reader.keep)

    def _answer(self, answer: Response, keep: bool) -> None:
        """The whole answer is there: the connection is free before anybody wakes."""
        pending, self._whole = self._whole, None
        self.sound = keep and answer.status < 500 and self._unsent is None
        if self.alarm is not None:
            self.alarm.cancel()
            self.alarm = None
        self._busy = False
        self._free(self)
        if pending is not None and not pending.done():
            pending.set_result(answer)

    def _mind(self, reader: ResponseParser) -> None:
        unread = sum(map(len, reader.parts))
        if unread > PAUSE and not self._paused and self.transport is not None:
            self._paused = True
            self.transport.pause_reading()

    def eof_received(self) -> None:
        """Part of `asyncio.Protocol`: the loop closes it a turn later, it may not be asked now."""
        self.sound = False

    def connection_lost(self, error: Exception | None) -> None:
        """Part of `asyncio.Protocol`."""
        self.transport, self.sound, self._unsent = None, False, None
        if not self._busy:
            self.lost = self.lost or Unreachable("the connection was closed", self._url)
            return
        try:
            self.reader.end()
        except MalformedResponse as bad:
            why = getattr(error, "strerror", None) or error or bad
            self._fail(Unreachable(f"the connection was lost: {why}", self._url))
        else:
            self._came(self.reader)

    def _tell(self) -> None:
        news, self._news = self._news, None
        if news is not None and not news.done():
            news.set_result(None)

    def _fail(self, error: TransportError) -> None:
        self.lost, self.sound = self.lost or error, False
        waiting = (self._whole, self._news)
        self._whole = self._news = None
        for one in waiting:
            if one is not None and not one.done():
                one.set_exception(error)
        if self.transport is not None:
            self.transport.abort()
        self.release()
