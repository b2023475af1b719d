"""Forms of a call besides chat completions: `/v1/messages` and `/v1/responses` (protocol sections
5.1 and 5.2).

`core.dialects` reads their requests and writes their answers. What the real server cannot read is
dropped: content other than text, system messages after the first, reasoning, and tools and items of
other kinds than functions and their calls. Nothing is stored between calls.
"""

import json
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from ajet_swarm.runtime import SYSTEM
from core.dialects.errors import ApiError
from core.dialects.messages.input import read_prompt
from core.dialects.messages.writer import MessagesWriter, with_valid_arguments
from core.dialects.request import DialectRequest, PublicAnswer, call_deltas
from core.dialects.responses.input import ConversationReader, ResponseStore
from core.dialects.responses.tools import choose, read_tools
from core.dialects.responses.writer import ResponseWriter, response_fields
from core.dialects.validation import typed
from core.dialects.writer import Writer
from engine.interface import Completion
from engine.llm.chat import (
    KEEP_ALIVE,
    ChatRequest,
    extension_fields,
    read_chat,
    text_of,
    tool_calls,
    usage_of,
)
from engine.server.lifecycle import EngineError

_NO_ITEMS = ResponseStore()
_ROLES = {"developer": "system", "system": "system", "assistant": "assistant", "tool": "tool"}


def read_messages(body: Mapping[str, Any]) -> ChatRequest:
    """Return a Messages request as a chat request.

    Raises:
        ApiError: A field is invalid.
        EngineError: 400, no readable message remains.
    """
    prompt = read_prompt(body, refuse_files=False)
    messages = [
        message
        for message in prompt["messages"]
        if message["role"] != "system" and _has_content(message)
    ]
    if not messages:
        raise EngineError(400, "messages: none has text, a tool call or a tool result")
    if system := text_of(body.get("system")):
        messages.insert(0, {"role": "system", "content": system})
    unset = {"tools": None, "tool_choice": None}
    converted = {**unset, **prompt, "messages": messages, "stop": body.get("stop_sequences")}
    return read_chat({**body, **converted})


def _has_content(message: Mapping[str, Any]) -> bool:
    return message["role"] == "tool" or "tool_calls" in message or bool(text_of(message["content"]))


class _Responses(msgspec.Struct):
    input: str | list[str | dict[str, Any]]
    instructions: str | None = None
    include: list[Any] | None = None
    tools: list[dict[str, Any]] | None = None


def read_responses(body: Mapping[str, Any]) -> ChatRequest:
    """Return a Responses request as a chat request.

    Raises:
        ApiError: A field is invalid.
        EngineError: 400, no readable message remains.
    """
    fields = typed(body, _Responses, "body")
    items = [fields.input] if isinstance(fields.input, str) else fields.input
    readable = [message for item in items if (message := _readable(item)) is not None]
    if not readable:
        raise EngineError(400, "input: contains no readable message")
    tools = read_tools({"tools": _functions(body)})
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") in ("auto", "none", "required"):
        choice = choice["type"]
    conversation = ConversationReader(fields.instructions, readable, _NO_ITEMS)
    converted = {
        "messages": conversation.messages,
        "tools": tools.chat or None,
        "tool_choice": choose(choice, tools),
        "max_tokens": body.get("max_output_tokens"),
    }
    return read_chat({**body, **converted})


