"""Bare prompts: legacy completions without a chat template, for servers with a completions route.

The request is a chat request with the prompt in an extra field (`PROMPT`), so that everything
between the dialect and the server handles both in the same way. In observe mode it is sent to the
upstream's `/completions`, and the response is converted to a chat completion.
"""

import asyncio
from typing import Any

import msgspec
from msgspec.structs import replace

from ajet_swarm.api.chat import LONG
from ajet_swarm.http.interface import Request, Response
from proxy.upstream.transport import ErrorMappingTransport

PROMPT = "ajetc_prompt"
"""Field of a request with the original prompt, text or token ids; the embedded engine uses it."""
CHAT_PATH, COMPLETIONS_PATH = "/chat/completions", "/completions"
_PROMPT_FIELDS = ("prompt_token_ids", "prompt_logprobs")
"""Fields about the prompt: in a legacy completion part of a choice, in a chat one top-level."""

_encode = msgspec.json.Encoder().encode


class CompletionsTransport:
    """A transport that sends chat requests with `PROMPT` to the completions route.

    Args:
        transport: The transport that sends them.
    """

    def __init__(self, transport: ErrorMappingTransport) -> None:
        self._transport = transport
        self.stream = transport.stream

    async def request(self, request: Request) -> Response:
        """Send a chat request with `PROMPT`, return a chat completion; see `Transport.request`."""
        answer = await self._transport.request(
            replace(
                request,
                url=request.url.removesuffix(CHAT_PATH) + COMPLETIONS_PATH,
                body=completion_request(request.body or b"{}"),
            )
        )
        body = answer.body
        if len(body) > LONG:
            body = await asyncio.to_thread(chat_answer, body)
        else:
            body = chat_answer(body)
        return Response(answer.status, answer.headers, body)


def completion_request(body: bytes) -> bytes:
    """Convert a chat request with `PROMPT` to a legacy request."""
    request: dict[str, Any] = msgspec.json.decode(body)
    del request["messages"]
    request["prompt"] = request.pop(PROMPT)
    count = request.pop("top_logprobs", None)
    if request.get("logprobs"):
        request["logprobs"] = count or 0
    return _encode(request)


def chat_answer(body: bytes) -> bytes:
    """Convert a legacy completion to a chat completion; return anything else unchanged."""
    try:
        completion = msgspec.json.decode(body)
        choice = completion["choices"][0]
        text = choice["text"]
        message = {"role": "assistant", "content": text}
        chat_choice = {**choice, "message": message, "logprobs": _logprobs(choice.get("logprobs"))}
        prompt = {name: choice.get(name) for name in _PROMPT_FIELDS}
        return _encode({**completion, "choices": [chat_choice], **prompt})
    except (msgspec.MsgspecError, RecursionError, LookupError, TypeError, ValueError):
        return body


def _logprobs(legacy: Any) -> dict[str, Any] | None:
    if not isinstance(legacy, dict):
        return None
    tokens, values = legacy["tokens"], legacy["token_logprobs"]
    tops = legacy.get("top_logprobs") or [None] * len(tokens)
    return {
        "content": [
            _entry(token, value)
            | {"top_logprobs": [_entry(name, logprob) for name, logprob in (top or {}).items()]}
            for token, value, top in zip(tokens, values, tops, strict=True)
        ]
    }


def _entry(token: str, value: Any) -> dict[str, Any]:
    return {"token": token, "logprob": value, "bytes": list(token.encode(errors="replace"))}
