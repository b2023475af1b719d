"""The three ways in which a question is put to an OpenAI-compatible server, without I/O."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ajet_swarm.common.text import content_text

Messages = Sequence[Mapping[str, Any]]

MOST_TOKENS = 1024
"""What is asked for in the one dialect that wants a number."""


@dataclass(frozen=True, slots=True)
class Form:
    """One of them."""

    name: str
    path: str
    """Below the address."""
    called: str
    """What an answer is."""
    body: Callable[[str, Messages], dict[str, Any]]
    """Model and messages -> request."""
    answer: Callable[[Any], str]
    """What came back -> its text; raises LookupError, TypeError or AttributeError."""


def read(form: Form, data: bytes) -> str | None:
    """The text of an answer; None when it is none."""
    try:
        return form.answer(msgspec.json.decode(data))
    except (msgspec.MsgspecError, LookupError, TypeError, AttributeError):
        return None


def _calls(calls: Any) -> str:
    """An answer that only calls tools, as text."""
    return json.dumps(calls, ensure_ascii=False) if calls else ""


def _chat(found: Any) -> str:
    message = found["choices"][0]["message"]
    return content_text(message.get("content")) or _calls(message.get("tool_calls"))


def _responses(found: Any) -> str:
    output = found["output"]
    texts = [
        part.get("text") or ""
        for item in output
        if item["type"] == "message"
        for part in item["content"]
    ]
    return "".join(texts) or _calls([one for one in output if one["type"] == "function_call"])


def _messages(found: Any) -> str:
    blocks = found["content"]
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    return "".join(texts) or _calls([one for one in blocks if one["type"] == "tool_use"])


def _messages_body(model: str, messages: Messages) -> dict[str, Any]:
    said = [one for one in messages if one.get("role") != "system"]
    system = "\n\n".join(
        content_text(one.get("content")) for one in messages if one.get("role") == "system"
    )
    body: dict[str, Any] = {"model": model, "max_tokens": MOST_TOKENS, "messages": said}
    return body | {"system": system} if system else body


CHAT = Form(
    "chat",
    "/chat/completions",
    "chat completion",
    lambda model, messages: {"model": model, "messages": messages},
    _chat,
)
RESPONSES = Form(
    "responses",
    "/responses",
    "response",
    lambda model, messages: {"model": model, "input": messages},
    _responses,
)
MESSAGES = Form("messages", "/messages", "message", _messages_body, _messages)
FORMS = {form.name: form for form in (CHAT, RESPONSES, MESSAGES)}
