"""Parser of a chat completion that arrives as server-sent events; no I/O.

Real servers emulate streams: they send the whole answer in three chunks; newer ones first send
comments that keep the connection alive. An error merely ends the stream (protocol section 5), so a
stream without a finish reason and `[DONE]` has failed.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from ajet_swarm.api.outcomes import OVERFLOW, ChatAnswer, chat_answer, read_json
from ajet_swarm.common.text import content_text
from ajet_swarm.http.interface import Response
from ajet_swarm.protocol.errors import ChatError, ChatErrorKind
from ajet_swarm.runtime import SYSTEM, Chance

OnDelta = Callable[[dict[str, Any]], None]
"""Called with one delta of choice 0: `reasoning`, `content`, or `tool_calls` with one call.

The first delta of a call has its index, id, type and name, later ones its index and a piece of its
arguments.
"""

FRAME: Final = 384
"""Bytes of an event around its delta, which are not kept: ids, the model, empty fields."""
OBJECT: Final = 128
"""Bytes that an event or a line takes in memory at least."""
CALL: Final = 2048
"""Bytes that a tool call takes at least."""
_TEXTS: Final = {
    "content": "content",
    "reasoning": "reasoning",
    "reasoning_content": "reasoning",
}
"""Field of a delta that has text -> its name for `OnDelta`."""
_DROPPED: Final = frozenset({"choices", "object", "usage", "error"})
_encode = msgspec.json.Encoder().encode


class EventSplitter:
    """Splitter of a byte stream into the data of events; drops comments, names and ids."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._data: list[bytes] = []

    @property
    def held(self) -> int:
        """Bytes of the event that is not complete yet."""
        return len(self._rest) + sum(map(len, self._data)) + OBJECT * len(self._data)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the data of the events that `data` completes."""
        seen = len(self._rest)
        self._rest += data
        end = self._rest.rfind(b"\n", seen) + 1
        if not end:
            return []
        lines = bytes(self._rest[:end])
        del self._rest[:end]
        events = []
        for raw in lines.split(b"\n")[:-1]:
            line = raw.removesuffix(b"\r")
            if not line:
                if self._data:
                    events.append(b"\n".join(self._data))
                    self._data.clear()
            elif line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
        return events


class _PartialToolCall:
    """The received part of a tool call."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.announced = False
        """Its first delta has been emitted."""

    def whole(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": "".join(self.arguments)}
        return {"id": self.id, "type": "function", "function": function}


class ChatStream:
    """Accumulator of one streamed completion.

    Deltas are held back until there is text to show: neither white space nor the beginning of an
    overflow message is passed on alone.

    Args:
        on_delta: See `OnDelta`.
        where: The address, for errors.
        chance: Source of ids of tool calls without one.
    """

    def __init__(self, on_delta: OnDelta, where: str = "", chance: Chance = SYSTEM.chance) -> None:
        self.done = False
        """`[DONE]` has arrived."""
        self._on_delta = on_delta
        self._where = where
        self._chance = chance
        self._events = EventSplitter()
        self._kept = 0
        self._held: list[dict[str, Any]] | None = []
        self._top: dict[str, Any] = {}
        self._usage: Any = None
        self._choice: dict[str, Any] = {}
        """`finish_reason`, `stop_reason` and other fields of the choice that are sent once."""
        self._message: dict[str, Any] = {}
        self._texts: dict[str, list[str]] = {"content": []}
        """Field of the message -> its parts: the content, and the reasoning under its name."""
        self._calls: list[_PartialToolCall] = []
        self._logprobs: dict[str, list[Any]] = {}
        self._token_ids: list[int] = []

    @property
    def held(self) -> int:
        """Approximate bytes in memory."""
        return self._kept + self._events.held

    def clear(self) -> None:
        """Forget everything; call nothing else afterwards."""
        self.__dict__.clear()

    def feed(self, data: bytes) -> None:
        """Parse bytes of the body.

        Raises:
            ChatError: an error event, or an event that is not a chat chunk.
        """
        for event in self._events.feed(data):
            if self.done:
                return
            if event == b"[DONE]":
                self.done = True
            else:
                self._chunk(event)

    def finish(self) -> ChatAnswer:
        """Return the whole answer; call it once the body has ended or `done` is set.

        Raises:
            ChatError: the stream ended too early, or its text reports an overflow.
        """
        if not (self.done and self._choice.get("finish_reason")):
            raise ChatError(ChatErrorKind.BROKEN, "the stream ended too early", where=self._where)
        for call in self._calls:
            if call.announced and not call.arguments:
                self._add_arguments(call, "{}")
        parsed = self._completion()
        answer = chat_answer(Response(200, {}, _encode(parsed)), self._where)
        self._flush()
        return answer

    # --- chunks --------------------------------------------------------------------------------

    def _chunk(self, event: bytes) -> None:
        self._kept += max(OBJECT, len(event) - FRAME)
        chunk = read_json(event)
        if not isinstance(chunk, dict):
            text = f"not a chat chunk: {event[:200].decode(errors='replace')}"
            raise ChatError(ChatErrorKind.UPSTREAM, text, where=self._where, status=200)
        choices = chunk.get("choices")
        if chunk.get("error") or not isinstance(choices, list):
            raise self._fault(chunk)
        for name, value in chunk.items():
            if value is not None and name not in _DROPPED:
                self._top[name] = value
        if isinstance(chunk.get("usage"), dict):
            self._usage = chunk["usage"]
        for choice in choices:
            if isinstance(choice, dict) and choice.get("index", 0) == 0:
                self._take(choice)

    def _fault(self, chunk: Mapping[str, Any]) -> ChatError:
        error = chunk.get("error") or chunk
        body = error if isinstance(error, dict) else {"message": str(error)}
        code = body.get("code") or body.get("status_code")
        status = code if isinstance(code, int) else 500
        try:
            chat_answer(Response(status if status >= 400 else 500, {}, _encode(body)), self._where)
        except ChatError as fault:
            return fault
        return ChatError(ChatErrorKind.UPSTREAM, "an error", where=self._where)

    def _take(self, choice: Mapping[str, Any]) -> None:
        for name, value in choice.items():
            if name == "logprobs" and isinstance(value, dict):
                for kind, items in value.items():
                    if isinstance(items, list):
                        self._logprobs.setdefault(kind, []).extend(items)
            elif name == "token_ids":
                self._token_ids += value if isinstance(value, list) else []
            elif name == "delta" and isinstance(value, dict):
                self._take_delta(value)
            elif name in ("delta", "logprobs"):
                continue
            elif value is not None or name not in self._choice:
                self._choice[name] = value

    def _take_delta(self, delta: Mapping[str, Any]) -> None:
        for name, value in delta.items():
            if name in _TEXTS and (text := content_text(value)):
                self._texts.setdefault(name, []).append(text)
                self._emit({_TEXTS[name]: text})
            elif name == "tool_calls" and isinstance(value, list):
                for call in value:
                    if isinstance(call, dict):
                        self._take_call(call)
            elif value and name not in (*_TEXTS, "tool_calls"):
                self._message[name] = value

    def _take_call(self, piece: Mapping[str, Any]) -> None:
        call = self._call_of(piece)
        function = piece.get("function")
        function = function if isinstance(function, dict) else {}
        arguments = function.get("arguments") or ""
        text = _encode(arguments).decode() if isinstance(arguments, dict) else str(arguments)
        call.id = call.id or str(piece.get("id") or "")
        call.name = call.name or str(function.get("name") or "")
        if call.name and not call.announced:
            call.announced = True
            call.id = call.id or f"chatcmpl-tool-{self._chance.token(8)}"
            head = {"id": call.id, "type": "function", "index": call.index}
            self._emit_call({**head, "function": {"name": call.name}})
            text = "".join(call.arguments) + text
            call.arguments.clear()
        if text:
            self._add_arguments(call, text)

    def _add_arguments(self, call: _PartialToolCall, text: str) -> None:
        call.arguments.append(text)
        if call.announced:
            self._emit_call({"index": call.index, "function": {"arguments": text}})

    def _call_of(self, piece: Mapping[str, Any]) -> _PartialToolCall:
        """Return the call of a piece; some servers send no index, or 0 for every call."""
        index, name = piece.get("index"), piece.get("id")
        if isinstance(index, int) and 0 <= index < len(self._calls):
            call = self._calls[index]
        elif index is None and self._calls and not name:
            call = self._calls[-1]
        else:
            return self._new_call()
        if name and call.id and call.id != name:
            same = [call for call in self._calls if call.id == name]
            return same[0] if same else self._new_call()
        return call

    def _new_call(self) -> _PartialToolCall:
        self._kept += CALL
        self._calls.append(_PartialToolCall(len(self._calls)))
        return self._calls[-1]

    # --- deltas --------------------------------------------------------------------------------

    def _emit_call(self, call: dict[str, Any]) -> None:
        self._emit({"content": None, "tool_calls": [call]})

    def _emit(self, delta: dict[str, Any]) -> None:
        if self._held is None:
            self._on_delta(delta)
            return
        self._held.append(delta)
        if "tool_calls" in delta or self._has_text():
            self._flush()

    def _has_text(self) -> bool:
        content = "".join(self._texts["content"])
        overflow = content.startswith(OVERFLOW) or OVERFLOW.startswith(content)
        texts = {**self._texts, "content": [] if overflow else [content]}
        return any(text.strip() for parts in texts.values() for text in parts)

    def _flush(self) -> None:
        held, self._held = self._held or [], None
        for delta in held:
            self._on_delta(delta)

    # --- the whole -----------------------------------------------------------------------------

    def _completion(self) -> dict[str, Any]:
        texts = {name: "".join(parts) or None for name, parts in self._texts.items()}
        message = {"role": "assistant", **self._message, **texts}
        if calls := [call.whole() for call in self._calls if call.announced]:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "logprobs": self._logprobs or None}
        if self._token_ids:
            choice["token_ids"] = self._token_ids
        return {
            **self._top,
            "object": "chat.completion",
            "choices": [{**self._choice, **choice}],
            "usage": self._usage,
        }
