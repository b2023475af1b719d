"""Chat calls of an episode, whole and streamed. Calls of one episode are strictly serial."""

import asyncio
import contextlib
from collections.abc import Mapping
from functools import partial
from typing import Any, TypedDict

import msgspec

from ajet_swarm.api.chat_stream import ChatStream, OnDelta
from ajet_swarm.api.outcomes import ChatAnswer, Claimed, chat_answer
from ajet_swarm.common.tasks import in_thread
from ajet_swarm.http.interface import Request, Response, Streamed, Transport
from ajet_swarm.protocol.errors import (
    ChatError,
    ChatErrorKind,
    TimedOut,
    TooLarge,
    TransportError,
    Unreachable,
)
from ajet_swarm.runtime import SYSTEM, Chance

CHAT = 3600.0
"""Timeout in seconds of a chat call: that of the newest server itself."""
LONG = 1 << 19
"""Bytes above which a response is parsed in a thread."""
LAST_BYTES = 0.2
"""Seconds to wait for the end of a stream after its last event."""

_encode = msgspec.json.Encoder().encode


class ChatOptions(TypedDict, total=False):
    """How a chat call is made: arguments of `ask`."""

    headers: Mapping[str, str] | None
    timeout: float
    most: int
    on_delta: OnDelta | None


async def ask(
    transport: Transport,
    claimed: Claimed,
    body: bytes | Mapping[str, Any],
    headers: Mapping[str, str] | None = None,
    timeout: float = CHAT,
    most: int = 0,
    on_delta: OnDelta | None = None,
    *,
    chance: Chance = SYSTEM.chance,
) -> ChatAnswer:
    """Request one chat completion, whole or streamed; the result is the same.

    Args:
        transport: Sends the request.
        claimed: The episode.
        body: The request, without `stream`: encoded, or as a mapping, which a stream needs.
        headers: Additional headers; authorization and content type are set here.
        timeout: Seconds to the end of the response.
        most: Bytes of the response that may be in memory; 0 for the limit of the transport.
        on_delta: Called with each delta of a stream, which is requested only if this is given; not
            called if the server does not stream.
        chance: Source of ids of tool calls for which the server sends none.

    Raises:
        ChatError: no usable completion, possibly after some deltas; `kind` classifies the failure.
    """
    where = claimed.base_url + "/chat/completions"
    if on_delta is not None and not isinstance(body, bytes):
        body = {**body, "stream": True, "stream_options": {"include_usage": True}}
    own = {"Authorization": f"Bearer {claimed.api_key}", "Content-Type": "application/json"}
    request = Request(
        "POST",
        where,
        body=body if isinstance(body, bytes) else _encode(body),
        headers={**(headers or {}), **own},
        timeout=timeout,
        most=most,
    )
    try:
        if on_delta is None:
            return await _parsed(await transport.request(request), where)
        async with transport.stream(request) as answer:
            kind = answer.headers.get("Content-Type", "")
            if answer.status != 200 or not kind.startswith("text/event-stream"):
                return await _parsed(await whole(answer), where)
            return await _read_stream(answer, ChatStream(on_delta, where, chance))
    except TransportError as error:
        raise _no_answer(error, where) from error


async def _read_stream(answer: Streamed, stream: ChatStream) -> ChatAnswer:
    try:
        while not stream.done and (part := await answer.read()):
            stream.feed(part)
            answer.hold(stream.held)
        with contextlib.suppress(TransportError, TimeoutError):
            async with asyncio.timeout(LAST_BYTES):
                while await answer.read():  # usually empty; then the connection is used again
                    pass
        return stream.finish()
    finally:
        stream.clear()  # an error and its frames refer to it


async def _parsed(response: Response, where: str) -> ChatAnswer:
    if len(response.body) <= LONG:
        return chat_answer(response, where)
    return await in_thread(partial(chat_answer, response, where))


def _no_answer(error: TransportError, where: str) -> ChatError:
    kind = next(
        (kind for fault, kind in _KINDS if isinstance(error, fault)), ChatErrorKind.UPSTREAM
    )
    return ChatError(kind, error.what, where=where)


_KINDS = (
    (TimedOut, ChatErrorKind.TIMED_OUT),
    (Unreachable, ChatErrorKind.UNREACHABLE),
    (TooLarge, ChatErrorKind.OVERSIZED),
)


async def whole(answer: Streamed) -> Response:
    """Return the complete response; its bytes count as held."""
    body = bytearray()
    try:
        while part := await answer.read():
            body += part
            answer.hold(len(body))
        return Response(answer.status, answer.headers, bytes(body))
    finally:
        body.clear()
