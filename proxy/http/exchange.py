"""Helpers of the routes: read a body, notice that the client leaves, write a response."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive

from ajet_swarm.common.tasks import Tasks
from core.dialects.errors import ApiError

T = TypeVar("T")

LONG = 1 << 17
"""Bytes above which a body is parsed in a thread: 2,000 messages (0.27 MB) or 1 MB held the event
loop for 13 to 16 ms on a slower machine, see docs/measured/proxy-cost.md."""
STREAM_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


async def read_body(request: Request, read: Callable[[bytes], T]) -> T:
    """Return the result of `read`, which parses the body, see `parse`.

    The request keeps no reference to the body's bytes.

    Raises:
        ApiError: The body exceeds a limit of `proxy.http.middleware`, or `read` refuses it.
        ClientDisconnect: The client disconnected first.
    """
    return await parse(b"".join([part async for part in request.stream()]), read)


async def parse(data: bytes, read: Callable[[bytes], T]) -> T:
    """Return the result of `read`, which parses a body; run it in a thread for a large one."""
    return await asyncio.to_thread(read, data) if len(data) > LONG else read(data)


@contextlib.asynccontextmanager
async def while_connected(receive: Receive) -> AsyncIterator[None]:
    """Cancel the block when the client leaves; its request must have been read.

    Raises:
        ClientDisconnect: The client left.
    """
    limit = asyncio.timeout(None)

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        limit.reschedule(0.0)

    try:
        async with limit, Tasks("listener") as tasks:
            tasks.spawn(watch(), "client")
            yield
    except TimeoutError:
        if limit.expired():
            raise ClientDisconnect from None
        raise


def json_response(
    body: bytes, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a complete response of JSON."""
    return Response(body, status, headers, "application/json")


def error_response(
    refusal: ApiError, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """Return an error response.

    Args:
        refusal: The error.
        body: Its form in a dialect; None for vLLM's own.
        headers: Additional headers.
    """
    more = dict(headers or {})
    if not refusal.repeatable:
        more["x-should-retry"] = "false"
    if refusal.retry_after is not None:
        more["retry-after"] = str(refusal.retry_after)
    return json_response(refusal.body() if body is None else body, refusal.status, more)
