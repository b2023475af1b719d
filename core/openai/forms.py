"""The form of chat completions: parts of messages, calls and their outputs, tools.

The reasoning that a model writes before its answer, where the server does not separate it.

The templates of many models contain the beginning of the thought, so that only its end is written.
"""

import re
from collections.abc import Mapping
from typing import Any

THOUGHT_END = re.compile(r"</(?:think|thinking|thought|reasoning)\s*>|\[/THINK\]", re.IGNORECASE)
"""The end of a thought; what precedes it is not part of the answer."""


Message = dict[str, Any]


def text_part(text: str) -> Message:
    """Return a part of a message with a text."""
    return {"type": "text", "text": text}


def image_part(url: str, **more: Any) -> Message:
    """Return a part of a message with an image."""
    return {"type": "image_url", "image_url": {"url": url, **more}}


def content_of(parts: list[Message]) -> str | list[Message]:
    """Return the content with these parts: a string if they are one text or none."""
    if not parts:
        return ""
    only = parts[0]
    return str(only["text"]) if len(parts) == 1 and only["type"] == "text" else parts


def call_of(call_id: str, name: str, arguments: str) -> Message:
    """Return a call in a message of the assistant."""
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def result_of(call_id: str, content: str | list[Message]) -> Message:
    """Return the message with the output of a call."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def tool_of(name: Any, fields: Mapping[str, Any]) -> Message:
    """Return a tool that the model may call, with those fields of a function that are known.

    Args:
        name: Its name; None leaves it out.
        fields: Any of `description`, `parameters` and `strict`, and others.
    """
    known = ("description", "parameters", "strict")
    function = {key: fields[key] for key in known if fields.get(key) is not None}
    named = {} if name is None else {"name": name}
    return {"type": "function", "function": {**named, **function}}


def choice_of(name: Any) -> Message:
    """Return the choice of one function."""
    return {"type": "function", "function": {"name": name}}
