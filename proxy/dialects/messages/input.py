"""Anthropic messages as chat messages: one turn of content blocks at a time. No I/O.

Follows what vLLM makes of them, so that the policy sees the prompt it would see behind a vLLM:
thinking becomes `reasoning`, tool results become tool messages in front of the user's own text,
and Claude Code's billing line, another in each request, is left out. A block of an unknown kind
counts for its text, or for nothing.
"""

import json
import secrets
from collections.abc import Mapping
from typing import Any

from ajet_swarm.common.text import content_text
from proxy.http.errors import invalid

Message = dict[str, Any]

BILLING = "x-anthropic-billing-header"
"""How a line begins that changes with each request and says nothing to a model."""
_ROLES = {"user": "user", "assistant": "assistant", "system": "system", "ctx": "user"} | {
    "msg": "user"
}
"""Claude Code has sent `ctx` and `msg` for parts of a user's turn."""


def chat_messages(body: Mapping[str, Any]) -> list[Message]:
    """The conversation of a Messages request in the form of chat completions.

    Args:
        body: Has `messages`, and may have `system`.

    Raises:
        ApiError: names the part that is wrong.
    """
    if "messages" not in body:
        raise invalid("missing", "body.messages", "Field required", body)
    told = body["messages"]
    if not isinstance(told, list):
        raise invalid("list_type", "body.messages", "Input should be a valid list", told)
    system = _system_text(body.get("system"), "body.system")
    messages: list[Message] = [{"role": "system", "content": system}] if system else []
    for index, message in enumerate(told):
        _add(message, f"body.messages.{index}", messages)
    return messages


def _add(message: Any, where: str, messages: list[Message]) -> None:
    role = _role(message, where)
    if "content" not in message:
        raise invalid("missing", f"{where}.content", "Field required", message)
    content = message["content"]
    where = f"{where}.content"
    if role == "system":
        if text := _system_text(content, where):
            messages.append({"role": "system", "content": text})
    elif isinstance(content, str):
        messages.append({"role": role, "content": content})
    elif not isinstance(content, list):
        raise invalid("string_type", where, "Input should be a valid string", content)
    elif role == "assistant":
        messages.append(_assistant(content, where))
    else:
        messages.extend(_user(content, where))


def _role(message: Any, where: str) -> str:
    if not isinstance(message, dict):
        raise invalid("dict_type", where, "Input should be a valid dictionary", message)
    role = message.get("role")
    if role is None:
        raise invalid("missing", f"{where}.role", "Field required", message)
    known = _ROLES.get(role) if isinstance(role, str) else None
    if known is None:
        text = "Input should be user, assistant or system"
        raise invalid("literal_error", f"{where}.role", text, role)
    return known


def _system_text(system: Any, where: str) -> str:
    if system is None:
        return ""
    if isinstance(system, str):
        return "" if system.startswith(BILLING) else system
    if not isinstance(system, list):
        raise invalid("string_type", where, "Input should be a valid string", system)
    texts = (_block_text(_block(one, where), where) for one in system)
    return "".join(text for text in texts if not text.startswith(BILLING))


