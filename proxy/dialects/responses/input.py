"""The input items of a Responses request as the messages of a chat completion. No I/O.

- What one assistant turn was told in (a reasoning item, a message, calls) is one message again, so
  that templates take it: its `reasoning`, `content` and `tool_calls`.
- `instructions` and the system and developer messages that lead are one system message. A developer
  message further on is the user's: templates of open models know no such role, and those that allow
  a system message at the start only would refuse the whole request.
- Outputs of calls are `tool` messages. Calls of tools that run at the client (`local_shell_call`,
  `shell_call`, ...) become calls with their fields as arguments if their output is there as well;
  those that ran at a server (`web_search_call`, ...) and items of unknown types are left out.
- An `item_reference` is the item that was told under that id; one that is not kept is refused.
"""

import json
from collections.abc import Mapping
from typing import Any

from ajet_swarm.common.text import content_text
from proxy.dialects.agent_notes import query_of
from proxy.dialects.responses.store import ResponseStore
from proxy.dialects.responses.tools import custom_arguments, flat_name
from proxy.http.errors import ApiError, invalid

Message = dict[str, Any]

_TEXTS = frozenset({"input_text", "output_text", "text", "reasoning_text", "summary_text"})
_LEADING = ("system", "developer")
_UNFINISHED = ("in_progress", "incomplete")
_NOT_ARGUMENTS = frozenset({"type", "id", "call_id", "status", "caller", "async", "namespace"})


