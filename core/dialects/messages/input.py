"""Convert Anthropic messages to chat messages. No I/O.

The conversion matches vLLM's, so that the policy gets the same prompt as behind a vLLM: thinking
becomes `reasoning`, tool results become tool messages in front of the user's own text, and Claude
Code's billing line, which differs in each request, is dropped. Of a block of an unknown type only
the text is used. A PDF or file that has no form in chat completions is refused in the newest turn;
in earlier ones it is left out, so that a conversation from another server continues. Tools that run
on Anthropic's servers are left out.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from ajet_swarm.common.text import content_text
from core.dialects.errors import invalid
from core.dialects.request import new_call_id
from core.dialects.validation import bad_value, typed
from core.openai.forms import (
    Message,
    call_of,
    choice_of,
    content_of,
    image_part,
    result_of,
    text_part,
    tool_of,
)

BILLING = "x-anthropic-billing-header"
"""Prefix of a system text that changes with each request and means nothing to a model."""
_ROLES = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    # some versions of Claude Code send these for parts of a user's turn
    "ctx": "user",
    "msg": "user",
}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_FILES = ("image", "document", "container_upload")


class _AnthropicBlock(msgspec.Struct):
    """A block of any type, as vLLM declares it."""

    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    tool_name: str | None = None
    title: str | None = None
    source: Any = None
    content: Any = None
    is_error: Any = None


class _Turn(msgspec.Struct):
    role: str
    content: str | list[_AnthropicBlock]


class _AnthropicBody(msgspec.Struct):
    messages: list[_Turn]
    system: str | list[_AnthropicBlock] = ""


class _PromptFields(msgspec.Struct):
    model: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None


class _Tool(msgspec.Struct):
    name: str
    input_schema: dict[str, Any]


class _Result(msgspec.Struct):
    content: str | list[str | _AnthropicBlock] | None = None


def read_prompt(body: Mapping[str, Any], *, refuse_files: bool = True) -> dict[str, Any]:
    """Return the fields of a chat completion that determine the prompt of a Messages request.

    Args:
        body: The request's body with `messages` and, optionally, `system`, `tools`, `tool_choice`.
        refuse_files: Refuse a file that has no form in chat completions, else leave it out.

    Raises:
        ApiError: A part of the body is invalid; the error names its path.
    """
    shape = typed(body, _PromptFields, "body")
    messages = _chat_messages(body, refuse_files)
    if not messages:
        raise bad_value("messages must contain at least one message.", "messages")
    fields: dict[str, Any] = {"messages": messages}
    tools = [_tool(tool, f"body.tools.{index}") for index, tool in enumerate(shape.tools or ())]
    choice = None if shape.tool_choice is None else _choice(shape.tool_choice)
    if any(tools):
        fields["tools"] = [tool for tool in tools if tool is not None]
        fields["tool_choice"] = choice or "auto"
        if shape.tool_choice and shape.tool_choice.get("disable_parallel_tool_use") is True:
            fields["parallel_tool_calls"] = False
    elif shape.tools is None and choice not in (None, "none", "auto"):
        raise bad_value("When using `tool_choice`, `tools` must be set.", "tool_choice")
    return fields


def _chat_messages(body: Mapping[str, Any], refuse_files: bool) -> list[Message]:
    named = {key: body[key] for key in ("messages", "system") if body.get(key) is not None}
    conversation = typed(named, _AnthropicBody, "body")
    turns = conversation.messages
    messages = _system(conversation.system)
    answered = [index for index, turn in enumerate(turns[:-1]) if turn.role == "assistant"]
    for index, turn in enumerate(turns):
        where = f"body.messages.{index}"
        if (role := _ROLES.get(turn.role)) is None:
            text = "Input should be user, assistant or system"
            raise invalid("literal_error", f"{where}.role", text, turn.role)
        if refuse_files and (not answered or index > answered[-1]):
            _refuse_files(turn.content, f"{where}.content")
        if role == "system":
            messages += _system(turn.content)
        elif isinstance(turn.content, str):
            messages.append({"role": role, "content": turn.content})
        elif role == "assistant":
            messages.append(_assistant(turn.content, f"{where}.content"))
        else:
            messages += _user(turn.content, f"{where}.content")
    return messages


def _refuse_files(content: Any, where: str) -> None:
    """Raise ApiError if a content, or a tool's result in it, has a file that would be lost."""
    for index, block in enumerate(content if isinstance(content, list) else ()):
        path = f"{where}.{index}"
        if isinstance(block, _AnthropicBlock) and block.type == "tool_result":
            _refuse_files(_result_content(block, path), f"{path}.content")
        elif isinstance(block, _AnthropicBlock) and block.type in _FILES and not _is_usable(block):
            text = f"{block.type} blocks are supported only as text, or as images by data or URL"
            raise invalid("value_error", path, f"Value error, {text}", msgspec.to_builtins(block))


def _is_usable(block: _AnthropicBlock) -> bool:
    source = block.source
    if isinstance(source, dict) and source.get("type") in ("text", "content"):
        parts = source.get("content")
        return not isinstance(parts, list) or not any(map(_is_image, parts))
    return _part(block) is not None


