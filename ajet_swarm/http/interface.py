"""The seam between the protocol and HTTP; light to import, without aiohttp."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, runtime_checkable

import msgspec


class Request(msgspec.Struct, frozen=True, gc=False):
    """One HTTP request."""

    method: str
    """`GET` or `POST`."""
    url: str
    """Absolute and already encoded."""
    timeout: float
    """Seconds for the whole exchange."""
    body: bytes | None = None
    """Sent unchanged."""
    headers: Mapping[str, str] | None = None
    """Sent unchanged."""
    repeatable: bool = False
    """The request changes nothing on the server, so `Transport.request` sends it once more, on a
    fresh connection, when the connection breaks."""


class Response(msgspec.Struct, frozen=True, gc=False):
    """A complete HTTP response."""

    status: int
    headers: Mapping[str, str]
    """Names compare without regard to case."""
    body: bytes


class Streamed(Protocol):
    """An HTTP answer whose body is read as it comes."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Names compare without regard to case."""
        ...

    async def read(self) -> bytes:
        """What has come since, at least one byte; empty at the end of the body.

        Raises:
            Unreachable: The connection broke.
            TimedOut: The body did not end within the exchange's `timeout`.
            TooLarge: The body is larger than the bound.
        """
        ...


class Transport(Protocol):
    """Sends one request and returns its answer, whole or as it comes."""

    async def request(self, request: Request) -> Response:
        """Send a request and return its response, whatever its status; do not follow redirects.

        Raises:
            Unreachable: No connection, or it broke; `sent` tells whether it may have arrived.
            TimedOut: No complete answer within `timeout`.
            TooLarge: The answer is larger than the bound.
        """
        ...

    def stream(self, request: Request) -> AbstractAsyncContextManager[Streamed]:
        """Send a request, never twice, and let the caller read the body of the response.

        Leaving the context before the end of the body closes the connection.

        Raises:
            Unreachable: No connection, or it broke; `sent` tells whether it may have arrived.
            TimedOut: No answer within `timeout`.
        """
        ...


class ResponseFuture(asyncio.Future[Response]):
    """An answer under way that tells its one listener the moment it is there.

    A callback of a future comes a turn of the loop later, which costs more than what most listeners
    do.
    """

    __slots__ = ("listener",)
    listener: "Callable[[asyncio.Future[Response]], None] | None"
    """Called, once, when it is over; it does not raise. None at first, set by who makes it."""

    def send_now(self) -> None:
        """What was begun in this turn need not wait for its end."""

    def set_result(self, result: Response) -> None:
        """See `asyncio.Future.set_result`."""
        super().set_result(result)
        listener = self.listener
        if listener is not None:
            self.listener = None
            listener(self)

    def set_exception(self, exception: type | BaseException) -> None:
        """See `asyncio.Future.set_exception`."""
        super().set_exception(exception)
        self._tell()

    def cancel(self, msg: Any = None) -> bool:
        """See `asyncio.Future.cancel`."""
        done = super().cancel(msg)
        if done:
            self._tell()
        return done

    def _tell(self) -> None:
        listener, self.listener = self.listener, None
        if listener is not None:
            listener(self)


@runtime_checkable
class EagerTransport(Protocol):
    """A transport that can send at once and leave the waiting to others."""

    def start(self, request: Request) -> "asyncio.Future[Response] | None":
        """Send a request, never twice, without a task for it.

        Returns:
            The response, as a `ResponseFuture` if possible; None, with nothing sent, when no
            connection is free. It raises what `Transport.request` raises. Cancelling it closes the
            connection.
        """
        ...
