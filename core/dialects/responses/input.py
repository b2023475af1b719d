"""Convert the input items of a Responses request to the messages of a chat completion. No I/O.

- The items of one assistant turn (a reasoning item, a message, calls) become one message with
  `reasoning`, `content` and `tool_calls`, which chat templates expect.
- `instructions` and the leading system and developer messages become one system message. A later
  developer message becomes a user message: templates of open models have no such role, and those
  that allow a system message only at the start would refuse the whole request.
- Outputs of calls become `tool` messages. Calls of tools that run at the client
  (`local_shell_call`, `shell_call`, ...) become calls with their fields as arguments if the input
  also has their output; calls that ran at a server (`web_search_call`, ...) and items of unknown
  types are dropped.
- An `item_reference` is replaced by the stored item; a reference to an unknown item is refused.

Store of output items, to which clients refer by id instead of sending them back. No I/O.

The AI SDK's default provider does so unless configured with `store: false`: the second request of a
tool loop then holds only the ids of messages and calls. Responses themselves are not stored.
"""

import contextlib
import json
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import msgspec

from ajet_swarm.common.text import content_text
from core.dialects.responses.tools import custom_arguments, flat_name
from core.dialects.validation import typed, unsupported
from core.openai.forms import Message, call_of, content_of, image_part, result_of, text_part

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

MOST_BYTES = 16 << 20


class ResponseStore:
    """The most recently used output items, up to a total size in bytes."""

    def __init__(self, max_bytes: int = MOST_BYTES) -> None:
        """Start empty.

        Args:
            max_bytes: Limit of the items' total size, in bytes of JSON.
        """
        self._max_bytes = max_bytes
        self._bytes = 0
        self._items: OrderedDict[str, bytes] = OrderedDict()

    def put(self, item: dict[str, Any]) -> None:
        """Store an item that has an `id`; drop the least recently used ones beyond the limit."""
        encoded = _encode(item)
        self._bytes += len(encoded) - len(self._items.pop(item["id"], b""))
        self._items[item["id"]] = encoded
        while self._bytes > self._max_bytes:
            _, oldest = self._items.popitem(last=False)
            self._bytes -= len(oldest)

    def get(self, item_id: Any) -> dict[str, Any] | None:
        """Return the item with that id; None if it is unknown or dropped.

        Thread-safe, unlike `put`, because large requests are parsed in threads.
        """
        encoded = self._items.get(item_id) if isinstance(item_id, str) else None
        if encoded is None:
            return None
        with contextlib.suppress(KeyError):  # dropped in the meantime
            self._items.move_to_end(item_id)
        item: dict[str, Any] = _decode(encoded)
        return item


_TEXTS = frozenset(
    ["input_text", "output_text", "text", "reasoning_text", "summary_text", "refusal"]
)
_LEADING = ("system", "developer")
_UNFINISHED = ("in_progress", "incomplete")
_NOT_ARGUMENTS = frozenset({"type", "id", "call_id", "status", "caller", "async", "namespace"})


class _MessageItem(msgspec.Struct):
    role: str
    content: str | list[Any] | None = None


class _ContentPart(msgspec.Struct):
    type: str | None = None


