"""One request and one answer in the form all dialects share, without I/O.

The form is that of a chat completion, which is what swarm servers speak: a dialect reads its own
requests into a `ChatRequest` and writes a `Winner` in its own words.
"""

import secrets
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from core.text import content_text

_encode = msgspec.json.Encoder().encode

PIECES = 8
"""Chunks a text is cut into at most: a winner that is known whole leaves as a burst."""
SHORTEST = 16
"""Characters a piece has at least."""


class ChatRequest(msgspec.Struct, kw_only=True, frozen=True):
    """One user request, whatever the dialect it came in."""

    dialect: str = "chat"
    """Name of the dialect it is answered in."""
    request_id: str
    """The client's own `X-Request-Id`, else 16 hex digits."""
    body: dict[str, Any]
    """The chat completion asked of the upstream: no stream, one answer, in training the run's
    temperature. Fields we do not know are in it untouched."""
    messages: list[dict[str, Any]]
    """In the form of chat completions, as in `body`."""
    query: str
    """Text of the last user message."""
    model: str
    """As it was asked for; may be empty."""
    stream: bool
    include_usage: bool = False
    continuous_usage: bool = False
    n: int = 1
    """Choices the client asked for: the n best candidates, the winner first."""
    train: bool = True
    """False answers from one candidate and trains on nothing."""
    session: str = ""
    """The conversation the client says it is in; empty when it does not."""
    key: str
    """Equal for a request sent again: same sender, same bytes."""
    headers: Mapping[str, str]
    """Lower-case names."""
    extra: Any = None
    """What the dialect's own writer needs of the request, as the fields it has to repeat."""

    def encoded(self) -> bytes:
        """`body` as the bytes every candidate is asked with."""
        return _encode(self.body)


class Winner(msgspec.Struct, frozen=True):
    """The parts of an upstream's completion that a client gets to see."""

    content: str | None
    reasoning: str | None
    tool_calls: list[dict[str, Any]]
    """`{"id", "type": "function", "function": {"name", "arguments": str}}`, every key there."""
    finish_reason: str
    """stop, length or tool_calls, or what else the upstream says."""
    stop_reason: Any
    logprobs: Any
    token_ids: Any
    usage: dict[str, Any]
    """`prompt_tokens`, `completion_tokens`, `total_tokens`, `prompt_tokens_details`,
    `completion_tokens_details`."""
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


def deltas(one: Winner) -> Iterator[dict[str, Any]]:
    """A winner as the deltas of a chat stream: reasoning, text, then the tool calls.

    A tool call is first told by index, id, type and name, then by pieces of its arguments.
    """
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
