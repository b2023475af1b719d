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

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ajet_swarm.runtime import SYSTEM, Chance
from proxy.dialects.base import Dialect
from proxy.dialects.common import (
    Unreadable,
    decode,
    join_key,
    last_user_text,
    refusal_body,
    request_id,
    trains,
)
from proxy.dialects.request import ChatRequest
from proxy.dialects.responses.input import ConversationReader
from proxy.dialects.responses.store import ResponseStore
from proxy.dialects.responses.tools import ToolTable, choose, read_tools
from proxy.dialects.responses.writer import ResponseFields, ResponseWriter
from proxy.dialects.session_marks import session_of
from proxy.dialects.validation import (
    FORMATS,
    INTEGERS,
    bad_value,
    check_common,
    check_effort,
    check_logprobs,
    check_numbers,
)
from proxy.http.errors import ApiError, invalid

_encode = msgspec.json.Encoder().encode

_CONVERTED = frozenset(
    [
        "input",
        "instructions",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "max_output_tokens",
        "text",
        "reasoning",
        "include",
        "top_logprobs",
        "stream",
        "stream_options",
        "messages",
        "n",
    ]
)
"""Fields that are converted, and chat fields that would override the converted ones."""
_SERVICE_ONLY = frozenset(
    [
        "background",
        "client_metadata",
        "context_management",
        "conversation",
        "enable_response_messages",
        "max_tool_calls",
        "metadata",
        "previous_input_messages",
        "previous_response_id",
        "prompt",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "request_id",
        "safety_identifier",
        "store",
        "truncation",
    ]
)
"""Fields that chat completions do not have."""

_INTEGERS = (*INTEGERS, "max_output_tokens", "max_tool_calls", "top_logprobs")
_FLAGS = ("stream", "store", "background", "parallel_tool_calls")
_STRINGS = ("instructions", "previous_response_id")
_OBJECTS = ("text", "reasoning", "metadata", "stream_options")
_LOGPROBS = "message.output_text.logprobs"
_UNPRINTABLE = re.compile(r"[^\x21-\x7e]+")


def responses(store: ResponseStore, chance: Chance = SYSTEM.chance) -> Dialect:
    """Return the dialect of OpenAI Responses.

    Args:
        store: Store of output items to which clients may refer.
        chance: Source of their ids.
    """

    def read(data: bytes, headers: Mapping[str, str], client: str) -> ChatRequest:
        return read_request(data, headers, client, store)

    def writer(request: ChatRequest, model: str, created: int) -> ResponseWriter:
        return ResponseWriter(request, model, created, store, chance)

    return Dialect("responses", read, writer, refusal_body)


def read_request(
    data: bytes, headers: Mapping[str, str], client: str, store: ResponseStore
) -> ChatRequest:
    """Parse and check one request.

    Args:
        data: The raw body.
        headers: The request's headers; names in lower case.
        client: The client's address; with key and session it identifies the sender.
        store: The output items of earlier responses.

    Raises:
        ApiError: The request is invalid (vLLM refuses it too), or not supported.
    """
    body = decode(data, headers.get("content-type", ""))
    try:
        return _request(body, data, headers, client, store)
    except RecursionError:
        raise Unreadable from None


def _request(
    body: dict[str, Any], data: bytes, headers: Mapping[str, str], client: str, store: ResponseStore
) -> ChatRequest:
    _check(body)
    tools = read_tools(body.get("tools"))
    conversation = ConversationReader(body.get("instructions"), body["input"], store)
    if not conversation.messages:
        raise bad_value("input must contain at least one message.", "input")
    train = trains(headers)
    session = session_of(headers, body)
    name = request_id(headers)
    query = (
        conversation.query
        if conversation.query is not None
        else last_user_text(conversation.messages)
    )
    return ChatRequest(
        dialect="responses",
        request_id=name,
        body=_upstream(body, tools, conversation),
        messages=conversation.messages,
        query=query,
        model=body.get("model") or "",
        stream=bool(body.get("stream")),
        train=train,
        session=session,
        key=join_key(data, headers, client, session, train, "responses"),
        address=client,
        headers=headers,
        extra=_response_fields(body, tools, name),
    )


RESPONSES = responses(ResponseStore())
"""OpenAI Responses as implemented by vLLM without a store."""


# --- checking -----------------------------------------------------------------------------------


def _check(body: dict[str, Any]) -> None:
    if body.get("background") and not body.get("store", True):
        text = "Value error, background can only be used when `store` is true"
        raise invalid("value_error", "body", text, body)
    if body.get("prompt") is not None:
        raise bad_value("prompt template is not supported", "prompt")
    if "input" not in body:
        raise invalid("missing", "body.input", "Field required", body)
    if not isinstance(body["input"], str | list):
        text = "Input should be a valid string"
        raise invalid("string_type", "body.input", text, body["input"])
    _check_types(body)
    _check_values(body)