class ConversationReader:
    """Converter of input items to chat messages.

    Attributes:
        messages: The messages, in the form of chat completions.
        user_texts: The texts of the user's messages.
        unfinished: Whether the last item is the start of an answer that the model shall continue.
    """

    def __init__(
        self, instructions: str | None, input_: str | list[Any], store: ResponseStore
    ) -> None:
        """Convert all items.

        Args:
            instructions: The `instructions` field; the start of the system message.
            input_: The `input` field.
            store: The output items of earlier responses.

        Raises:
            ApiError: An item is invalid, or refers to an item that is not stored.
        """
        self.messages: list[Message] = []
        self.user_texts: list[str] = []
        self.unfinished = False
        self._system = [instructions] if instructions else []
        self._turn: Message | None = None
        self._store = store
        items = [{"role": "user", "content": input_}] if isinstance(input_, str) else input_
        self._answered = {_call_id(item) for item in items if _is_output(item)}
        for index, item in enumerate(items):
            self._add_item(item, f"body.input.{index}")
        self._append_system()
        for message in self.messages:
            if message["content"] is None and "tool_calls" not in message:
                message["content"] = ""  # a message with reasoning only

    def _add_item(self, item: Any, where: str) -> None:
        kind = typed(item, dict[str, Any], where).get("type")
        self.unfinished = False
        if kind == "message" or (kind is None and "role" in item):
            self._add_message(item, where)
        elif kind == "reasoning":
            self._add_reasoning(item)
        elif kind == "item_reference":
            self._add_item(self._referenced_item(item), where)
        elif _is_output(item):
            content = _content(item.get("output"), f"{where}.output")
            self._append(result_of(_call_id(item), content))
        elif isinstance(kind, str) and kind.endswith("_call"):
            self._add_call(item, kind)

    def _referenced_item(self, reference: Mapping[str, Any]) -> dict[str, Any]:
        if item := self._store.get(reference.get("id")):
            return item
        text = (
            f"Item with id '{str(reference.get('id'))[:100]}' not found: items are stored for a "
            "limited time. Send the items themselves, as clients do with `store` set to false."
        )
        raise unsupported(text, "input", 404)

    # --- messages --------------------------------------------------------------------------------

    def _add_message(self, item: Mapping[str, Any], where: str) -> None:
        message = typed(item, _MessageItem, where)
        role, raw = message.role, message.content
        if role == "assistant":
            self._add_answer_text(_joined(raw))
            self.unfinished = item.get("status") in _UNFINISHED
            return
        content = _content(raw, f"{where}.content")
        if role in _LEADING and not self.messages and _is_text(content):
            self._system.append(content_text(content))
            return
        if role == "user":
            self.user_texts.append(content_text(content))
        self._append({"role": "user" if role == "developer" else role, "content": content})

    def _append(self, message: Message) -> None:
        self._append_system()
        self._turn = message if message["role"] == "assistant" else None
        self.messages.append(message)

    def _append_system(self) -> None:
        if self._system:
            text = "\n\n".join(self._system)
            self._system = []
            self.messages.append({"role": "system", "content": text})

    # --- the turns of the assistant -------------------------------------------------------------

    def _add_reasoning(self, item: Mapping[str, Any]) -> None:
        text = _joined(item.get("content")) or _joined(item.get("summary"), "\n")
        if not text:
            return  # encrypted by another server
        turn = self._open_turn()
        turn["reasoning"] = "\n".join(filter(None, (turn.get("reasoning"), text)))
        self.unfinished = item.get("status") in _UNFINISHED

    def _add_answer_text(self, text: str) -> None:
        turn = self._open_turn()
        before = turn["content"]
        turn["content"] = text if before is None else f"{before}\n{text}"

    def _open_turn(self) -> Message:
        """Return the assistant's turn that takes a further text, or a new one."""
        turn = self._turn
        if turn is None or (turn["content"] is not None and "tool_calls" not in turn):
            turn = {"role": "assistant", "content": None}
            self._append(turn)
        return turn

    def _add_call(self, item: Mapping[str, Any], kind: str) -> None:
        value, call_id = item.get("name"), _call_id(item)
        name = value if isinstance(value, str) else ""
        if kind == "function_call":
            arguments = _text(item.get("arguments"))
        elif kind == "custom_tool_call":
            arguments = custom_arguments(_text(item.get("input")))
        elif call_id in self._answered:
            name = name or kind.removesuffix("_call")
            arguments = _text({k: v for k, v in item.items() if k not in _NOT_ARGUMENTS})
        else:
            return
        call = call_of(call_id, flat_name(item.get("namespace"), name), arguments)
        if self._turn is None:
            self._append({"role": "assistant", "content": None})
        self.messages[-1].setdefault("tool_calls", []).append(call)


def _is_output(item: Any) -> bool:
    kind = item.get("type") if isinstance(item, dict) else None
    return isinstance(kind, str) and kind.endswith("_call_output")


def _call_id(item: Mapping[str, Any]) -> str:
    return str(item.get("call_id") or item.get("id") or "")


# --- content ------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    """Return a string unchanged, None as "", any other value as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _joined(content: Any, between: str = "") -> str:
    """Join the texts of a list of parts."""
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


def _content(raw: Any, where: str) -> str | list[Any]:
    """Return the content of a message: a string if it is one text, else a list of chat parts.

    Raises:
        ApiError: A part is invalid; the error names its path.
    """
    if not isinstance(raw, list):
        return _text(raw)
    parts = [
        _part(part, f"{where}.{index}")
        for index, part in enumerate(raw)
        if isinstance(part, dict | str)
    ]
    return content_of(parts)


def _is_text(content: str | list[Any]) -> bool:
    return isinstance(content, str) or all(part.get("type") == "text" for part in content)


def _part(part: dict[str, Any] | str, where: str) -> Message:
    if isinstance(part, str):
        return text_part(part)
    kind = typed(part, _ContentPart, where).type or "text"
    if kind in _TEXTS:
        return text_part(_part_text(part))
    if kind == "input_image":
        return _image(part)
    if kind == "input_file":
        if part.get("file_data") is None and part.get("file_id") is None:
            text = (
                "Files are accepted by `file_data` only: this server fetches and stores no files."
            )
            raise unsupported(text, "input")
        known = {key: part[key] for key in ("file_data", "file_id", "filename") if key in part}
        return {"type": "file", "file": known}
    return part


def _image(part: Mapping[str, Any]) -> Message:
    url, detail = part.get("image_url"), part.get("detail")
    if isinstance(url, dict):  # as in chat completions
        return {"type": "image_url", "image_url": url}
    if not isinstance(url, str):
        text = "Images are accepted by `image_url` only: this server stores no files."
        raise unsupported(text, "input")
    return image_part(url, **({"detail": detail} if isinstance(detail, str) else {}))
