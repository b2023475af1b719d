"""The three API forms of a question to an OpenAI-compatible server, without I/O."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ajet_swarm.common.text import content_text

Messages = Sequence[Mapping[str, Any]]

MAX_TOKENS = 1024
"""Token limit in the one form that requires one."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """One API form."""

    name: str
    path: str
    """Path below the address."""
    answer_name: str
    """Name of an answer."""
    body: Callable[[str, Messages], dict[str, Any]]
    """Builds the request from model and messages."""
    answer: Callable[[Any], str]
    """Extracts the text from the decoded response; raises LookupError, TypeError or
    AttributeError."""


def read(dialect: Dialect, data: bytes) -> str | None:
    """Return the text of an answer; None when it has another form."""
    try:
        return dialect.answer(msgspec.json.decode(data))
    except (msgspec.MsgspecError, LookupError, TypeError, AttributeError):
        return None


def _calls(calls: Any) -> str:
    """Return tool calls as text."""
    return json.dumps(calls, ensure_ascii=False) if calls else ""


def _chat(response: Any) -> str:
    message = response["choices"][0]["message"]
    return content_text(message.get("content")) or _calls(message.get("tool_calls"))


def _responses(response: Any) -> str:
    output = response["output"]
    texts = [
        part.get("text") or ""
        for item in output
        if item["type"] == "message"
        for part in item["content"]
    ]
    return "".join(texts) or _calls([item for item in output if item["type"] == "function_call"])


def _messages(response: Any) -> str:
    blocks = response["content"]
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    return "".join(texts) or _calls([block for block in blocks if block["type"] == "tool_use"])


def _messages_body(model: str, messages: Messages) -> dict[str, Any]:
    turns = [message for message in messages if message.get("role") != "system"]
    system = "\n\n".join(
        content_text(message.get("content"))
        for message in messages
        if message.get("role") == "system"
    )
    body: dict[str, Any] = {"model": model, "max_tokens": MAX_TOKENS, "messages": turns}
    return body | {"system": system} if system else body


CHAT = Dialect(
    "chat",
    "/chat/completions",
    "chat completion",
    lambda model, messages: {"model": model, "messages": messages},
    _chat,
)
RESPONSES = Dialect(
    "responses",
    "/responses",
    "response",
    lambda model, messages: {"model": model, "input": messages},
    _responses,
)
MESSAGES = Dialect("messages", "/messages", "message", _messages_body, _messages)
DIALECTS = {dialect.name: dialect for dialect in (CHAT, RESPONSES, MESSAGES)}
