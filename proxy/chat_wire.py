"""Chat completions on the wire as vLLM writes them: the whole answer, or chunks. No I/O.

Key sets, their order and which keys are null follow captures of a real server.
"""

import secrets
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from core.text import content_text
from core.version import version

_encode = msgspec.json.Encoder().encode

PIECES = 8
"""Chunks a text is cut into at most: the winner is known whole, so it leaves as a burst."""
SHORTEST = 16
"""Characters a piece has at least."""

DONE = b"data: [DONE]\n\n"


def fingerprint() -> str:
    """What stands where vLLM tells its own version."""
    return f"ajet-console-{version()}"


class Winner(msgspec.Struct, frozen=True):
    """The parts of an upstream's completion that a client gets to see."""

    content: str | None
    reasoning: str | None
    tool_calls: list[dict[str, Any]]
    finish_reason: str
    stop_reason: Any
    logprobs: Any
    token_ids: Any
    usage: dict[str, Any]
    prompt_token_ids: Any = None


def winner(completion: Mapping[str, Any]) -> Winner:
    """Read a completion that has a choice with a message."""
    choice = completion["choices"][0]
    message = choice["message"]
    reasoning = message.get("reasoning") or message.get("reasoning_content")
    calls = message.get("tool_calls")
    calls = calls if isinstance(calls, list) else []
    return Winner(
        content=content_text(message.get("content")) or None,
        reasoning=content_text(reasoning) or None,
        tool_calls=[_call(one) for one in calls if isinstance(one, dict)],
        finish_reason=str(choice.get("finish_reason") or "stop"),
        stop_reason=choice.get("stop_reason"),
        logprobs=choice.get("logprobs"),
        token_ids=choice.get("token_ids"),
        usage=_usage(completion.get("usage"), bool(reasoning)),
        prompt_token_ids=completion.get("prompt_token_ids"),
    )


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        arguments = _encode(arguments if arguments is not None else {}).decode()
    return {
        "id": call.get("id") or f"chatcmpl-tool-{secrets.token_hex(8)}",
        "type": "function",
        "function": {"name": str(function.get("name") or ""), "arguments": arguments},
    }


def _usage(told: Any, reasons: bool) -> dict[str, Any]:
    told = told if isinstance(told, dict) else {}
    prompt, completion = _count(told, "prompt_tokens"), _count(told, "completion_tokens")
    details = told.get("completion_tokens_details")
    if not isinstance(details, dict) and not reasons:
        details = {"reasoning_tokens": 0}  # with reasoning in it the number is not known
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": told.get("prompt_tokens_details"),
        "completion_tokens_details": details if isinstance(details, dict) else None,
    }


def _count(told: Mapping[str, Any], name: str) -> int:
    value = told.get(name)
    return value if isinstance(value, int) else 0


def completion_body(one: Winner, completion_id: str, created: int, model: str) -> bytes:
    """The answer of a request that does not stream."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": one.content,
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
    }
    if one.tool_calls:
        message["tool_calls"] = one.tool_calls
    message["reasoning"] = one.reasoning
    choice = {
        "index": 0,
        "message": message,
        "logprobs": one.logprobs,
        "finish_reason": one.finish_reason,
        "stop_reason": one.stop_reason,
        "token_ids": one.token_ids,
        "routed_experts": None,
    }
    return _encode(
        {
            "id": completion_id,
            "object": "chat.completion",
            "created": created,
            "model": model,
            "choices": [choice],
            "service_tier": None,
            "system_fingerprint": fingerprint(),
            "usage": one.usage,
            "prompt_logprobs": None,
            "prompt_token_ids": one.prompt_token_ids,
            "prompt_text": None,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": None,
        }
    )


class ChunkWriter:
    """Writes the events of one stream: one id, one time, one model in all of them."""

    def __init__(
        self,
        completion_id: str,
        created: int,
        model: str,
        *,
        include_usage: bool = False,
        continuous_usage: bool = False,
    ) -> None:
        self._head = {
            "id": completion_id,
            "object": "chat.completion.chunk",
            "created": created,
            "model": model,
        }
        self._include_usage = include_usage
        self._continuous = include_usage and continuous_usage

    def role(self) -> bytes:
        """The first event: sent when the request is admitted, before any token."""
        return self._event(
            [_choice({"role": "assistant", "content": ""})],
            {"prompt_token_ids": None, "prompt_text": None},
        )

    def keepalive(self) -> bytes:
        """An event that changes nothing; clients count events, comments do not keep them alive."""
        return self._event([_choice({})])

    def answer(self, one: Winner) -> bytes:
        """All events of the winner, with the end marker."""
        return b"".join(self._answer(one)) + DONE

    def error(self, body: bytes) -> bytes:
        """What ends a stream that has begun and cannot be finished."""
        return b"data: " + body + b"\n\n" + DONE

    def _answer(self, one: Winner) -> Iterator[bytes]:
        usage = {name: value for name, value in one.usage.items() if value is not None}
        running = {"usage": usage} if self._continuous else {}
        logprobs = one.logprobs
        for delta in _deltas(one):
            choice = _choice(delta)
            choice["logprobs"], logprobs = logprobs, None
            choice["token_ids"] = None
            yield self._event([choice], running)
        last = _choice({})
        last |= {
            "logprobs": logprobs,
            "finish_reason": one.finish_reason,
            "stop_reason": one.stop_reason,
            "token_ids": one.token_ids,
        }
        mark = {"system_fingerprint": fingerprint()}
        if not self._include_usage:
            yield self._event([last], mark)
            return
        yield self._event([last], running)
        yield self._event([], {"usage": usage, **mark})

    def _event(self, choices: list[dict[str, Any]], more: Mapping[str, Any] | None = None) -> bytes:
        chunk: dict[str, Any] = {**self._head, "choices": choices}
        if more:
            chunk |= more
        return b"data: " + _encode(chunk) + b"\n\n"


def _choice(delta: dict[str, Any]) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}


def _deltas(one: Winner) -> Iterator[dict[str, Any]]:
    for piece in pieces(one.reasoning or ""):
        yield {"reasoning": piece}
    for piece in pieces(one.content or ""):
        yield {"content": piece}
    for index, call in enumerate(one.tool_calls):
        function = call["function"]
        name = {"id": call["id"], "type": call["type"], "index": index}
        yield {
            "content": None,
            "tool_calls": [{**name, "function": {"name": function["name"]}}],
        }
        for piece in pieces(function["arguments"]):
            told = {"index": index, "function": {"arguments": piece}}
            yield {"content": None, "tool_calls": [told]}


def pieces(text: str) -> Iterator[str]:
    """`text` in at most `PIECES` parts, none empty."""
    size = max(SHORTEST, -(-len(text) // PIECES))
    for start in range(0, len(text), size):
        yield text[start : start + size]
