"""Anthropic Messages: a request as it came and as the upstream gets it. No I/O.

Read as vLLM reads it. What belongs to Anthropic's own service is taken and left out: caching,
context management, thinking budgets, metadata and the tools that run on its servers. A `thread` is
refused: it would be answered without the conversation that it stands for. Fields that no form knows
go upstream untouched. `max_tokens` is required, a model is not.
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

_TOLD_ANEW = frozenset({"system", "stop_sequences", "tools", "tool_choice"})
"""What is told in other words."""
_OWN = frozenset(
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
"""What belongs to Anthropic's own service; of `output_config` effort and format are told."""
_NOT_UPSTREAM = _TOLD_ANEW | _OWN | {"stream", "stream_options", "n", "messages"}
_EFFORTS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
"""Anthropic's words for effort, as the words every chat server takes."""
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_UNREAD = re.compile(r"body(\.\d+)?")
"""`param` of an error that found no object in the body; others name a field."""
_THREADED = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
"""What Anthropic's SDKs look for before they send the whole conversation without a thread."""
_encode = msgspec.json.Encoder().encode


def read_messages(data: bytes, headers: Mapping[str, str], client: str = "") -> ChatRequest:
    """Parse and check the body of `POST /v1/messages`.

    Args:
        data: The raw body.
        headers: Lower-case names.
        client: Where it comes from; with key and session it tells senders apart.

    Raises:
        ApiError: vLLM would refuse it too.
    """
    body = decode(data, headers.get("content-type", ""))
    messages, made = _conversation(body)
    made |= _sampling(body)
    train = trains(headers)
    session = session_of(headers, body)
    return ChatRequest(
        dialect="messages",
        request_id=request_id(headers),
        body={key: value for key, value in body.items() if key not in _NOT_UPSTREAM} | made,
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
    """Parse and check the body of `POST /v1/messages/count_tokens`: one that is only counted.

    Its `messages` and `body["tools"]` are those `read_messages` makes of the same conversation.

    Raises:
        ApiError: vLLM would refuse it too.
    """
    body = decode(data, headers.get("content-type", ""))
    messages, made = _conversation(body)
    session = session_of(headers, body)
    return ChatRequest(
        dialect="messages",
        request_id=request_id(headers),
        body={key: value for key, value in body.items() if key not in _NOT_UPSTREAM} | made,
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
    """The answer of `POST /v1/messages/count_tokens`."""
    kept = {"original_input_tokens": tokens}
    return _encode({"input_tokens": tokens, "context_management": kept})


def refusal_body(refusal: ApiError) -> bytes:
    """An error before anything was sent: in Anthropic's words, as vLLM 0.33 gives it.

    A body that is no JSON object is refused before anyone knows whose words it wanted: it gets
    the form of all the other dialects.
    """
    unread = refusal.param is None or _UNREAD.fullmatch(refusal.param)
    if refusal.kind == "Bad Request" and unread:
        return refusal.body()
    return error_body(refusal)


def _conversation(body: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The messages, and what of the upstream's body makes its prompt."""
    if body.get("thread") is not None:
        text = "thread: no conversations are kept here; send the whole one without a thread."
        raise ApiError(400, None, text, param="thread", details=_THREADED)
    model = body.get("model")
    if model is not None and not isinstance(model, str):
        raise invalid("string_type", "body.model", "Input should be a valid string", model)
    messages = chat_messages(body)
    if not messages:
        raise bad_value("messages must contain at least one message.", "messages")
    made: dict[str, Any] = {"messages": messages}
    tools = _tools(body.get("tools"))
    choice = _choice(body.get("tool_choice"), made)
    if tools:
        made["tools"] = tools
        made["tool_choice"] = choice or "auto"
    elif body.get("tools") is None and choice not in (None, "none", "auto"):
        raise bad_value("When using `tool_choice`, `tools` must be set.", "tool_choice")
    else:
        made.pop("parallel_tool_calls", None)
    return messages, made


def _tools(told: Any) -> list[dict[str, Any]]:
    """The client's own tools; those that run on Anthropic's servers cannot be called here."""
    if told is None:
        return []
    if not isinstance(told, list):
        raise invalid("list_type", "body.tools", "Input should be a valid list", told)
    tools = (_tool(tool, f"body.tools.{index}") for index, tool in enumerate(told))
    return [tool for tool in tools if tool is not None]


def _tool(tool: Any, where: str) -> dict[str, Any] | None:
    if not isinstance(tool, dict):
        raise invalid("dict_type", where, "Input should be a valid dictionary", tool)
    if tool.get("input_schema") is None and tool.get("type") not in (None, "custom"):
        return None
    name = _required(tool, "name", str, where)
    schema = _required(tool, "input_schema", dict, where)
    function: dict[str, Any] = {"name": name}
    if isinstance(described := tool.get("description"), str):
        function["description"] = described
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


def _choice(told: Any, made: dict[str, Any]) -> str | dict[str, Any] | None:
    if told is None:
        return None
    where = "body.tool_choice"
    if not isinstance(told, dict):
        raise invalid("dict_type", where, "Input should be a valid dictionary", told)
    kind = told.get("type")
    if told.get("disable_parallel_tool_use") is True:
        made["parallel_tool_calls"] = False
    if kind == "tool":
        name = told.get("name")
        if not isinstance(name, str) or not name:
            text = "Value error, tool_choice.name is required when type is tool"
            raise invalid("value_error", where, text, told)
        return {"type": "function", "function": {"name": name}}
    choice = _CHOICES.get(kind) if isinstance(kind, str) else None
    if choice is None:
        text = "Input should be auto, any, tool or none"
        raise invalid("literal_error", f"{where}.type", text, kind)
    return choice


def _sampling(body: dict[str, Any]) -> dict[str, Any]:
    """The checked settings of generation, in the upstream's names; `body` gets clean values."""
    if (limit := body.get("max_tokens")) is None:
        raise invalid("missing", "body.max_tokens", "Field required", body)
    made: dict[str, Any] = {"max_tokens": integer("max_tokens", limit)}
    if made["max_tokens"] < 1:
        text = "Value error, max_tokens must be positive"
        raise invalid("value_error", "body.max_tokens", text, limit)
    check_numbers(body)
    given = {key: value for key, value in body.items() if key not in _NOT_UPSTREAM}
    check_common(given)
    return made | _stops(body.get("stop_sequences")) | _output(body.get("output_config"))


def _stops(told: Any) -> dict[str, Any]:
    if told is None:
        return {}
    where = "body.stop_sequences"
    if not isinstance(told, list):
        raise invalid("list_type", where, "Input should be a valid list", told)
    for index, one in enumerate(told):
        if not isinstance(one, str):
            text = "Input should be a valid string"
            raise invalid("string_type", f"{where}.{index}", text, one)
    check_stop_texts(told)
    return {"stop": told} if told else {}


def _output(config: Any) -> dict[str, Any]:
    if not isinstance(config, dict):
        return {}
    made: dict[str, Any] = {}
    effort = config.get("effort")
    if isinstance(effort, str) and effort in _EFFORTS:
        made["reasoning_effort"] = _EFFORTS[effort]
    form = config.get("format")
    if isinstance(form, dict) and isinstance(schema := form.get("schema"), dict):
        named = {"name": "json_schema", "schema": schema}
        made["response_format"] = {"type": "json_schema", "json_schema": named}
    return made


MESSAGES = Dialect("messages", read_messages, MessagesWriter, refusal_body)
