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

from core.openai.forms import choice_of, tool_of
from proxy.dialects.base import Dialect
from proxy.dialects.common import RequestReader
from proxy.dialects.fields import bad_value, integer, required, typed
from proxy.dialects.messages.input import chat_messages
from proxy.dialects.messages.writer import MessagesWriter, error_body
from proxy.dialects.validation import check_common, check_numbers, check_stop_texts
from proxy.http.errors import ApiError, invalid

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
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_WHOLE_BODY = re.compile(r"body(\.\d+)?")
"""`param` of an error about the body as a whole; that of other errors names a field."""
_THREAD_DETAILS = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
"""Error details upon which Anthropic's SDKs resend the whole conversation without a thread."""
_encode = msgspec.json.Encoder().encode


class _MessagesBody(msgspec.Struct):
    model: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None


class _Stops(msgspec.Struct):
    stop_sequences: list[str] | None = None


class _AnthropicTool(msgspec.Struct):
    name: str
    input_schema: dict[str, Any]


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


def _conversation(body: dict[str, Any]) -> dict[str, Any]:
    """Return the chat messages, and the other upstream fields that determine the prompt."""
    if body.get("thread") is not None:
        text = "thread: conversations are not stored here; send the whole one without a thread."
        raise ApiError(400, None, text, param="thread", details=_THREAD_DETAILS)
    shape = typed(body, _MessagesBody, "body")
    messages = chat_messages(body)
    if not messages:
        raise bad_value("messages must contain at least one message.", "messages")
    fields: dict[str, Any] = {"messages": messages}
    tools = [_tool(tool, f"body.tools.{index}") for index, tool in enumerate(shape.tools or ())]
    choice = None if shape.tool_choice is None else _choice(shape.tool_choice)
    if any(tools):
        fields["tools"] = [tool for tool in tools if tool is not None]
        fields["tool_choice"] = choice or "auto"
        if shape.tool_choice and shape.tool_choice.get("disable_parallel_tool_use") is True:
            fields["parallel_tool_calls"] = False
    elif shape.tools is None and choice not in (None, "none", "auto"):
        raise bad_value("When using `tool_choice`, `tools` must be set.", "tool_choice")
    return fields


def _tool(tool: dict[str, Any], where: str) -> dict[str, Any] | None:
    """Convert a tool of the client; None for one that runs on Anthropic's servers."""
    if tool.get("input_schema") is None and tool.get("type") not in (None, "custom"):
        return None
    own = typed(tool, _AnthropicTool, where)
    schema = own.input_schema
    description, strict = tool.get("description"), tool.get("strict")
    fields = {
        "description": description if isinstance(description, str) else None,
        "parameters": schema if "type" in schema else {**schema, "type": "object"},
        "strict": strict if isinstance(strict, bool) else None,
    }
    return tool_of(own.name, fields)


def _choice(value: dict[str, Any]) -> str | dict[str, Any]:
    kind = value.get("type")
    if kind == "tool":
        name = value.get("name")
        if not isinstance(name, str) or not name:
            text = "Value error, tool_choice.name is required when type is tool"
            raise invalid("value_error", "body.tool_choice", text, value)
        return choice_of(name)
    choice = _CHOICES.get(kind) if isinstance(kind, str) else None
    if choice is None:
        text = "Input should be auto, any, tool or none"
        raise invalid("literal_error", "body.tool_choice.type", text, kind)
    return choice


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
    fields = _conversation(body) | _sampling(body)
    return _passed_on(body) | fields, {}


def _convert_count(body: dict[str, Any], _: str) -> tuple[dict[str, Any], dict[str, Any]]:
    fields = _conversation(body)
    return _passed_on(body) | fields, {"train": False, "stream": False}


read_messages = RequestReader("messages", _convert)
"""Parser of `POST /v1/messages`."""
read_count = RequestReader("messages", _convert_count, "count_tokens")
"""Parser of `POST /v1/messages/count_tokens`: `messages` and `body["tools"]` of its requests equal
those of `read_messages` for the same conversation."""
MESSAGES = Dialect("messages", read_messages, MessagesWriter, refusal_body)
