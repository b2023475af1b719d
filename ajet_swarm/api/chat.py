"""Chat calls of an episode, whole and streamed. Calls of one episode are strictly serial."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

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


async def ask(
    transport: Transport,
    claimed: Claimed,
    body: bytes | Mapping[str, Any],
    headers: Mapping[str, str] | None = None,
    timeout: float = CHAT,
    most: int = 0,
) -> ChatAnswer:
    """Request one chat completion.

    Args:
        transport: Sends the request.
        claimed: The episode.
        body: The request, encoded or as a mapping, without `stream`.
        headers: Additional headers; authorization and content type are set here.
        timeout: Seconds.
        most: Bytes of the response that may be in memory; 0 for the limit of the transport.

    Raises:
        ChatError: no usable completion; `kind` classifies the failure.
    """
    where = claimed.base_url + "/chat/completions"
    data = body if isinstance(body, bytes) else _encode(body)
    sent = _headers_of(claimed, headers)
    try:
        response = await transport.request(
            Request("POST", where, body=data, headers=sent, timeout=timeout, most=most)
        )
    except TransportError as error:
        raise _no_answer(error, where) from error
    return await _parsed(response, where)


async def ask_stream(
    transport: Transport,
    claimed: Claimed,
    body: Mapping[str, Any],
    on_delta: OnDelta,
    headers: Mapping[str, str] | None = None,
    timeout: float = CHAT,
    most: int = 0,
    *,
    chance: Chance = SYSTEM.chance,
) -> ChatAnswer:
    """Request a streamed chat completion; return the same result as `ask`.

    Args:
        transport: Sends the request.
        claimed: The episode.
        body: The request; `stream` and `stream_options` are set here.
        on_delta: Called with each delta; not called if the server does not stream.
        headers: As of `ask`.
        timeout: Seconds to the end of the stream.
        most: As of `ask`.
        chance: Source of ids of tool calls for which the server sends none.

    Raises:
        ChatError: no usable completion, possibly after some deltas.
    """
    where = claimed.base_url + "/chat/completions"
    data = _encode({**body, "stream": True, "stream_options": {"include_usage": True}})
    sent = _headers_of(claimed, headers)
    try:
        async with transport.stream(
            Request("POST", where, body=data, headers=sent, timeout=timeout, most=most)
        ) as answer:
            kind = answer.headers.get("Content-Type", "")
            if answer.status != 200 or not kind.startswith("text/event-stream"):
                return await _parsed(await whole(answer), where)
            stream = ChatStream(on_delta, where, chance)
            try:
                while not stream.done and (part := await answer.read()):
                    stream.feed(part)
                    answer.hold(stream.held)
                await _drain(answer)
                return stream.finish()
            finally:
                stream.clear()  # an error and its frames refer to it
    except TransportError as error:
        raise _no_answer(error, where) from error


def _headers_of(claimed: Claimed, more: Mapping[str, str] | None) -> dict[str, str]:
    """Return the headers of a chat call."""
    sent = {**more} if more else {}
    sent["Authorization"] = f"Bearer {claimed.api_key}"
    sent["Content-Type"] = "application/json"
    return sent


async def _parsed(response: Response, where: str) -> ChatAnswer:
    if len(response.body) <= LONG:
        return chat_answer(response, where)
    return await in_thread(partial(chat_answer, response, where))


def _no_answer(error: TransportError, where: str) -> ChatError:
    if isinstance(error, TimedOut):
        kind = ChatErrorKind.TIMED_OUT
    elif isinstance(error, Unreachable):
        kind = ChatErrorKind.UNREACHABLE
    elif isinstance(error, TooLarge):
        kind = ChatErrorKind.OVERSIZED
    else:
        kind = ChatErrorKind.UPSTREAM
    return ChatError(kind, error.what, where=where)


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


async def _drain(answer: Streamed) -> None:
    """Read the rest of the body, usually empty, so that the connection can be used again."""
    try:
        async with asyncio.timeout(LAST_BYTES):
            while await answer.read():
                pass
    except (TransportError, TimeoutError):
        pass
