"""The bare protocol between the web server and our routes: bodies in, answers out, clients gone.

No framework in between: one that wraps requests hides the client's leaving.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from proxy.errors import Refusal

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

UNAUTHORIZED = b'{"error":"Unauthorized"}'
DRAIN = 10.0
"""Seconds a body that is too large may take to arrive before the connection is given up."""

_JSON = (b"content-type", b"application/json")
_STREAM = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


class ClientLeft(Exception):
    """The client closed the connection before its request was complete."""


def headers_of(scope: Scope) -> dict[str, str]:
    """Header names in lower case to values; of a repeated one the last."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


async def read_body(headers: Mapping[str, str], receive: Receive, largest: int) -> bytes:
    """The whole request body.

    Raises:
        Refusal: 413, after the rest was read and thrown away so that the client sees the answer.
        ClientLeft: the connection ended first.
    """
    told = headers.get("content-length", "")
    size = int(told) if told.isdecimal() else 0
    parts: list[bytes] = []
    got = 0
    try:
        async with asyncio.timeout(None) as scope:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientLeft
                part = message.get("body", b"")
                got += len(part)
                if max(got, size) <= largest:
                    parts.append(part)
                elif scope.when() is None:
                    parts.clear()
                    scope.reschedule(asyncio.get_running_loop().time() + DRAIN)
                if not message.get("more_body", False):
                    break
    except TimeoutError:
        pass
    if max(got, size) > largest:
        text = f"The request body is larger than {largest >> 20} MiB."
        raise Refusal(413, None, text)
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def until_left(receive: Receive) -> None:
    """Returns when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def send_json(
    send: Send, status: int, body: bytes, more: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    """One whole JSON answer."""
    headers = [_JSON, (b"content-length", str(len(body)).encode()), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def send_refusal(
    send: Send, refusal: Refusal, more: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    """An error before anything else was sent."""
    if refusal.retry_after is not None:
        more = (*more, (b"retry-after", str(refusal.retry_after).encode()))
    if refusal.status == 413:
        more = (*more, (b"connection", b"close"))
    await send_json(send, refusal.status, refusal.body(), more)


async def start_stream(send: Send, more: tuple[tuple[bytes, bytes], ...], first: bytes) -> None:
    """Status, headers and the first event, at once."""
    headers = [*_STREAM, *more]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": first, "more_body": True})


class KeyGuard:
    """Asks for the key on everything below `/v1`; in front of the application.

    Args:
        app: The application.
        key: The key; with an empty one nobody is asked.
    """

    def __init__(self, app: App, key: str) -> None:
        self._app = app
        self._key = key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401 as vLLM does."""
        if self._key and scope["type"] == "http" and not self._passes(scope):
            await send_json(send, 401, UNAUTHORIZED)
            return
        await self._app(scope, receive, send)

    def _passes(self, scope: Scope) -> bool:
        path: str = scope["path"]
        if scope["method"] == "OPTIONS" or not (path == "/v1" or path.startswith("/v1/")):
            return True
        headers = headers_of(scope)
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._same(token.strip()):
            return True
        return self._same(headers.get("x-api-key", ""))

    def _same(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._key)