class ConversationReader:
    """Messages in the making, item after item.

    Attributes:
        messages: In the form of chat completions.
        query: Text of the last message of the user; None without one.
        unfinished: The last item is a part of an answer that is to be continued.
    """

    def __init__(
        self, instructions: str | None, given: str | list[Any], kept: ResponseStore
    ) -> None:
        """Read the items.

        Args:
            instructions: What goes first.
            given: The `input` field.
            kept: Items told earlier.

        Raises:
            ApiError: an item is wrong, or refers to one that is not kept.
        """
        self.messages: list[Message] = []
        self.query: str | None = None
        self.unfinished = False
        self._system = [instructions] if instructions else []
        self._turn: Message | None = None
        self._kept = kept
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        self._answered = {_call_id(item) for item in items if _is_output(item)}
        for index, item in enumerate(items):
            self._add(item, f"body.input.{index}")
        self._put_system()
        for message in self.messages:
            if message["content"] is None and "tool_calls" not in message:
                message["content"] = ""  # nothing but reasoning

    def _add(self, item: Any, where: str) -> None:
        if not isinstance(item, dict):
            raise invalid("dict_type", where, "Input should be a valid dictionary", item)
        kind = item.get("type")
        self.unfinished = False
        if kind == "message" or (kind is None and "role" in item):
            self._message(item, where)
        elif kind == "reasoning":
            self._reasoning(item)
        elif kind == "item_reference":
            self._add(self._told(item), where)
        elif _is_output(item):
            content = _content(item.get("output"), f"{where}.output")
            self._put({"role": "tool", "tool_call_id": _call_id(item), "content": content})
        elif isinstance(kind, str) and kind.endswith("_call"):
            self._call(item, kind)

    def _told(self, reference: Mapping[str, Any]) -> dict[str, Any]:
        if found := self._kept.get(reference.get("id")):
            return found
        text = (
            f"Item with id '{str(reference.get('id'))[:100]}' not found: items are kept for a "
            "while only. Send the items themselves, as clients do with `store` set to false."
        )
        raise ApiError(404, None, text, kind="invalid_request_error", param="input")

    # --- messages --------------------------------------------------------------------------------

    def _message(self, item: Mapping[str, Any], where: str) -> None:
        role = item.get("role")
        if not isinstance(role, str):
            raise invalid("missing", f"{where}.role", "Field required", item)
        given = item.get("content")
        if given is not None and not isinstance(given, str | list):
            text = "Input should be a valid string"
            raise invalid("string_type", f"{where}.content", text, given)
        if role == "assistant":
            self._said(_joined(given))
            self.unfinished = item.get("status") in _UNFINISHED
            return
        content = _content(given, f"{where}.content")
        if role in _LEADING and not self.messages and _is_text(content):
            self._system.append(content_text(content))
            return
        if role == "user":
            self.query = query_of(content_text(content), self.query)
        self._put({"role": "user" if role == "developer" else role, "content": content})

    def _put(self, message: Message) -> None:
        self._put_system()
        self._turn = message if message["role"] == "assistant" else None
        self.messages.append(message)

    def _put_system(self) -> None:
        if self._system:
            told = "\n\n".join(self._system)
            self._system = []
            self.messages.append({"role": "system", "content": told})

    # --- the turns of the assistant -------------------------------------------------------------

    def _reasoning(self, item: Mapping[str, Any]) -> None:
        text = _joined(item.get("content")) or _joined(item.get("summary"), "\n")
        if not text:
            return  # encrypted, by another server
        turn = self._turn
        if turn is None or (turn["content"] is not None and "tool_calls" not in turn):
            self._put({"role": "assistant", "content": None, "reasoning": text})
        else:
            turn["reasoning"] = "\n".join(filter(None, (turn.get("reasoning"), text)))
        self.unfinished = item.get("status") in _UNFINISHED

    def _said(self, text: str) -> None:
        turn = self._turn
        if turn is None or (turn["content"] is not None and "tool_calls" not in turn):
            self._put({"role": "assistant", "content": text})
        else:
            before = turn["content"]
            turn["content"] = text if before is None else f"{before}\n{text}"

    def _call(self, item: Mapping[str, Any], kind: str) -> None:
        named, call_id = item.get("name"), _call_id(item)
        name = named if isinstance(named, str) else ""
        if kind == "function_call":
            arguments = _text(item.get("arguments"))
        elif kind == "custom_tool_call":
            arguments = custom_arguments(_text(item.get("input")))
        elif call_id in self._answered:
            name = name or kind.removesuffix("_call")
            arguments = _text({k: v for k, v in item.items() if k not in _NOT_ARGUMENTS})
        else:
            return
        name = flat_name(item.get("namespace"), name)
        call = {
            "id": call_id,
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
        if self._turn is None:
            self._put({"role": "assistant", "content": None, "tool_calls": [call]})
        else:
            self._turn.setdefault("tool_calls", []).append(call)


def _is_output(item: Any) -> bool:
    kind = item.get("type") if isinstance(item, dict) else None
    return isinstance(kind, str) and kind.endswith("_call_output")


def _call_id(item: Mapping[str, Any]) -> str:
    return str(item.get("call_id") or item.get("id") or "")


# --- content ------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    """A string as it is; else its JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _joined(content: Any, between: str = "") -> str:
    """All text of a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (_part_text(part) for part in parts)
    return between.join(text for text in texts if text)


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return ""
    text = part.get("text") or part.get("refusal")
    return text if isinstance(text, str) else ""


def _content(given: Any, where: str) -> str | list[Any]:
    """The content of a message: text if it is one text, else the parts in chat form.

    Raises:
        ApiError: names the part that is wrong.
    """
    if not isinstance(given, list):
        return _text(given)
    parts = [
        _part(part, f"{where}.{index}")
        for index, part in enumerate(given)
        if isinstance(part, dict | str)
    ]
    if len(parts) == 1 and parts[0].get("type") == "text":
        return str(parts[0]["text"])
    return parts or ""


def _is_text(content: str | list[Any]) -> bool:
    return isinstance(content, str) or all(part.get("type") == "text" for part in content)


def _part(part: dict[str, Any] | str, where: str) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    kind = part.get("type")
    if kind is None:
        kind = "text"
    if not isinstance(kind, str):
        raise invalid("string_type", f"{where}.type", "Input should be a valid string", kind)
    if kind in _TEXTS or kind == "refusal":
        return {"type": "text", "text": _part_text(part)}
    if kind == "input_image":
        return _image(part)
    if kind == "input_file":
        known = {key: part[key] for key in ("file_data", "file_id", "filename") if key in part}
        return {"type": "file", "file": known}
    return part


def _image(part: Mapping[str, Any]) -> dict[str, Any]:
    url = part.get("image_url")
    if isinstance(url, dict):  # as in chat completions
        return {"type": "image_url", "image_url": url}
    if not isinstance(url, str):
        text = "Images are taken by `image_url` only: this server stores no files."
        raise ApiError(400, None, text, kind="invalid_request_error", param="input")
    detail = part.get("detail")
    told = {"url": url, "detail": detail} if isinstance(detail, str) else {"url": url}
    return {"type": "image_url", "image_url": told}
