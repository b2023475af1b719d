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
    body: Callable[[str, Messages, Messages], dict[str, Any]]
    """Builds the request from model, messages and tools in the form of chat completions."""
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


def _blocks(content: Any, text: str, image: Callable[[str], dict[str, Any]]) -> Any:
    """Return a message's content with its text and images in the form of another API."""
    if not isinstance(content, list):
        return content or ""
    return [
        image(block["image_url"]["url"])
        if block.get("type") == "image_url"
        else {"type": text, "text": block["text"]}
        if block.get("type") == "text"
        else block
        for block in content
    ]


def _chat_body(model: str, messages: Messages, tools: Messages) -> dict[str, Any]:
    return {"model": model, "messages": messages} | ({"tools": tools} if tools else {})


def _responses_body(model: str, messages: Messages, tools: Messages) -> dict[str, Any]:
    items: list[dict[str, Any]] = []
    for message in messages:
        role, content = message.get("role"), message.get("content")
        if role == "tool":
            output = {"call_id": message.get("tool_call_id"), "output": content_text(content)}
            items.append({"type": "function_call_output", **output})
            continue
        calls = message.get("tool_calls") or ()
        if content or not calls:
            kind = "output_text" if role == "assistant" else "input_text"
            parts = _blocks(content, kind, lambda url: {"type": "input_image", "image_url": url})
            items.append({"role": role, "content": parts})
        items += [
            {"type": "function_call", "call_id": call.get("id"), **call["function"]}
            for call in calls
        ]
    flat = [{"type": "function", **tool["function"]} for tool in tools]
    return {"model": model, "input": items} | ({"tools": flat} if flat else {})


def _messages_body(model: str, messages: Messages, tools: Messages) -> dict[str, Any]:
    system = "\n\n".join(
        content_text(message.get("content"))
        for message in messages
        if message.get("role") == "system"
    )
    turns = [_anthropic(message) for message in messages if message.get("role") != "system"]
    body: dict[str, Any] = {"model": model, "max_tokens": MAX_TOKENS, "messages": turns}
    if tools:
        body["tools"] = [
            {
                "name": tool["function"]["name"],
                "description": tool["function"].get("description") or "",
                "input_schema": tool["function"].get("parameters") or {"type": "object"},
            }
            for tool in tools
        ]
    return body | {"system": system} if system else body


def _anthropic(message: Mapping[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    if message.get("role") == "tool":
        result = {"tool_use_id": message.get("tool_call_id"), "content": content_text(content)}
        return {"role": "user", "content": [{"type": "tool_result", **result}]}
    content = _blocks(content, "text", _anthropic_image)
    if calls := message.get("tool_calls"):
        text = content_text(message.get("content"))
        content = [{"type": "text", "text": text}] if text else []
        content += [
            {
                "type": "tool_use",
                "id": call.get("id"),
                "name": call["function"]["name"],
                "input": json.loads(call["function"]["arguments"] or "{}"),
            }
            for call in calls
        ]
    return {"role": message.get("role"), "content": content}


def _anthropic_image(url: str) -> dict[str, Any]:
    head, is_data, data = url.partition(";base64,")
    if not is_data:
        return {"type": "image", "source": {"type": "url", "url": url}}
    media_type = head.removeprefix("data:")
    source = {"type": "base64", "media_type": media_type, "data": data}
    return {"type": "image", "source": source}


CHAT = Dialect("chat", "/chat/completions", "chat completion", _chat_body, _chat)
RESPONSES = Dialect("responses", "/responses", "response", _responses_body, _responses)
MESSAGES = Dialect("messages", "/messages", "message", _messages_body, _messages)
DIALECTS = {dialect.name: dialect for dialect in (CHAT, RESPONSES, MESSAGES)}
