"""The bare protocol between the web server and our routes: bodies in, answers out, clients gone.

No framework in between: one that wraps requests hides the client's leaving.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeVar

from proxy.http.body_budget import BodyReservation, budget_exceeded
from proxy.http.errors import ApiError, EngineOffline

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
T = TypeVar("T")

DRAIN = 10.0
"""Seconds a body that is too large may take to arrive before the connection is given up."""

UNREAD = 64 << 10
"""Bytes of a body that are still read, and discarded, once its request is answered. Of a longer one
no more is read: the connection is closed."""

LONG = 1 << 20
"""Bytes of a body beyond which it is read in a thread: 32 MiB of text take 0.1 s to look through,
in which nobody else would be served."""

ON_LEAVE = "ajet.on_leave"
"""Key of a scope: a function that takes what to call when the client leaves, and returns what takes
that back. Servers of other makes have none."""

AT_ONCE = "ajet.at_once"
"""Key of a scope: a function that writes a whole answer in one step, see
`proxy.http.fast_response`. Servers of other makes have none; a layer that changes what is sent
removes it."""

IDLE = "ajet.idle"
"""Key of a scope: the connection is new, or was idle for `proxy.http.protocol.IDLE` seconds before
this request. Left out otherwise."""

Extra = tuple[tuple[bytes, bytes], ...]
"""Headers of an answer beyond the usual ones."""

_STREAM = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


class ClientLeft(Exception):
    """The client has closed the connection: nobody waits for an answer."""


def headers_of(scope: Scope) -> dict[str, str]:
    """Header names in lower case to values; of a repeated one the last."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


async def read_body(
    headers: Mapping[str, str], receive: Receive, largest: int, room: BodyReservation | None = None
) -> bytes:
    """The whole request body.

    Args:
        headers: Of the request.
        receive: Gives the parts.
        largest: Bytes.
        room: Counts the bytes that are in memory.

    Raises:
        ApiError: 413 for a body over `largest`, 503 for one that `room` has no place for. The rest
            is read and discarded first, so that the client sees the answer; not where the client
            waits to be asked for its body.
        ClientLeft: the connection ended first.
    """
    size = _length(headers)
    refusal: ApiError | None = None
    if size > largest:
        refusal = _too_large(largest)
    elif room is not None and not room.has_room(size):
        refusal = budget_exceeded()
    parts: list[bytes] = []
    got, more = 0, True
    while more and refusal is None:
        part, more = await _part(receive)
        got += len(part)
        if got > largest:
            refusal = _too_large(largest)
        elif room is not None and not room.add(len(part)):
            refusal = budget_exceeded()
        else:
            parts.append(part)
    if refusal is None:
        return parts[0] if len(parts) == 1 else b"".join(parts)
    parts.clear()
    if room is not None:
        room.release()
    if got or not _waits(headers):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN):
                while more:
                    _, more = await _part(receive)
    raise refusal


async def parse_body(data: bytes, read: Callable[[], T]) -> T:
    """What `read` makes of a body, in a thread of its own where that takes a while."""
    return await asyncio.to_thread(read) if len(data) > LONG else read()


def _too_large(largest: int) -> ApiError:
    return ApiError(413, None, f"The request body is larger than {largest >> 20} MiB.")


async def _part(receive: Receive) -> tuple[bytes, bool]:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientLeft
    return message.get("body", b""), message.get("more_body", False)


def _length(headers: Mapping[str, str]) -> int:
    """Bytes the head announces; 0 when it does not say."""
    announced = headers.get("content-length", "")
    return int(announced[:15]) if announced.isdecimal() else 0


def _waits(headers: Mapping[str, str]) -> bool:
    """Whether the client sends its body only once it is asked for it."""
    return "100-continue" in headers.get("expect", "").lower()


async def refuse_unread(
    scope: Scope, send: Send, status: int, body: bytes, more: Extra = ()
) -> None:
    """Answer a request without reading its body.

    The web server discards `UNREAD` bytes of it. A body that is longer, may be longer or waits to
    be asked for ends the connection.
    """
    headers = headers_of(scope)
    if "transfer-encoding" in headers or _length(headers) > UNREAD or _waits(headers):
        more = (*more, (b"connection", b"close"))
    await send_json(send, status, body, more)


async def until_left(receive: Receive) -> None:
    """Returns when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def send_bytes(send: Send, status: int, kind: bytes, body: bytes, more: Extra = ()) -> None:
    """One whole answer; `kind` is its content type, empty for none."""
    length = (b"content-length", str(len(body)).encode())
    headers = [(b"content-type", kind), length, *more] if kind else [length, *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def send_json(send: Send, status: int, body: bytes, more: Extra = ()) -> None:
    """One whole JSON answer."""
    await send_bytes(send, status, b"application/json", body, more)


async def send_error(send: Send, refusal: ApiError, body: bytes, more: Extra = ()) -> None:
    """An error before anything else was sent; `body` tells it in the dialect's words."""
    if isinstance(refusal, EngineOffline):  # or the SDKs of OpenAI and Anthropic wait 60 s, twice
        more = (*more, (b"x-should-retry", b"false"))
    if refusal.retry_after is not None:
        more = (*more, (b"retry-after", str(refusal.retry_after).encode()))
    if refusal.closes:
        more = (*more, (b"connection", b"close"))
    await send_json(send, refusal.status, body, more)


async def start_stream(send: Send, more: Extra, first: bytes) -> None:
    """Status, headers and the first events, at once."""
    await send({"type": "http.response.start", "status": 200, "headers": [*_STREAM, *more]})
    await send_part(send, first)


async def send_part(send: Send, data: bytes, more: bool = True) -> None:
    """Some events; without `more` the stream is over."""
    await send({"type": "http.response.body", "body": data, "more_body": more})
