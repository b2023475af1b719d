"""Messages of a chat completion in the form of the GenAI conventions.

Source: `gen-ai-input-messages.json` and `gen-ai-output-messages.json` beside the documents that
`proxy.telemetry.spans` names. A span carries them as JSON text.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ajet_swarm.common.text import content_text


def input_messages(messages: Iterable[Any]) -> str:
    """Return the messages of a request as JSON; those that are no objects are left out."""
    return _json([_message(message) for message in messages if isinstance(message, Mapping)])


def output_messages(message: Mapping[str, Any], finish_reason: str) -> str:
    """Return the one message of an answer as JSON."""
    return _json([{**_message(message, "assistant"), "finish_reason": finish_reason or "stop"}])


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _message(message: Mapping[str, Any], default: str = "user") -> dict[str, Any]:
    role = str(message.get("role") or default)
    text = content_text(message.get("content"))
    if role == "tool":
        call_id = message.get("tool_call_id")
        return {
            "role": role,
            "parts": [{"type": "tool_call_response", "id": call_id, "response": text}],
        }
    parts: list[dict[str, Any]] = []
    reasoning = content_text(message.get("reasoning") or message.get("reasoning_content"))
    if reasoning:
        parts.append({"type": "reasoning", "content": reasoning})
    if text:
        parts.append({"type": "text", "content": text})
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            parts.append(
                {
                    "type": "tool_call",
                    "id": call.get("id"),
                    "name": str(function.get("name") or ""),
                    "arguments": _arguments(function.get("arguments")),
                }
            )
    return {"role": role, "parts": parts}


def _arguments(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return value
