"""Messages of a row in the form of chat completions, whichever of the usual layouts it has."""

from collections.abc import Mapping
from typing import Any

import msgspec

from ajet_swarm.common.text import content_text
from ajet_swarm.data.records import RowError

_ROLES = {"human": "user", "gpt": "assistant"} | {
    role: role for role in ("system", "developer", "user", "assistant", "tool", "function")
}
_FIELDS = {"role", "content", "name", "tool_calls", "tool_call_id"} | {
    "function_call",
    "reasoning_content",
    "reasoning",
}
"""Fields that are sent; a dataset's own, such as an address of the user, are not."""
_MEDIA = "only blocks that contain it, such as `image_url`, are sent"


def conversation(name: str, value: Any) -> list[dict[str, Any]]:
    """Return the messages of a column.

    Raises:
        RowError: it is no list of messages, or one cannot be sent.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise RowError(f"`{name}` is not a list")
    messages = [_message(name, item) for item in value]
    _number_calls(messages)
    return messages


def asked(messages: list[dict[str, Any]]) -> str:
    """Return the text of the last user message; empty when the conversation awaits no answer."""
    if not messages or messages[-1]["role"] not in ("user", "tool", "function"):
        return ""
    contents = [message["content"] for message in messages if message["role"] == "user"]
    if not contents:
        return ""
    return contents[-1] if isinstance(contents[-1], str) else content_text(contents[-1]).strip()


def function_tools(name: str, value: Any) -> tuple[dict[str, Any], ...]:
    """Return the tools of a column, each as `{"type": "function", "function": {...}}`.

    Raises:
        RowError: it is no list of functions.
    """
    if not value or value == "null":
        return ()
    tools: list[dict[str, Any]] = []
    for tool in value if isinstance(value, list) else [value]:
        whole = tool if isinstance(tool, dict) and "function" in tool else {"function": tool}
        function = whole["function"]
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise RowError(f"`{name}` is not a list of functions; `--columns tools=` ignores it")
        tools.append({"type": "function", **_filled(whole)})
    return tuple(tools)


def _message(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, dict) and "from" in value:
        value = {"role": value["from"], "content": value.get("value")}
    if not (isinstance(value, dict) and isinstance(value.get("role"), str)):
        raise RowError(f"`{name}` contains an item that is not a message")
    if (role := _ROLES.get(value["role"])) is None:
        raise RowError(f"`{name}` has a message of an unknown role: `{value['role'][:40]}`")
    fields = {key: field for key, field in _filled(value).items() if key in _FIELDS}
    message = {"content": None, **fields, "role": role}
    content = message["content"]
    if isinstance(content, list):
        blocks = [_block(name, block) for block in content]
        is_plain = len(blocks) == 1 and isinstance(blocks[0].get("text"), str)
        message["content"] = blocks[0]["text"] if is_plain else blocks
    elif not (isinstance(content, str) or (content is None and message.get("tool_calls"))):
        raise RowError(f"`{name}` has a message whose content is not text")
    if calls := message.pop("tool_calls", None):
        calls = calls if isinstance(calls, list) else [calls]
        message["tool_calls"] = [_call(name, call) for call in calls]
    return message


def _filled(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object without the empty fields that a table adds to each."""
    return {key: field for key, field in value.items() if field is not None}


def _block(name: str, block: Any) -> Any:
    if not isinstance(block, dict):
        raise RowError(f"`{name}` has a message with a block that is no object")
    block = _filled(block)
    kind = str(block.get("type"))
    part = block.get(kind)
    has_content = isinstance(part, str if kind == "text" else dict)
    if not has_content or (kind == "image_url" and not isinstance(part.get("url"), str)):
        raise RowError(f"`{name}` has a block `{kind}` without its content: {_MEDIA}")
    return block


def _call(name: str, call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not (isinstance(function, dict) and isinstance(function.get("name"), str)):
        raise RowError(f"`{name}` has a tool call without a function")
    text = function.get("arguments") or {}
    if not isinstance(text, str):
        text = msgspec.json.encode(text).decode()
    try:
        arguments = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise RowError(f"`{name}` has a tool call whose arguments are no JSON object")
    function = {"name": function["name"], "arguments": text}
    return {"type": "function", **_filled(call), "function": function}


def _number_calls(messages: list[dict[str, Any]]) -> None:
    """Give ids to tool calls without one, and to their results in the same order."""
    open_ids: list[str] = []
    for number, message in enumerate(messages):
        for place, call in enumerate(message.get("tool_calls", ())):
            open_ids.append(call.setdefault("id", f"call_{number}_{place}"))
        if message["role"] == "tool":
            answered = message.setdefault("tool_call_id", open_ids[0] if open_ids else "call_0")
            if answered in open_ids:
                open_ids.remove(answered)
