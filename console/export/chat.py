"""Messages in the form of TRL's conversational datasets.

Source: TRL 1.16, `trl/data_utils.py` (`is_conversational`, `apply_chat_template`) and
`docs/source/dataset_formats.md`: a message has `role` and `content`; an assistant's `tool_calls`
are objects `{"type": "function", "function": {"name", "arguments"}}` whose `arguments` are an
object, not JSON text: several chat templates of TRL render text wrongly or refuse it. The column
`tools` is the JSON text of the list: `dpo_trainer.py`, `kto_trainer.py` and `sft_trainer.py` decode
it (`json.loads(tools) if isinstance(tools, str)`), and text keeps one type in all rows.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ajet_swarm.common.text import content_text
from console.export.json_text import JsonText
from console.export.records import ExportedCandidate, ExportedGroup

ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
"""Role of a request -> role in the file."""

CALL = {
    "id": "string",
    "type": "string",
    "function": {"name": "string", "arguments": "json"},
}
"""Types of a tool call."""
MESSAGES = [
    {
        "role": "string",
        "content": "string",
        "reasoning_content": "string",
        "tool_calls": [CALL],
        "tool_call_id": "string",
        "name": "string",
    }
]
"""Types of a column of messages, see `console.export.format.ExportFormat.features`."""
TEXT_MESSAGES = [
    {**MESSAGES[0], "tool_calls": [{**CALL, "function": {"name": "string", "arguments": "string"}}]}
]
"""The same with the arguments of tool calls as JSON text."""
PROVENANCE = {
    "group": "string",
    "candidates": ["int64"],
    "weights": "string",
    "reward_version": "string",
    "mode": "string",
    "blind": "bool",
    "rater": "string",
    "time": "string",
}
"""Types of the column `provenance`."""


class Unsuitable(Exception):
    """A group or an answer has no row in the file; the text is the cause, for the card."""


def prompt_messages(record: ExportedGroup) -> list[dict[str, Any]]:
    """Return the messages of the request.

    Raises:
        Unsuitable: A message has no such form, or there is none.
    """
    messages = [chat_message(message) for message in record.prompt]
    if not messages:
        raise Unsuitable("request without messages")
    return messages


def answer_message(candidate: ExportedCandidate) -> dict[str, Any]:
    """Return the message of a candidate.

    Raises:
        Unsuitable: It has neither text nor tool calls, or a call has faulty arguments.
    """
    message = chat_message({**candidate.message, "role": "assistant"})
    if not (message.get("content") or message.get("tool_calls")):
        raise Unsuitable("answer without text")
    return message


def corrected_message(text: str) -> dict[str, Any]:
    """Return the message of a correction by a person."""
    return {"role": "assistant", "content": text}


def tools_text(tools: Sequence[Mapping[str, Any]]) -> JsonText:
    """Return the column `tools`: JSON text of the list, `null` for a request without tools.

    An empty list would make some templates describe tools (`apply_chat_template` of TRL).
    """
    return JsonText(list(tools) or None)


def with_text_arguments(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message of `chat_message` with the arguments of its tool calls as JSON text."""
    row = dict(message)
    if calls := message.get("tool_calls"):
        row["tool_calls"] = [
            {
                **call,
                "function": {
                    **call["function"],
                    "arguments": JsonText(call["function"]["arguments"]),
                },
            }
            for call in calls
        ]
    return row


def chat_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message of a request or an answer without empty fields; `content` always exists.

    `content` is text, None beside tool calls only.

    Raises:
        Unsuitable: It has no such form.
    """
    role = ROLES.get(str(message.get("role")))
    if role is None:
        raise Unsuitable("message with another role than system, user, assistant and tool")
    text = content_text(message.get("content"))
    row: dict[str, Any] = {"role": role, "content": text}
    if role == "assistant":
        thought = message.get("reasoning_content") or message.get("reasoning")
        if thought:
            row["reasoning_content"] = content_text(thought)
        if calls := message.get("tool_calls"):
            row["tool_calls"] = [_call(call) for call in calls]
            row["content"] = text or None
    for name in ("tool_call_id", "name"):
        if isinstance(value := message.get(name), str) and value:
            row[name] = value
    return row


def _call(call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise Unsuitable("tool call without a name")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments) if arguments.strip() else {}
        except (msgspec.MsgspecError, RecursionError):
            arguments = None
    if not isinstance(arguments, dict):
        raise Unsuitable("tool call whose arguments are no JSON object")
    row: dict[str, Any] = {
        "type": "function",
        "function": {"name": function["name"], "arguments": arguments},
    }
    if isinstance(call.get("id"), str):
        row["id"] = call["id"]
    return row
