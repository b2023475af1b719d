"""The seam between the protocol and HTTP; light to import, without aiohttp."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class Response(NamedTuple):
    """A complete HTTP answer."""

    status: int
    headers: Mapping[str, str]
    """Names compare without regard to case."""
    body: bytes


class Transport(Protocol):
    """Sends one request and returns its whole answer."""

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
        """Any HTTP status is an answer; redirects are not followed.

        Args:
            method: `GET` or `POST`.
            url: Absolute and already encoded.
            body: Sent as it is.
            headers: Sent as they are.
            timeout: Seconds for the whole exchange.
            repeatable: The request changes nothing on the server, so it is sent once more, on a
                fresh connection, when the connection breaks. Others never are.

        Raises:
            Unreachable: No connection, or it broke; `sent` tells whether it may have arrived.
            TimedOut: No complete answer within `timeout`.
            TooLarge: The answer is larger than the bound.
        """