def _assistant(blocks: list[Any], where: str) -> Message:
    parts: list[Message] = []
    thoughts: list[str] = []
    calls: list[Message] = []
    for index, one in enumerate(blocks):
        at = f"{where}.{index}"
        block = _block(one, at)
        match block.get("type"):
            case "thinking":
                thoughts.append(_string(block, "thinking", at))
            case "redacted_thinking":
                pass  # what it hides is for the service that made it
            case "tool_use":
                calls.append(_call(block, at))
            case _:
                if text := _block_text(block, at):
                    parts.append({"type": "text", "text": text})
    message: Message = {"role": "assistant", "content": _content(parts)}
    if thoughts:
        message["reasoning"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return message


def _user(blocks: list[Any], where: str) -> list[Message]:
    results: list[Message] = []
    seen: list[Message] = []
    parts: list[Message] = []
    for index, one in enumerate(blocks):
        at = f"{where}.{index}"
        block = _block(one, at)
        if block.get("type") == "tool_result":
            results.append(_result(block, at, seen))
        elif (part := _part(block, at)) is not None:
            parts.append(part)
    if seen or parts or not results:
        results.append({"role": "user", "content": _content(seen + parts)})
    return results


def _result(block: Message, where: str, seen: list[Message]) -> Message:
    """A tool's answer; its images go to `seen`, as a tool message holds text."""
    content = block.get("content")
    if content is None or isinstance(content, str):
        text = content or ""
    elif isinstance(content, list):
        text = "\n".join(_result_texts(content, f"{where}.content", seen))
    else:
        raise invalid("string_type", f"{where}.content", "Input should be a valid string", content)
    if not text and block.get("is_error") is True:
        text = "Error"  # with no text the failure would show nowhere
    return {"role": "tool", "tool_call_id": _string(block, "tool_use_id", where), "content": text}


def _result_texts(content: list[Any], where: str, seen: list[Message]) -> list[str]:
    texts = []
    for one in content:
        block = {"type": "text", "text": one} if isinstance(one, str) else _block(one, where)
        if block.get("type") == "tool_reference":
            texts.append(_string(block, "tool_name", where) or _string(block, "name", where))
            continue
        part = _part(block, where)
        if part is None:
            continue
        if part["type"] == "text":
            texts.append(part["text"])
        else:
            seen.append(part)
    return texts


def _part(block: Message, where: str) -> Message | None:
    """One part of a user's content; None for a block that has nothing to show."""
    source = block.get("source")
    if block.get("type") == "image":
        url = _url(source) if isinstance(source, dict) else ""
        return {"type": "image_url", "image_url": {"url": url}} if url else None
    text = _block_text(block, where)
    return {"type": "text", "text": text} if text else None


def _url(source: Mapping[str, Any]) -> str:
    if source.get("type") == "url":
        url = source.get("url")
        return url if isinstance(url, str) else ""
    data, kind = source.get("data"), source.get("media_type", "image/jpeg")
    if not isinstance(data, str) or not isinstance(kind, str) or not data:
        return ""
    return f"data:{kind};base64,{data}"


def _content(parts: list[Message]) -> str | list[Message]:
    if not parts:
        return ""
    only = parts[0]
    return only["text"] if len(parts) == 1 and only["type"] == "text" else parts


def _call(block: Message, where: str) -> Message:
    given = block.get("input")
    if given is None:
        given = {}
    if not isinstance(given, dict):
        text = "Input should be a valid dictionary"
        raise invalid("dict_type", f"{where}.input", text, given)
    try:
        arguments = json.dumps(given, ensure_ascii=False)
    except RecursionError:
        raise invalid("dict_type", f"{where}.input", "Input is nested too deeply", {}) from None
    return {
        "id": _string(block, "id", where) or f"chatcmpl-tool-{secrets.token_hex(8)}",
        "type": "function",
        "function": {"name": _string(block, "name", where), "arguments": arguments},
    }


def _block(one: Any, where: str) -> Message:
    if not isinstance(one, dict):
        raise invalid("dict_type", where, "Input should be a valid dictionary", one)
    return one


def _block_text(block: Message, where: str) -> str:
    """The text of a block: its own, or that of the document or search result it carries."""
    source = block.get("source")
    match block.get("type"):
        case "document" if isinstance(source, dict):
            if source.get("type") == "content":
                return content_text(source.get("content"))
            return _string(source, "data", where) if source.get("type") == "text" else ""
        case "search_result":
            told = (_string(block, "title", where), _string(block, "source", where))
            return "\n".join(filter(None, (*told, content_text(block.get("content")))))
    return _string(block, "text", where)


def _string(block: Mapping[str, Any], name: str, where: str) -> str:
    value = block.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        text = "Input should be a valid string"
        raise invalid("string_type", f"{where}.{name}", text, value)
    return value
