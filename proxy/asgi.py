"""The bare protocol between the web server and our routes: bodies in, answers out, clients gone.

No framework in between: one that wraps requests hides the client's leaving.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeVar

from proxy.errors import Refusal

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
T = TypeVar("T")

DRAIN = 10.0
"""Seconds a body that is too large may take to arrive before the connection is given up."""

LONG = 1 << 20
"""Bytes of a body beyond which it is read in a thread: 32 MiB of text take 0.1 s to look through,
in which nobody else would be served."""

ON_LEAVE = "ajet.on_leave"
"""Key of a scope: a function that takes what to call when the client leaves, and returns what takes
that back. Servers of other makes have none."""

AT_ONCE = "ajet.at_once"
"""Key of a scope: a function that writes a whole answer in one step, see `proxy.at_once`. Servers
of other makes have none; who changes what is sent on its way takes it away."""

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


async def read_body(headers: Mapping[str, str], receive: Receive, largest: int) -> bytes:
    """The whole request body.

    Raises:
        Refusal: 413, after the rest was read and thrown away so that the client sees the answer;
            at once where the client waits to be asked for its body.
        ClientLeft: the connection ended first.
    """
    told = headers.get("content-length", "")
    size = int(told[:15]) if told.isdecimal() else 0
    parts: list[bytes] = []
    got, more = 0, True
    while more and max(got, size) <= largest:
        part, more = await _part(receive)
        parts.append(part)
        got += len(part)
    if max(got, size) <= largest:
        return parts[0] if len(parts) == 1 else b"".join(parts)
    parts.clear()
    if size > largest and "100-continue" in headers.get("expect", "").lower():
        raise _too_large(largest)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN):
            while more:
                _, more = await _part(receive)
    raise _too_large(largest)


async def apart(data: bytes, read: Callable[[], T]) -> T:
    """What `read` makes of a body, in a thread of its own where that takes a while."""
    return await asyncio.to_thread(read) if len(data) > LONG else read()


def _too_large(largest: int) -> Refusal:
    return Refusal(413, None, f"The request body is larger than {largest >> 20} MiB.")


async def _part(receive: Receive) -> tuple[bytes, bool]:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientLeft
    return message.get("body", b""), message.get("more_body", False)


async def drop_body(headers: Mapping[str, str], receive: Receive, largest: int) -> bool:
    """Read a body that nobody wants, so that its sender sees the answer and not a reset.

    Returns:
        False when it is too large or too slow for that: the connection is to be closed.
    """
    if "transfer-encoding" not in headers and headers.get("content-length", "0") == "0":
        return True
    try:
        async with asyncio.timeout(DRAIN):
            await read_body(headers, receive, largest)
    except (Refusal, ClientLeft, TimeoutError):
        return False
    return True


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


async def send_refusal(send: Send, refusal: Refusal, body: bytes, more: Extra = ()) -> None:
    """An error before anything else was sent; `body` tells it in the dialect's words."""
    if refusal.retry_after is not None:
        more = (*more, (b"retry-after", str(refusal.retry_after).encode()))
    if refusal.status == 413:
        more = (*more, (b"connection", b"close"))
    await send_json(send, refusal.status, body, more)


async def start_stream(send: Send, more: Extra, first: bytes) -> None:
    """Status, headers and the first events, at once."""
    await send({"type": "http.response.start", "status": 200, "headers": [*_STREAM, *more]})
    await send_part(send, first)


async def send_part(send: Send, data: bytes, more: bool = True) -> None:
    """Some events; without `more` the stream is over."""
    await send({"type": "http.response.body", "body": data, "more_body": more})
