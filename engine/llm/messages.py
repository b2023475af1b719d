"""Anthropic Messages form of a call: `/v1/messages` (protocol section 5.2).

Requests are converted to chat requests, answers back to messages. Images and documents are dropped,
as on the real server; there are no thinking blocks.
"""

import json
import uuid
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

from core.openai.forms import call_of, choice_of, result_of, tool_of
from engine.interface import Completion
from engine.llm.chat import (
    ChatRequest,
    Count,
    Mass,
    Temperature,
    sse_event,
    text_of,
    tool_calls,
    validate,
)
from engine.llm.sampling_fields import SamplingFields
from engine.server.lifecycle import EngineError

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class InputMessage(BaseModel):
    """One message of the conversation."""

    role: str = Field(min_length=1)
    content: str | list[dict[str, Any]]


class MessagesRequest(SamplingFields):
    """The request fields that are used."""

    messages: list[InputMessage] = Field(min_length=1)
    model: str | None = None
    system: str | list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    stream: bool | None = None
    max_tokens: Count | None = None
    temperature: Temperature | None = None
    top_p: Mass | None = None
    stop_sequences: list[str] | None = None

    def chat(self) -> ChatRequest:
        """Return the equivalent chat request.

        Raises:
            EngineError: 400, no readable message remains.
        """
        messages = [
            chat_message for message in self.messages for chat_message in _messages(message)
        ]
        if not messages:
            raise EngineError(400, "messages: none has text, a tool call or a tool result")
        if system := text_of(self.system):
            messages.insert(0, {"role": "system", "content": system})
        return validate(
            ChatRequest,
            {
                **self.model_dump(include={"model", "stream", "temperature", "top_p"}),
                **self.sampling_fields(),
                "messages": messages,
                "max_tokens": self.max_tokens,
                "stop": self.stop_sequences,
                "tools": [_tool(tool) for tool in self.tools or []] or None,
                "tool_choice": _choice(self.tool_choice or {}),
            },
        )


def _messages(message: InputMessage) -> list[dict[str, Any]]:
    """Return one message as chat messages: tool results come before the text beside them."""
    if message.role == "system":
        return []
    blocks = message.content
    text = text_of(blocks)
    if isinstance(blocks, str):
        return [{"role": _role(message), "content": text}]
    if _role(message) == "assistant":
        calls = [_call(block) for block in blocks if block.get("type") == "tool_use"]
        turn: dict[str, Any] = {"role": "assistant", "content": text}
        if calls:
            turn["tool_calls"] = calls
        return [turn] if text or calls else []
    results = [
        result_of(str(block.get("tool_use_id", "")), text_of(block.get("content")))
        for block in blocks
        if block.get("type") == "tool_result"
    ]
    return [*results, {"role": "user", "content": text}] if text else results


def _role(message: InputMessage) -> str:
    return "assistant" if message.role == "assistant" else "user"


def _call(block: Mapping[str, Any]) -> dict[str, Any]:
    arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
    return call_of(str(block.get("id", "")), str(block.get("name", "")), arguments)


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    return tool_of(tool.get("name"), {**tool, "parameters": tool.get("input_schema")})


def _choice(choice: Mapping[str, Any]) -> Any:
    kind = choice.get("type")
    if kind == "tool":
        return choice_of(choice.get("name"))
    return "required" if kind == "any" else kind


class MessagesEncoder:
    """Encoder of one answer as a message, in one piece or as events.

    Args:
        model: The policy's name.
        requested: Model name in the request, echoed.
    """

    format = "messages"

    def __init__(self, model: str, requested: str | None) -> None:
        self._model = requested or model
        self._id = f"msg_{uuid.uuid4().hex}"
        self._block_open = False

    def whole(self, completion: Completion) -> dict[str, Any]:
        """Return the answer as one object."""
        calls = [
            {
                "type": "tool_use",
                "id": call["id"].replace("call_", "toolu_"),
                "name": call["function"]["name"],
                "input": _parsed(call["function"]["arguments"]),
            }
            for call in tool_calls(completion)
        ]
        text = [{"type": "text", "text": completion.text}] if completion.text or not calls else []
        return {
            **self._shell(),
            "content": [*text, *calls],
            "stop_reason": _stop_reason(completion),
            "stop_sequence": completion.stop_reason,
            "usage": {
                "input_tokens": len(completion.prompt_tokens),
                "output_tokens": len(completion.tokens),
            },
            "ajetc": {"truncated": completion.truncated, "step": completion.step},
        }

    def opening(self) -> bytes:
        """Return the start of the message."""
        start = {"type": "message_start", "message": self._shell()}
        return _event(start) + _event({"type": "ping"})

    def piece(self, text: str) -> bytes:
        """Return the event for a piece of text; the first one opens its block."""
        return self._open_block() + _delta(0, {"type": "text_delta", "text": text})

    def idle(self) -> bytes:
        """Return keep-alive events, also for clients that ignore a ping."""
        return _event({"type": "ping"}) + self.piece("")

    def closing(self, completion: Completion, whole: Mapping[str, Any]) -> bytes:
        """Close the open block, then return tool calls, stop reason and end."""
        events = b""
        if self._block_open or whole["content"][0]["type"] == "text":
            events = self._open_block() + _event({"type": "content_block_stop", "index": 0})
        index = int(bool(events))
        for block in whole["content"]:
            if block["type"] == "tool_use":
                events += _call_events(index, block)
                index += 1
        delta = {name: whole[name] for name in ("stop_reason", "stop_sequence")}
        events += _event({"type": "message_delta", "delta": delta, "usage": whole["usage"]})
        return events + _event({"type": "message_stop"})

    def failure(self, status: int, detail: str) -> bytes:
        """Return the event for an error in the middle of a stream."""
        return _event({"type": "error", "error": {"type": "api_error", "message": detail}})

    def compact_stream(self, completion: Completion, whole: Mapping[str, Any]) -> bytes:
        """Return the whole answer as the real server streams it: one delta per block."""
        text = self.piece(completion.text) if completion.text else b""
        return self.opening() + text + self.closing(completion, whole)

    def _open_block(self) -> bytes:
        if self._block_open:
            return b""
        self._block_open = True
        return _start(0, {"type": "text", "text": ""})

    def _shell(self) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},
        }


def _stop_reason(completion: Completion) -> str:
    if completion.stop_reason is not None:
        return "stop_sequence"
    return _STOP_REASONS.get(completion.finish_reason, "end_turn")


def _call_events(index: int, block: Mapping[str, Any]) -> bytes:
    arguments = json.dumps(block["input"], ensure_ascii=False)
    delta = {"type": "input_json_delta", "partial_json": arguments}
    stop = _event({"type": "content_block_stop", "index": index})
    return _start(index, {**block, "input": {}}) + _delta(index, delta) + stop


def _start(index: int, block: Mapping[str, Any]) -> bytes:
    return _event({"type": "content_block_start", "index": index, "content_block": block})


def _delta(index: int, delta: Mapping[str, Any]) -> bytes:
    return _event({"type": "content_block_delta", "index": index, "delta": delta})


def _event(data: Mapping[str, Any]) -> bytes:
    return sse_event(data, data["type"])


def _parsed(arguments: str) -> Any:
    try:
        value = json.loads(arguments)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
