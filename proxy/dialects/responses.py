"""Responses requests (`POST /v1/responses`) as chat completions: parsing and checking, no I/O.

| field                              | field of the chat completion                               |
|------------------------------------|------------------------------------------------------------|
| `input`, `instructions`            | `messages` (see `responses.input`)                         |
| `tools`, `tool_choice`             | the callable ones as functions (see `responses.tools`)     |
| `max_output_tokens`                | `max_completion_tokens`                                    |
| `text.format`                      | `response_format`                                          |
| `reasoning.effort`                 | `reasoning_effort`                                         |
| `include` of logprobs              | `logprobs`, `top_logprobs`                                 |
| `store`                            | none; items are stored (see `responses.store`)             |
| `background`                       | refused, as by vLLM without a store                        |
| `previous_response_id`             | refused, as by vLLM without a store                        |
| `conversation`                     | refused, as by vLLM without a store                        |
| those in `_SERVICE_ONLY`           | none                                                       |
| all others                         | the same                                                   |
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from ajet_swarm.runtime import SYSTEM, Chance
from core.dialects.errors import invalid
from core.dialects.responses.input import ConversationReader, ResponseStore
from core.dialects.responses.tools import ToolTable, choose, read_tools
from core.dialects.responses.writer import LOGPROBS, ResponseWriter, response_fields
from core.dialects.validation import (
    INTEGERS,
    bad_value,
    check_common,
    check_format,
    check_logprobs,
    check_numbers,
    check_ranges,
    required,
    typed,
    unsupported,
)
from proxy.dialects.client_marks import query_of
from proxy.dialects.request import ChatRequest, Dialect, RequestReader, refusal_body

_CONVERTED = frozenset(
    [
        *("input", "instructions", "tools", "tool_choice", "parallel_tool_calls"),
        *("max_output_tokens", "text", "reasoning", "include", "top_logprobs", "stream"),
        *("stream_options", "messages", "n"),
    ]
)
"""Fields that are converted, and chat fields that would override the converted ones."""
_SERVICE_ONLY = frozenset(
    [
        *("background", "client_metadata", "context_management", "conversation"),
        *("enable_response_messages", "max_tool_calls", "metadata", "previous_input_messages"),
        *("previous_response_id", "prompt", "prompt_cache_key", "prompt_cache_options"),
        *("prompt_cache_retention", "request_id", "safety_identifier", "store", "truncation"),
    ]
)
"""Fields that chat completions do not have."""

_INTEGERS = (*INTEGERS, "max_output_tokens", "max_tool_calls", "top_logprobs")
_FLAGS = ("stream", "store", "background", "parallel_tool_calls")


class _Reasoning(msgspec.Struct):
    effort: str | None = None


class _TextSettings(msgspec.Struct):
    format: dict[str, Any] | None = None


class _Schema(msgspec.Struct):
    schema: dict[str, Any]


class _ResponsesBody(msgspec.Struct):
    input: str | list[Any]
    instructions: str | None = None
    previous_response_id: str | None = None
    text: _TextSettings | None = None
    reasoning: _Reasoning | None = None
    metadata: dict[str, Any] | None = None
    stream_options: dict[str, Any] | None = None
    include: list[Any] | None = None


def responses(store: ResponseStore, chance: Chance = SYSTEM.chance) -> Dialect:
    """Return the dialect of OpenAI Responses.

    Args:
        store: Store of output items to which clients may refer.
        chance: Source of their ids.
    """

    def convert(body: dict[str, Any], name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        _check(body)
        tools = read_tools(body)
        conversation = ConversationReader(body.get("instructions"), body["input"], store)
        if not conversation.messages:
            raise bad_value("input must contain at least one message.", "input")
        fields: dict[str, Any] = {"extra": response_fields(body, tools, name)}
        query = None
        for text in conversation.user_texts:
            query = query_of(text, query)
        if query is not None:
            fields["query"] = query
        return _upstream(body, tools, conversation), fields

    def writer(request: ChatRequest, model: str, created: int) -> ResponseWriter:
        return ResponseWriter(request, model, created, store, chance)

    return Dialect("responses", RequestReader("responses", convert), writer, refusal_body)


RESPONSES = responses(ResponseStore())
"""OpenAI Responses as implemented by vLLM without a store."""


# --- checking -----------------------------------------------------------------------------------


def _check(body: dict[str, Any]) -> None:
    if body.get("background") and not body.get("store", True):
        text = "Value error, background can only be used when `store` is true"
        raise invalid("value_error", "body", text, body)
    if body.get("prompt") is not None:
        raise bad_value("prompt template is not supported", "prompt")
    typed(body, _ResponsesBody, "body")
    check_numbers(body, _INTEGERS, _FLAGS)
    check_common({key: value for key, value in body.items() if key != "stream_options"})
    check_logprobs(body.get("top_logprobs"), "top_logprobs")
    check_ranges(body, ("max_output_tokens",))
    if body.get("background"):
        text = (
            "This server does not support `store=True` and therefore does not support the "
            "background mode."
        )
        raise unsupported(text, "background")
    if (past := body.get("previous_response_id")) is not None:
        raise unsupported(f"Response with id '{past[:100]}' not found.", "response_id", 404)
    if (past := body.get("conversation")) is not None:
        name = past.get("id") if isinstance(past, dict) else past
        text = f"Conversation with id '{str(name)[:100]}' not found."
        raise unsupported(text, "conversation", 404)


# --- the upstream's request ---------------------------------------------------------------------


def _upstream(
    body: Mapping[str, Any], tools: ToolTable, conversation: ConversationReader
) -> dict[str, Any]:
    choice = choose(body.get("tool_choice"), tools)
    dropped = _CONVERTED | _SERVICE_ONLY
    upstream: dict[str, Any] = {"messages": conversation.messages}
    upstream |= {key: value for key, value in body.items() if key not in dropped}
    converted = {
        "tools": tools.chat or None,
        "tool_choice": choice,
        "parallel_tool_calls": body.get("parallel_tool_calls") if tools.chat else None,
        "max_completion_tokens": body.get("max_output_tokens"),
        "response_format": _format((body.get("text") or {}).get("format")),
        "reasoning_effort": (body.get("reasoning") or {}).get("effort"),
    }
    upstream |= {key: value for key, value in converted.items() if value is not None}
    if LOGPROBS in (body.get("include") or ()):
        upstream |= {"logprobs": True, "top_logprobs": body.get("top_logprobs") or 0}
    if conversation.unfinished:
        upstream |= {"add_generation_prompt": False, "continue_final_message": True}
    return upstream


def _format(text_format: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    if text_format is None:
        return None
    where = "body.text.format"
    check_format(text_format, where)
    kind = text_format["type"]
    if kind != "json_schema":
        return None if kind == "text" else text_format
    inner = text_format.get("json_schema")  # as in chat completions
    if not isinstance(inner, dict):
        if text_format.get("schema") is None:
            raise required(f"{where}.schema", text_format)
        typed(text_format, _Schema, where)
        known = ("name", "description", "schema", "strict")
        inner = {key: text_format[key] for key in known if text_format.get(key) is not None}
    return {"type": kind, "json_schema": inner}
