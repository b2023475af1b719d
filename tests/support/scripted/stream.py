"""How servers stream a chat answer, for `ScriptedSwarm`.

three       the whole answer in three chunks once it is there (servers up to 2026-05)
keepalive   200 and a comment at once, comments meanwhile, then the three; an error breaks the
            connection without `[DONE]` (2026-08)
tokens      word by word, reasoning first, tool calls in pieces, as a vLLM does
whole       no stream at all, whatever was asked for
"""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

from aiohttp import web

OnToken = Callable[[str, int], Awaitable[None]]

_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}


class Cut(Exception):
    """Raised by a test's `on_token`: the connection breaks here."""


class End(Exception):
    """Raised by a test's `on_token`: the stream ends here, in order but without `[DONE]`."""


async def begin(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers=_HEADERS)
    await response.prepare(request)
    return response


async def with_keepalives(
    response: web.StreamResponse, work: Coroutine[Any, Any, dict[str, Any]], seconds: float
) -> dict[str, Any]:
    """Write keepalive comments until `work` ends; return its result."""
    task = asyncio.get_running_loop().create_task(work)
    try:
        while True:
            await response.write(b": keepalive\n\n")
            done, _ = await asyncio.wait({task}, timeout=seconds)
            if done:
                return await task
    finally:
        task.cancel()
        with contextlib.suppress(BaseException):
            await task


async def send_stream(
    request: web.Request,
    response: web.StreamResponse,
    answer: dict[str, Any],
    mode: str,
    name: str,
    on_token: OnToken | None,
) -> web.StreamResponse:
    """Write the answer as chunks."""
    chunks = tokens(answer) if mode == "tokens" else three(answer)
    try:
        for index, chunk in enumerate(chunks):
            if on_token is not None:
                await on_token(name, index)
            await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
    except End:
        await response.write_eof()
    except Cut:
        if request.transport is not None:
            request.transport.close()
    return response


def three(answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    choice = answer["choices"][0]
    message = choice["message"]
    content: dict[str, Any] = {"content": message.get("content")}
    if message.get("tool_calls"):
        content["tool_calls"] = [
            {"index": index, **call} for index, call in enumerate(message["tool_calls"])
        ]
    yield _chunk(answer, {"role": "assistant", "content": ""})
    yield _chunk(answer, content)
    yield {
        **_chunk(answer, {"content": ""}, choice["finish_reason"]),
        "usage": answer.get("usage"),
    }


def tokens(answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    choice = answer["choices"][0]
    message = choice["message"]
    yield _chunk(answer, {"role": "assistant", "content": ""})
    for name in ("reasoning", "content"):
        for word in (message.get(name) or "").replace(" ", " \0").split("\0"):
            if word:
                yield _chunk(answer, {name: word})
    for index, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        head = {"index": index, "id": call["id"], "type": "function"}
        yield _chunk(
            answer,
            {"content": None, "tool_calls": [{**head, "function": {"name": function["name"]}}]},
        )
        half = len(function["arguments"]) // 2
        for part in (function["arguments"][:half], function["arguments"][half:]):
            result = {"index": index, "function": {"arguments": part}}
            yield _chunk(answer, {"content": None, "tool_calls": [result]})
    yield _chunk(answer, {}, choice["finish_reason"])
    yield {**_chunk(answer, {}), "choices": [], "usage": answer.get("usage")}


def _chunk(
    answer: dict[str, Any], delta: dict[str, Any], finish_reason: str | None = None
) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{answer['id']}",
        "object": "chat.completion.chunk",
        "created": answer["created"],
        "model": answer["model"],
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
    }
