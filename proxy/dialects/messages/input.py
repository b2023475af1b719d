"""Convert Anthropic messages to chat messages. No I/O.

The conversion matches vLLM's, so that the policy gets the same prompt as behind a vLLM: thinking
becomes `reasoning`, tool results become tool messages in front of the user's own text, and Claude
Code's billing line, which differs in each request, is dropped. Of a block of an unknown type only
the text is used. A PDF or file that has no form in chat completions is refused in the newest turn;
in earlier ones it is left out, so that a conversation from another server continues.
"""

import json
from collections.abc import Mapping
from typing import Any

from ajet_swarm.common.text import content_text
from proxy.dialects.request import new_call_id
from proxy.http.errors import invalid

Message = dict[str, Any]

BILLING = "x-anthropic-billing-header"
"""Prefix of a system text that changes with each request and means nothing to a model."""
_ROLES = {"user": "user", "assistant": "assistant", "system": "system", "ctx": "user"} | {
    "msg": "user"
}
"""Some versions of Claude Code send `ctx` and `msg` for parts of a user's turn."""


def chat_messages(body: Mapping[str, Any]) -> list[Message]:
    """Return the conversation of a Messages request in the form of chat completions.

    Args:
        body: The request's body with `messages` and, optionally, `system`.

    Raises:
        ApiError: A message is invalid; the error names the path of the invalid part.
    """
    if "messages" not in body:
        raise invalid("missing", "body.messages", "Field required", body)
    items = body["messages"]
    if not isinstance(items, list):
        raise invalid("list_type", "body.messages", "Input should be a valid list", items)
    system = _system_text(body.get("system"), "body.system")
    messages: list[Message] = [{"role": "system", "content": system}] if system else []
    answered = [index for index, item in enumerate(items[:-1]) if _is_answer(item)]
    for index, message in enumerate(items):
        if not answered or index > answered[-1]:
            _refuse_files(message, f"body.messages.{index}")
        _add_message(message, f"body.messages.{index}", messages)
    return messages


def _is_answer(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") == "assistant"


def _is_usable(block: Message, where: str) -> bool:
    source = block.get("source")
    if isinstance(source, dict) and source.get("type") in ("text", "content"):
        parts = source.get("content")
        return not isinstance(parts, list) or not any(map(_is_image, parts))
    return _part(block, where) is not None


def _is_image(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "image"


def _refuse_files(message: Any, where: str) -> None:
    """Raise ApiError if a message, or a tool's result in it, has a file that would be lost."""
    content = message.get("content") if isinstance(message, dict) else None
    for index, block in enumerate(content if isinstance(content, list) else ()):
        path = f"{where}.content.{index}"
        if not isinstance(block, dict):
            continue
        if (kind := block.get("type")) == "tool_result":
            _refuse_files(block, path)
        elif kind in ("image", "document", "container_upload") and not _is_usable(block, path):
            text = f"{kind} blocks are supported only as text, or as images by data or URL"
            raise invalid("value_error", path, f"Value error, {text}", block)


def _add_message(message: Any, where: str, messages: list[Message]) -> None:
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
    texts = (_block_text(_block(block, where), where) for block in system)
    return "".join(text for text in texts if not text.startswith(BILLING))


def _assistant(blocks: list[Any], where: str) -> Message:
    parts: list[Message] = []
    thoughts: list[str] = []
    calls: list[Message] = []
    for index, raw in enumerate(blocks):
        path = f"{where}.{index}"
        block = _block(raw, path)
        match block.get("type"):
            case "thinking":
                thoughts.append(_string(block, "thinking", path))
            case "redacted_thinking":
                pass  # encrypted; only the service that created it can read it
            case "tool_use":
                calls.append(_call(block, path))
            case _:
                if text := _block_text(block, path):
                    parts.append({"type": "text", "text": text})
    message: Message = {"role": "assistant", "content": _content(parts)}
    if thoughts:
        message["reasoning"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return message


def _user(blocks: list[Any], where: str) -> list[Message]:
    results: list[Message] = []
    images: list[Message] = []
    parts: list[Message] = []
    for index, raw in enumerate(blocks):
        path = f"{where}.{index}"
        block = _block(raw, path)
        if block.get("type") == "tool_result":
            results.append(_result(block, path, images))
        elif (part := _part(block, path)) is not None:
            parts.append(part)
    if images or parts or not results:
        results.append({"role": "user", "content": _content(images + parts)})
    return results


def _result(block: Message, where: str, images: list[Message]) -> Message:
    """Convert a tool result; append its images to `images`, as a tool message holds only text."""
    content = block.get("content")
    if content is None or isinstance(content, str):
        text = content or ""
    elif isinstance(content, list):
        text = "\n".join(_result_texts(content, f"{where}.content", images))
    else:
        raise invalid("string_type", f"{where}.content", "Input should be a valid string", content)
    if not text and block.get("is_error") is True:
        text = "Error"  # without a text the model would not see the failure
    return {"role": "tool", "tool_call_id": _string(block, "tool_use_id", where), "content": text}


def _result_texts(content: list[Any], where: str, images: list[Message]) -> list[str]:
    texts = []
    for raw in content:
        block = {"type": "text", "text": raw} if isinstance(raw, str) else _block(raw, where)
        if block.get("type") == "tool_reference":
            texts.append(_string(block, "tool_name", where) or _string(block, "name", where))
            continue
        part = _part(block, where)
        if part is None:
            continue
        if part["type"] == "text":
            texts.append(part["text"])
        else:
            images.append(part)
    return texts


def _part(block: Message, where: str) -> Message | None:
    """Convert one block of a user's content; None for a block without text or image."""
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
    tool_input = block.get("input")
    if tool_input is None:
        tool_input = {}
    if not isinstance(tool_input, dict):
        text = "Input should be a valid dictionary"
        raise invalid("dict_type", f"{where}.input", text, tool_input)
    try:
        arguments = json.dumps(tool_input, ensure_ascii=False)
    except RecursionError:
        raise invalid("dict_type", f"{where}.input", "Input is nested too deeply", {}) from None
    return {
        "id": _string(block, "id", where) or new_call_id(where, arguments),
        "type": "function",
        "function": {"name": _string(block, "name", where), "arguments": arguments},
    }


def _block(value: Any, where: str) -> Message:
    if not isinstance(value, dict):
        raise invalid("dict_type", where, "Input should be a valid dictionary", value)
    return value


def _block_text(block: Message, where: str) -> str:
    """Return the text of a block: its own, or that of its document or search result."""
    source = block.get("source")
    match block.get("type"):
        case "document" if isinstance(source, dict):
            if source.get("type") == "content":
                return content_text(source.get("content"))
            return _string(source, "data", where) if source.get("type") == "text" else ""
        case "search_result":
            parts = (_string(block, "title", where), _string(block, "source", where))
            return "\n".join(filter(None, (*parts, content_text(block.get("content")))))
    return _string(block, "text", where)


def _string(block: Mapping[str, Any], name: str, where: str) -> str:
    value = block.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        text = "Input should be a valid string"
        raise invalid("string_type", f"{where}.{name}", text, value)
    return value
