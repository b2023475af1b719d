"""Plain ASGI helpers: read request bodies, send responses, detect disconnects.

There is no framework in between, because wrappers of requests hide the client's disconnect.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeVar

from proxy.http.body_budget import BodyReservation, budget_exceeded
from proxy.http.errors import ApiError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
T = TypeVar("T")

DRAIN = 10.0
"""Seconds for which the rest of a refused body is read, so that the client sees the error."""

UNREAD = 64 << 10
"""Bytes of a body that are read and discarded after its request was answered. The connection of a
longer one is closed."""

LONG = 1 << 17
"""Bytes above which a body is parsed in a thread: 2,000 messages (0.27 MB) or 1 MB held the event
loop for 13 to 16 ms on a slower machine, see docs/measured/proxy-cost.md."""

ON_LEAVE = "ajet.on_leave"
"""Key of a scope: a function that takes a callback for the client's disconnect, and returns a
function that cancels it. Only `proxy.http.protocol` sets it."""

FAST_RESPONSE = "ajet.at_once"
"""Key of a scope: a function that writes a complete response at once, see
`proxy.http.fast_response`. Only `proxy.http.protocol` sets it; a layer that changes responses
removes it."""

CONNECTION = "ajet.connection"
"""Key of a scope: the `ConnectionUse` of the connection. Only `proxy.http.protocol` sets it."""

Extra = tuple[tuple[bytes, bytes], ...]
"""Additional headers of a response."""

_STREAM = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


class ConnectionUse:
    """Use of a connection by one request, as far as it decides who may overtake others.

    Attributes:
        lag: Seconds by which the request counts as older than it is among those that overtake: 0
            on a connection that is new or was idle; None if it may not overtake.
        waited: The request waited in order for its turn, or the queue was full: the next one on
            the connection may not overtake if it follows at once.
    """

    __slots__ = ("lag", "waited")

    def __init__(self, lag: float | None = 0.0) -> None:
        self.lag = lag
        self.waited = False


class ClientLeft(Exception):
    """The client has closed the connection."""


def headers_of(scope: Scope) -> dict[str, str]:
    """Return the headers, names in lower case; of a repeated one the last value."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


async def read_body(
    headers: Mapping[str, str],
    receive: Receive,
    max_bytes: int,
    reservation: BodyReservation | None = None,
) -> bytes:
    """Return the whole request body.

    Args:
        headers: Headers of the request, names in lower case.
        receive: ASGI's `receive`.
        max_bytes: Maximum size of the body.
        reservation: Memory reservation for the body; None for no limit.

    Raises:
        ApiError: 413 for a body over `max_bytes`, 503 for one that exceeds the memory budget. The
            rest of the body is discarded first, so that the client sees the error, unless the
            client waits for `100 Continue`.
        ClientLeft: The client disconnected first.
    """
    size = _length(headers)
    refusal: ApiError | None = None
    if size > max_bytes:
        refusal = _too_large(max_bytes)
    elif reservation is not None and not reservation.has_room(size):
        refusal = budget_exceeded()
    parts: list[bytes] = []
    received, more = 0, True
    while more and refusal is None:
        part, more = await _part(receive)
        received += len(part)
        if received > max_bytes:
            refusal = _too_large(max_bytes)
        elif reservation is not None and not reservation.add(len(part)):
            refusal = budget_exceeded()
        else:
            parts.append(part)
    if refusal is None:
        return parts[0] if len(parts) == 1 else b"".join(parts)
    parts.clear()
    if reservation is not None:
        reservation.release()
    if received or not _waits(headers):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN):
                while more:
                    _, more = await _part(receive)
    raise refusal


async def parse_body(data: bytes, read: Callable[[], T]) -> T:
    """Return the result of `read`, which parses a body; run it in a thread if `data` is large."""
    return await asyncio.to_thread(read) if len(data) > LONG else read()


def _too_large(max_bytes: int) -> ApiError:
    return ApiError(413, None, f"The request body is larger than {max_bytes >> 20} MiB.")


async def _part(receive: Receive) -> tuple[bytes, bool]:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientLeft
    return message.get("body", b""), message.get("more_body", False)


def _length(headers: Mapping[str, str]) -> int:
    """Return the `Content-Length`; 0 without a valid one."""
    announced = headers.get("content-length", "")
    return int(announced[:15]) if announced.isdecimal() else 0


def _waits(headers: Mapping[str, str]) -> bool:
    """Return whether the client waits for `100 Continue` before it sends its body."""
    return "100-continue" in headers.get("expect", "").lower()


async def refuse_unread(
    scope: Scope, send: Send, status: int, body: bytes, extra: Extra = ()
) -> None:
    """Answer a request without reading its body.

    The web server discards up to `UNREAD` bytes of it. If the body is longer, may be longer or has
    not been sent yet, the connection is closed.
    """
    headers = headers_of(scope)
    if "transfer-encoding" in headers or _length(headers) > UNREAD or _waits(headers):
        extra = (*extra, (b"connection", b"close"))
    await send_json(send, status, body, extra)


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def send_bytes(
    send: Send, status: int, content_type: bytes, body: bytes, extra: Extra = ()
) -> None:
    """Send a complete response; an empty `content_type` omits that header."""
    length = (b"content-length", str(len(body)).encode())
    headers = [length, *extra]
    if content_type:
        headers.insert(0, (b"content-type", content_type))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def send_json(send: Send, status: int, body: bytes, extra: Extra = ()) -> None:
    """Send a complete JSON response."""
    await send_bytes(send, status, b"application/json", body, extra)


async def send_error(send: Send, refusal: ApiError, body: bytes, extra: Extra = ()) -> None:
    """Send an error response; `body` is the error in the dialect's form."""
    if not refusal.repeatable:
        extra = (*extra, (b"x-should-retry", b"false"))
    if refusal.retry_after is not None:
        extra = (*extra, (b"retry-after", str(refusal.retry_after).encode()))
    if refusal.closes:
        extra = (*extra, (b"connection", b"close"))
    await send_json(send, refusal.status, body, extra)


async def start_stream(send: Send, extra: Extra, first: bytes) -> None:
    """Send status, headers and the first events of a stream."""
    await send({"type": "http.response.start", "status": 200, "headers": [*_STREAM, *extra]})
    await send_part(send, first)


async def send_part(send: Send, data: bytes, more: bool = True) -> None:
    """Send a part of a stream; `more=False` ends it."""
    await send({"type": "http.response.body", "body": data, "more_body": more})
