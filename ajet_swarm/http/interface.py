"""Interface between the swarm protocol and HTTP: requests, responses, transports."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec


class Request(msgspec.Struct, frozen=True, gc=False):
    """One HTTP request."""

    method: str
    """`GET` or `POST`."""
    url: str
    """Absolute URL, already percent-encoded."""
    timeout: float
    """Seconds for request and response together."""
    body: bytes | None = None
    """Sent unchanged."""
    headers: Mapping[str, str] | None = None
    """Sent unchanged."""
    repeatable: bool = False
    """The request changes nothing on the server: `Transport.request` sends it once more, on a new
    connection, if the connection breaks."""
    most: int = 0
    """Bytes of the response that may be in memory; 0 for the limit of the transport."""


class Response(msgspec.Struct, frozen=True, gc=False):
    """A complete HTTP response."""

    status: int
    headers: Mapping[str, str]
    """Headers; names compare without regard to case."""
    body: bytes


class Streamed(Protocol):
    """HTTP response whose body is read as it arrives."""

    @property
    def status(self) -> int:
        """HTTP status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers; names compare without regard to case."""

    async def read(self) -> bytes:
        """Return the bytes that have arrived since the last read; empty at the end of the body.

        Wait for at least one byte.

        Raises:
            Unreachable: the connection broke.
            TimedOut: the body did not end within the request's `timeout`.
            TooLarge: the body is larger than the limit.
        """

    async def whole(self) -> Response:
        """Return the complete response; its bytes count as held.

        Raises:
            Unreachable, TimedOut, TooLarge: as of `read`.
        """

    def hold(self, size: int) -> None:
        """Record how many bytes of the body its reader keeps in memory.

        Raises:
            TooLarge: they are more than the request allows, or than all responses may hold.
        """


class Transport(Protocol):
    """Sender of HTTP requests; returns the response complete or as it arrives."""

    async def request(self, request: Request) -> Response:
        """Send a request and return its response, whatever its status; do not follow redirects.

        Raises:
            Unreachable: no connection, or it broke; `sent` is set if the request may have arrived.
            TimedOut: no complete response within `timeout`.
            TooLarge: the response is larger than the limit.
        """

    def stream(self, request: Request) -> AbstractAsyncContextManager[Streamed]:
        """Send a request, never twice, and let the caller read the body of the response.

        Leaving the context before the end of the body closes the connection.

        Raises:
            Unreachable: no connection, or it broke; `sent` is set if the request may have arrived.
            TimedOut: no response within `timeout`.
        """
