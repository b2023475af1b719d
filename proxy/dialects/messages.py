"""Anthropic Messages: the request parser and the dialect. No I/O.

Requests are parsed as vLLM parses them. Features of Anthropic's own service are accepted and
ignored: caching, context management, thinking budgets, metadata, and the tools that run on its
servers. A `thread` is refused, because its stored conversation is not available here. Unknown
fields are passed upstream unchanged. `max_tokens` is required, `model` is not.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from core.dialects.errors import ApiError, invalid
from core.dialects.messages.input import read_prompt
from core.dialects.messages.writer import MessagesWriter, error_body
from core.dialects.validation import (
    check_common,
    check_numbers,
    check_stop_texts,
    integer,
    required,
    typed,
)
from proxy.dialects.request import Dialect, RequestReader

_CONVERTED = frozenset(["system", "stop_sequences", "tools", "tool_choice"])
"""Fields that are converted to other fields of a chat completion."""
_SERVICE_ONLY = frozenset(
    [
        *("thinking", "context_management", "output_config", "output_format", "metadata"),
        *("cache_control", "container", "mcp_servers", "service_tier", "inference_geo", "speed"),
        *("betas", "anthropic_beta", "anthropic_version", "safeguards", "thread"),
    ]
)
"""Fields of Anthropic's own service; of `output_config`, effort and format are converted."""
_NOT_UPSTREAM = _CONVERTED | _SERVICE_ONLY | {"stream", "stream_options", "n", "messages"}
_EFFORTS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
"""Anthropic's effort levels -> those that every chat server accepts."""
_WHOLE_BODY = re.compile(r"body(\.\d+)?")
"""`param` of an error about the body as a whole; that of other errors names a field."""
_THREAD_DETAILS = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
"""Error details upon which Anthropic's SDKs resend the whole conversation without a thread."""
_encode = msgspec.json.Encoder().encode


class _Stops(msgspec.Struct):
    stop_sequences: list[str] | None = None


def _passed_on(body: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key not in _NOT_UPSTREAM}


def count_body(tokens: int) -> bytes:
    """Return the response body of `POST /v1/messages/count_tokens`."""
    management = {"original_input_tokens": tokens}
    return _encode({"input_tokens": tokens, "context_management": management})


def refusal_body(refusal: ApiError) -> bytes:
    """Return the JSON body of an error response in Anthropic's form, like vLLM 0.33.

    A body that is not a JSON object is refused before its dialect is known, so this error has the
    form of the other dialects.
    """
    unread = refusal.param is None or _WHOLE_BODY.fullmatch(refusal.param)
    if refusal.kind == "Bad Request" and unread:
        return refusal.body()
    return error_body(refusal)


def _prompt(body: dict[str, Any]) -> dict[str, Any]:
    if body.get("thread") is not None:
        text = "thread: conversations are not stored here; send the whole one without a thread."
        raise ApiError(400, None, text, param="thread", details=_THREAD_DETAILS)
    return read_prompt(body)


def _sampling(body: dict[str, Any]) -> dict[str, Any]:
    """Return the checked sampling settings under the upstream's names; clean those in `body`."""
    if (limit := body.get("max_tokens")) is None:
        raise required("body.max_tokens", body)
    if (count := integer("max_tokens", limit)) < 1:
        text = "Value error, max_tokens must be positive"
        raise invalid("value_error", "body.max_tokens", text, limit)
    check_numbers(body)
    check_common(_passed_on(body))
    stops = typed(body, _Stops, "body").stop_sequences or []
    check_stop_texts(stops)
    stop = {"stop": stops} if stops else {}
    return {"max_tokens": count} | stop | _output(body.get("output_config"))


def _output(config: Any) -> dict[str, Any]:
    if not isinstance(config, dict):
        return {}
    fields: dict[str, Any] = {}
    effort = config.get("effort")
    if isinstance(effort, str) and effort in _EFFORTS:
        fields["reasoning_effort"] = _EFFORTS[effort]
    output_format = config.get("format")
    if isinstance(output_format, dict) and isinstance(schema := output_format.get("schema"), dict):
        json_schema = {"name": "json_schema", "schema": schema}
        fields["response_format"] = {"type": "json_schema", "json_schema": json_schema}
    return fields


def _convert(body: dict[str, Any], _: str) -> tuple[dict[str, Any], dict[str, Any]]:
    fields = _prompt(body) | _sampling(body)
    return _passed_on(body) | fields, {}


def _convert_count(body: dict[str, Any], _: str) -> tuple[dict[str, Any], dict[str, Any]]:
    fields = _prompt(body)
    return _passed_on(body) | fields, {"train": False, "stream": False}


read_messages = RequestReader("messages", _convert)
"""Parser of `POST /v1/messages`."""
read_count = RequestReader("messages", _convert_count, "count_tokens")
"""Parser of `POST /v1/messages/count_tokens`: `messages` and `body["tools"]` of its requests equal
those of `read_messages` for the same conversation."""
MESSAGES = Dialect("messages", read_messages, MessagesWriter, refusal_body)