def _is_image(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "image"


def _system(content: str | list[_AnthropicBlock]) -> list[Message]:
    """Return the system message; none for an empty one."""
    texts = [content] if isinstance(content, str) else map(_text, content)
    text = "".join(text for text in texts if not text.startswith(BILLING))
    return [{"role": "system", "content": text}] if text else []


def _assistant(blocks: list[_AnthropicBlock], where: str) -> Message:
    parts: list[Message] = []
    thoughts: list[str] = []
    calls: list[Message] = []
    for index, block in enumerate(blocks):
        if block.type == "thinking":
            thoughts.append(block.thinking or "")
        elif block.type == "tool_use":
            calls.append(_call(block, f"{where}.{index}"))
        # redacted thinking is encrypted; only the service that created it can read it
        elif block.type != "redacted_thinking" and (text := _text(block)):
            parts.append(text_part(text))
    message: Message = {"role": "assistant", "content": content_of(parts)}
    if thoughts:
        message["reasoning"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return message


def _call(block: _AnthropicBlock, where: str) -> Message:
    arguments = json.dumps(block.input or {}, ensure_ascii=False)
    return call_of(block.id or new_call_id(where, arguments), block.name or "", arguments)


def _user(blocks: list[_AnthropicBlock], where: str) -> list[Message]:
    results: list[Message] = []
    images: list[Message] = []
    parts: list[Message] = []
    for index, block in enumerate(blocks):
        if block.type == "tool_result":
            content = _result_content(block, f"{where}.{index}")
            if isinstance(content, list):  # a tool message holds only text
                content = "\n".join(_result_texts(content, images))
            if not content and block.is_error is True:
                content = "Error"  # without a text the model would not see the failure
            results.append(result_of(block.tool_use_id or "", content or ""))
        elif (part := _part(block)) is not None:
            parts.append(part)
    if images or parts or not results:
        results.append({"role": "user", "content": content_of(images + parts)})
    return results


def _result_content(block: _AnthropicBlock, where: str) -> Any:
    """Return the content of a tool result, with its blocks."""
    return typed({"content": block.content}, _Result, where).content


def _result_texts(content: Iterable[str | _AnthropicBlock], images: list[Message]) -> Iterator[str]:
    """Yield the texts of a tool result; append its images to `images`."""
    for block in content:
        if isinstance(block, str):
            yield block
        elif block.type == "tool_reference":
            yield block.tool_name or block.name or ""
        elif (part := _part(block)) is not None:
            if part["type"] == "text":
                yield part["text"]
            else:
                images.append(part)


def _part(block: _AnthropicBlock) -> Message | None:
    """Convert one block of a user's content; None for a block without text or image."""
    if block.type == "image":
        url = _url(block.source) if isinstance(block.source, dict) else ""
        return image_part(url) if url else None
    text = _text(block)
    return text_part(text) if text else None


def _url(source: Mapping[str, Any]) -> str:
    if source.get("type") == "url":
        url = source.get("url")
        return url if isinstance(url, str) else ""
    data, kind = source.get("data"), source.get("media_type", "image/jpeg")
    if not isinstance(data, str) or not isinstance(kind, str) or not data:
        return ""
    return f"data:{kind};base64,{data}"


def _text(block: _AnthropicBlock) -> str:
    """Return the text of a block: its own, or that of its document or search result."""
    source = block.source
    if block.type == "document" and isinstance(source, dict):
        if source.get("type") == "content":
            return content_text(source.get("content"))
        data = source.get("data") if source.get("type") == "text" else None
        return data if isinstance(data, str) else ""
    if block.type == "search_result":
        web = source if isinstance(source, str) else ""
        return "\n".join(filter(None, (block.title, web, content_text(block.content))))
    return block.text or ""


# --- tools --------------------------------------------------------------------------------------


def _tool(tool: dict[str, Any], where: str) -> dict[str, Any] | None:
    """Convert a tool of the client; None for one that runs on Anthropic's servers."""
    if tool.get("input_schema") is None and tool.get("type") not in (None, "custom"):
        return None
    own = typed(tool, _Tool, where)
    schema = own.input_schema
    description, strict = tool.get("description"), tool.get("strict")
    fields = {
        "description": description if isinstance(description, str) else None,
        "parameters": schema if "type" in schema else {**schema, "type": "object"},
        "strict": strict if isinstance(strict, bool) else None,
    }
    return tool_of(own.name, fields)


def _choice(value: dict[str, Any]) -> str | dict[str, Any]:
    kind = value.get("type")
    if kind == "tool":
        name = value.get("name")
        if not isinstance(name, str) or not name:
            text = "Value error, tool_choice.name is required when type is tool"
            raise invalid("value_error", "body.tool_choice", text, value)
        return choice_of(name)
    choice = _CHOICES.get(kind) if isinstance(kind, str) else None
    if choice is None:
        text = "Input should be auto, any, tool or none"
        raise invalid("literal_error", "body.tool_choice.type", text, kind)
    return choice