def _check_types(body: dict[str, Any]) -> None:
    check_numbers(body, integers=_INTEGERS, flags=_FLAGS)
    for name in _STRINGS:
        if (value := body.get(name)) is not None and not isinstance(value, str):
            raise invalid("string_type", f"body.{name}", "Input should be a valid string", value)
    for name in _OBJECTS:
        if (value := body.get(name)) is not None and not isinstance(value, dict):
            text = "Input should be a valid dictionary"
            raise invalid("dict_type", f"body.{name}", text, value)
    if (value := body.get("include")) is not None and not isinstance(value, list):
        raise invalid("list_type", "body.include", "Input should be a valid list", value)


def _check_values(body: Mapping[str, Any]) -> None:
    check_common({key: value for key, value in body.items() if key != "stream_options"})
    check_logprobs(body.get("top_logprobs"), "top_logprobs")
    check_effort((body.get("reasoning") or {}).get("effort"), "body.reasoning.effort")
    if (value := body.get("max_output_tokens")) is not None and value < 1:
        text = f"max_output_tokens must be at least 1, got {value}."
        raise bad_value(text, "max_output_tokens", value)
    if body.get("background"):
        text = (
            "This server does not support `store=True` and therefore does not support the "
            "background mode."
        )
        raise ApiError(400, None, text, kind="invalid_request_error", param="background")
    if (past := body.get("previous_response_id")) is not None:
        text = f"Response with id '{past[:100]}' not found."
        raise ApiError(404, None, text, kind="invalid_request_error", param="response_id")
    if (past := body.get("conversation")) is not None:
        name = past.get("id") if isinstance(past, dict) else past
        text = f"Conversation with id '{str(name)[:100]}' not found."
        raise ApiError(404, None, text, kind="invalid_request_error", param="conversation")


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
    if _LOGPROBS in (body.get("include") or ()):
        upstream |= {"logprobs": True, "top_logprobs": body.get("top_logprobs") or 0}
    if conversation.unfinished:
        upstream |= {"add_generation_prompt": False, "continue_final_message": True}
    return upstream


def _format(text_format: Any) -> dict[str, Any] | None:
    if text_format is None:
        return None
    if not isinstance(text_format, dict):
        raise invalid(
            "dict_type", "body.text.format", "Input should be a valid dictionary", text_format
        )
    kind = text_format.get("type")
    if "type" not in text_format:
        raise invalid("missing", "body.text.format.type", "Field required", text_format)
    if kind == "text":
        return None
    if kind not in FORMATS:
        text = "Input should be {}, {}, {} or {}".format(*(f'"{one}"' for one in FORMATS))
        raise invalid("literal_error", "body.text.format.type", text, kind)
    if kind != "json_schema":
        return text_format
    inner = text_format.get("json_schema")  # as in chat completions
    if not isinstance(inner, dict):
        _check_schema(text_format)
        known = ("name", "description", "schema", "strict")
        inner = {key: text_format[key] for key in known if text_format.get(key) is not None}
    return {"type": "json_schema", "json_schema": inner}


def _check_schema(text_format: Mapping[str, Any]) -> None:
    where, schema = "body.text.format.schema", text_format.get("schema")
    if schema is None:
        raise invalid("missing", where, "Field required", text_format)
    if not isinstance(schema, dict):
        raise invalid("dict_type", where, "Input should be a valid dictionary", schema)


# --- what the response repeats ------------------------------------------------------------------


def _response_fields(body: Mapping[str, Any], tools: ToolTable, name: str) -> ResponseFields:
    own = body.get("request_id")
    own = _UNPRINTABLE.sub("", own)[:128] if isinstance(own, str) else ""
    default = "auto" if tools.echoed else "none"
    parallel = body.get("parallel_tool_calls")
    logprobs = _LOGPROBS in (body.get("include") or ())
    echo = {
        "instructions": body.get("instructions"),
        "metadata": body.get("metadata"),
        "parallel_tool_calls": True if parallel is None else parallel,
        "temperature": _float(body.get("temperature"), 1.0),
        "tool_choice": _or(body.get("tool_choice"), default) if tools.echoed else default,
        "tools": tools.echoed,
        "top_p": _float(body.get("top_p"), 1.0),
        "max_output_tokens": body.get("max_output_tokens"),
        "max_tool_calls": body.get("max_tool_calls"),
        "reasoning": body.get("reasoning"),
        "service_tier": body.get("service_tier") or "auto",
        "text": body.get("text"),
        "top_logprobs": body.get("top_logprobs") or 0 if logprobs else None,
        "truncation": body.get("truncation") or "disabled",
        "user": body.get("user"),
        "presence_penalty": _float(body.get("presence_penalty"), 0.0),
        "frequency_penalty": _float(body.get("frequency_penalty"), 0.0),
    }
    return ResponseFields(
        response_id=own or f"resp_{name}",
        echo={key: msgspec.Raw(_encode(value)) for key, value in echo.items()},
        names=tools.names,
        custom=frozenset(tools.custom),
        logprobs=logprobs,
        store=body.get("store") is not False,
    )


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def _float(value: float | None, default: float) -> float:
    if value is None:
        return default
    return float(value) if abs(value) < 1 << 53 else value  # larger integers stay exact