def _functions(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tools that the model may call."""
    return [tool for tool in body.get("tools") or () if tool.get("type") == "function"]


def _readable(item: str | dict[str, Any]) -> dict[str, Any] | None:
    """Return an input item with what the real server reads of it; None for nothing."""
    if isinstance(item, str):
        item = {"role": "user", "content": item}
    kind = item.get("type", "message" if "role" in item else None)
    if kind in ("function_call", "function_call_output"):
        return item
    text = text_of(item.get("content")) if kind == "message" else ""
    role = _ROLES.get(str(item.get("role")), "user")
    return {"role": role, "content": text} if text else None


class BlockEncoder(ABC):
    """Encoder of one answer in the blocks of messages or responses, in one piece or as events."""

    format = ""
    call_prefix: ClassVar[str]
    """Beginning of the ids of tool calls."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._call_id = f"{self.call_prefix}_{uuid.uuid4().hex}"
        self._has_text = False

    def whole(self, completion: Completion) -> dict[str, Any]:
        """Return the answer as one object; after a stream the one that it sent."""
        result: dict[str, Any] = json.loads(self._writer.body([self._answer(completion)]))
        return result

    def opening(self) -> bytes:
        """Return the first events."""
        return self._writer.opening()

    def piece(self, text: str) -> bytes:
        """Return the events of a piece of text."""
        self._has_text = True
        return self._writer.delta_events({"content": text})

    @abstractmethod
    def idle(self) -> bytes:
        """Return a keep-alive."""

    def closing(self, completion: Completion) -> bytes:
        """Return the last events, with the tool calls."""
        answer = self._answer(completion)
        calls = map(self._writer.delta_events, call_deltas(answer)) if self._has_text else ()
        return b"".join(calls) + self._writer.finish(answer)

    def failure(self, status: int, detail: str) -> bytes:
        """Return the event for an error in the middle of a stream."""
        return self._writer.error(ApiError(500, None, detail))

    def compact_stream(self, completion: Completion) -> bytes:
        """Return the whole answer as the real server streams it: one delta per block."""
        text = self.piece(completion.text) if completion.text else b""
        return self.opening() + text + self.closing(completion)

    def _answer(self, completion: Completion) -> PublicAnswer:
        return PublicAnswer(
            content=completion.text or None,
            reasoning=None,
            tool_calls=tool_calls(completion, self._call_id),
            finish_reason=completion.finish_reason,
            stop_reason=completion.stop_reason,
            logprobs=None,
            token_ids=None,
            usage=usage_of(completion),
            extension=extension_fields(completion),
        )


class MessagesEncoder(BlockEncoder):
    """Encoder of the answer to a Messages request; see `engine.routes.llm.Form.encoder`."""

    format, call_prefix = "messages", "toolu"

    def __init__(self, model: str, request: ChatRequest, body: Mapping[str, Any]) -> None:
        self._messages = MessagesWriter(_request("messages"), request.model or model, 0)
        super().__init__(self._messages)

    def opening(self) -> bytes:
        """Return the start of the message."""
        return super().opening() + self._messages.keepalive()

    def idle(self) -> bytes:
        """Return keep-alive events, also for clients that ignore a ping."""
        return self._messages.keepalive() + self._messages.empty_text()

    def whole(self, completion: Completion) -> dict[str, Any]:
        """Return the message, in which null stands for no stop text."""
        return {"stop_sequence": None, **super().whole(completion)}

    def _answer(self, completion: Completion) -> PublicAnswer:
        return with_valid_arguments(super()._answer(completion))


class ResponsesEncoder(BlockEncoder):
    """Encoder of the answer to a Responses request; see `engine.routes.llm.Form.encoder`."""

    format, call_prefix = "responses", "call"

    def __init__(self, model: str, request: ChatRequest, body: Mapping[str, Any]) -> None:
        tools = read_tools({"tools": _functions(body)})
        fields = response_fields({**body, "store": False}, tools, uuid.uuid4().hex)
        written = _request("responses", msgspec.structs.replace(fields, first_event=1))
        model, now = request.model or model, int(time.time())
        super().__init__(ResponseWriter(written, model, now, _NO_ITEMS, SYSTEM.chance))

    def idle(self) -> bytes:
        """Return a keep-alive comment."""
        return KEEP_ALIVE


def _request(form: str, extra: Any = None) -> DialectRequest:
    """Return a request of which nothing but `extra` changes the answer."""
    name = uuid.uuid4().hex
    return DialectRequest(
        dialect=form, request_id=name, body={}, messages=[], key=name, extra=extra
    )
