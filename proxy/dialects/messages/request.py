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

from proxy.dialects.base import Dialect
from proxy.dialects.common import decode, integer, join_key, last_user_text, request_id, trains
from proxy.dialects.messages.input import chat_messages
from proxy.dialects.messages.writer import MessagesWriter, error_body
from proxy.dialects.request import ChatRequest
from proxy.dialects.session_marks import session_of
from proxy.dialects.validation import bad_value, check_common, check_numbers, check_stop_texts
from proxy.http.errors import ApiError, invalid

_CONVERTED = frozenset({"system", "stop_sequences", "tools", "tool_choice"})
"""Fields that are converted to other fields of a chat completion."""
_SERVICE_ONLY = frozenset(
    {
        "thinking",
        "context_management",
        "output_config",
        "output_format",
        "metadata",
        "cache_control",
        "container",
        "mcp_servers",
        "service_tier",
        "inference_geo",
        "speed",
        "betas",
        "anthropic_beta",
        "anthropic_version",
        "safeguards",
        "thread",
    }
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


def read_messages(data: bytes, headers: Mapping[str, str], client: str = "") -> ChatRequest:
    """Parse and check the body of `POST /v1/messages`.

    Args:
        data: The raw body.
        headers: The request's headers; names in lower case.
        client: The client's address; with key and session it identifies the sender.

    Raises:
        ApiError: The request is invalid; vLLM refuses it too.
    """
    body = decode(data, headers.get("content-type", ""))
    messages, fields = _conversation(body)
    fields |= _sampling(body)
    train = trains(headers)
    session = session_of(headers, body)
    return ChatRequest(
        dialect="messages",
        request_id=request_id(headers),
        body={key: value for key, value in body.items() if key not in _NOT_UPSTREAM} | fields,
        messages=messages,
        query=last_user_text(messages),
        model=body.get("model") or "",
        stream=bool(body.get("stream")),
        train=train,
        session=session,
        key=join_key(data, headers, client, session, train, "messages"),
        address=client,
        headers=headers,
    )


def read_count(data: bytes, headers: Mapping[str, str], client: str = "") -> ChatRequest:
    """Parse and check the body of `POST /v1/messages/count_tokens`.

    The result's `messages` and `body["tools"]` equal those of `read_messages` for the same
    conversation.

    Raises:
        ApiError: The request is invalid; vLLM refuses it too.
    """
    body = decode(data, headers.get("content-type", ""))
    messages, fields = _conversation(body)
    session = session_of(headers, body)
    return ChatRequest(
        dialect="messages",
        request_id=request_id(headers),
        body={key: value for key, value in body.items() if key not in _NOT_UPSTREAM} | fields,
        messages=messages,
        query=last_user_text(messages),
        model=body.get("model") or "",
        stream=False,
        train=False,
        session=session,
        key=join_key(data, headers, client, session, False, "count_tokens"),
        address=client,
        headers=headers,
    )


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


def _conversation(body: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the chat messages, and the other upstream fields that determine the prompt."""
    if body.get("thread") is not None:
        text = "thread: conversations are not stored here; send the whole one without a thread."
        raise ApiError(400, None, text, param="thread", details=_THREAD_DETAILS)
    model = body.get("model")
    if model is not None and not isinstance(model, str):
        raise invalid("string_type", "body.model", "Input should be a valid string", model)
    messages = chat_messages(body)
    if not messages:
        raise bad_value("messages must contain at least one message.", "messages")
    fields: dict[str, Any] = {"messages": messages}
    tools = _tools(body.get("tools"))
    choice = _choice(body.get("tool_choice"), fields)
    if tools:
        fields["tools"] = tools
        fields["tool_choice"] = choice or "auto"
    elif body.get("tools") is None and choice not in (None, "none", "auto"):
        raise bad_value("When using `tool_choice`, `tools` must be set.", "tool_choice")
    else:
        fields.pop("parallel_tool_calls", None)
    return messages, fields


def _tools(value: Any) -> list[dict[str, Any]]:
    """Convert the client's own tools; drop those that run on Anthropic's servers."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise invalid("list_type", "body.tools", "Input should be a valid list", value)
    tools = (_tool(tool, f"body.tools.{index}") for index, tool in enumerate(value))
    return [tool for tool in tools if tool is not None]


def _tool(tool: Any, where: str) -> dict[str, Any] | None:
    if not isinstance(tool, dict):
        raise invalid("dict_type", where, "Input should be a valid dictionary", tool)
    if tool.get("input_schema") is None and tool.get("type") not in (None, "custom"):
        return None
    name = _required(tool, "name", str, where)
    schema = _required(tool, "input_schema", dict, where)
    function: dict[str, Any] = {"name": name}
    if isinstance(description := tool.get("description"), str):
        function["description"] = description
    function["parameters"] = schema if "type" in schema else {**schema, "type": "object"}
    if isinstance(strict := tool.get("strict"), bool):
        function["strict"] = strict
    return {"type": "function", "function": function}


def _required(tool: dict[str, Any], field: str, kind: type, where: str) -> Any:
    value = tool.get(field)
    if value is None:
        raise invalid("missing", f"{where}.{field}", "Field required", tool)
    if not isinstance(value, kind):
        code, word = ("string", "string") if kind is str else ("dict", "dictionary")
        raise invalid(f"{code}_type", f"{where}.{field}", f"Input should be a valid {word}", value)
    return value


def _choice(value: Any, fields: dict[str, Any]) -> str | dict[str, Any] | None:
    if value is None:
        return None
    where = "body.tool_choice"
    if not isinstance(value, dict):
        raise invalid("dict_type", where, "Input should be a valid dictionary", value)
    kind = value.get("type")
    if value.get("disable_parallel_tool_use") is True:
        fields["parallel_tool_calls"] = False
    if kind == "tool":
        name = value.get("name")
        if not isinstance(name, str) or not name:
            text = "Value error, tool_choice.name is required when type is tool"
            raise invalid("value_error", where, text, value)
        return {"type": "function", "function": {"name": name}}
    choice = _CHOICES.get(kind) if isinstance(kind, str) else None
    if choice is None:
        text = "Input should be auto, any, tool or none"
        raise invalid("literal_error", f"{where}.type", text, kind)
    return choice


def _sampling(body: dict[str, Any]) -> dict[str, Any]:
    """Return the checked sampling settings under the upstream's names; clean those in `body`."""
    if (limit := body.get("max_tokens")) is None:
        raise invalid("missing", "body.max_tokens", "Field required", body)
    fields: dict[str, Any] = {"max_tokens": integer("max_tokens", limit)}
    if fields["max_tokens"] < 1:
        text = "Value error, max_tokens must be positive"
        raise invalid("value_error", "body.max_tokens", text, limit)
    check_numbers(body)
    passed_on = {key: value for key, value in body.items() if key not in _NOT_UPSTREAM}
    check_common(passed_on)
    return fields | _stops(body.get("stop_sequences")) | _output(body.get("output_config"))


def _stops(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    where = "body.stop_sequences"
    if not isinstance(value, list):
        raise invalid("list_type", where, "Input should be a valid list", value)
    for index, stop in enumerate(value):
        if not isinstance(stop, str):
            text = "Input should be a valid string"
            raise invalid("string_type", f"{where}.{index}", text, stop)
    check_stop_texts(value)
    return {"stop": value} if value else {}


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


MESSAGES = Dialect("messages", read_messages, MessagesWriter, refusal_body)
