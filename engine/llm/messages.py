"""The Messages form of a call: `/v1/messages` (protocol section 5.2).

Read into a chat request and told back as a message. Images and documents are dropped, as on the
real server; there are no thinking blocks.
"""

import json
import uuid
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

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
from engine.server.lifecycle import EngineError

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class InputMessage(BaseModel):
    """One message of the conversation."""

    role: str = Field(min_length=1)
    content: str | list[dict[str, Any]]


class MessagesRequest(BaseModel):
    """What of a request is read."""

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
        """The same as a chat request.

        Raises:
            Refused: 400, nothing is left to answer.
        """
        messages = [made for one in self.messages for made in _messages(one)]
        if not messages:
            raise EngineError(400, "messages: hold nothing this server can read")
        if system := text_of(self.system):
            messages.insert(0, {"role": "system", "content": system})
        return validate(
            ChatRequest,
            {
                **self.model_dump(include={"model", "stream", "temperature", "top_p"}),
                "messages": messages,
                "max_tokens": self.max_tokens,
                "stop": self.stop_sequences,
                "tools": [_tool(tool) for tool in self.tools or []] or None,
                "tool_choice": _choice(self.tool_choice or {}),
            },
        )


def _messages(spoken: InputMessage) -> list[dict[str, Any]]:
    """One message as chat messages: results of tools come before the text beside them."""
    if spoken.role == "system":
        return []
    blocks = spoken.content
    text = text_of(blocks)
    if isinstance(blocks, str):
        return [{"role": _role(spoken), "content": text}]
    if _role(spoken) == "assistant":
        calls = [_call(block) for block in blocks if block.get("type") == "tool_use"]
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if calls:
            message["tool_calls"] = calls
        return [message] if text or calls else []
    results = [
        {
            "role": "tool",
            "tool_call_id": str(block.get("tool_use_id", "")),
            "content": text_of(block.get("content")),
        }
        for block in blocks
        if block.get("type") == "tool_result"
    ]
    return [*results, {"role": "user", "content": text}] if text else results


def _role(spoken: InputMessage) -> str:
    return "assistant" if spoken.role == "assistant" else "user"


def _call(block: Mapping[str, Any]) -> dict[str, Any]:
    arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
    function = {"name": str(block.get("name", "")), "arguments": arguments}
    return {"id": str(block.get("id", "")), "type": "function", "function": function}


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = {
        "name": tool.get("name"),
        "description": tool.get("description"),
        "parameters": tool.get("input_schema"),
    }
    kept = {key: value for key, value in function.items() if value is not None}
    return {"type": "function", "function": kept}


def _choice(choice: Mapping[str, Any]) -> Any:
    kind = choice.get("type")
    if kind == "tool":
        return {"type": "function", "function": {"name": choice.get("name")}}
    return "required" if kind == "any" else kind


class MessagesEncoder:
    """One answer as a message, whole or as events.

    Args:
        model: The policy's name.
        asked: The name in the request, echoed.
    """

    format = "messages"

    def __init__(self, model: str, asked: str | None) -> None:
        self._model = asked or model
        self._id = f"msg_{uuid.uuid4().hex}"
        self._begun = False

    def whole(self, drawn: Completion) -> dict[str, Any]:
        """The answer as one object."""
        calls = [
            {
                "type": "tool_use",
                "id": call["id"].replace("call_", "toolu_"),
                "name": call["function"]["name"],
                "input": _parsed(call["function"]["arguments"]),
            }
            for call in tool_calls(drawn)
        ]
        text = [{"type": "text", "text": drawn.text}] if drawn.text or not calls else []
        return {
            **self._shell(),
            "content": [*text, *calls],
            "stop_reason": _stop_reason(drawn),
            "stop_sequence": drawn.stop_reason,
            "usage": {
                "input_tokens": len(drawn.prompt_tokens),
                "output_tokens": len(drawn.tokens),
            },
            "ajetc": {"truncated": drawn.truncated, "step": drawn.step},
        }

    def opening(self) -> bytes:
        """The message exists."""
        start = {"type": "message_start", "message": self._shell()}
        return _event(start) + _event({"type": "ping"})

    def piece(self, text: str) -> bytes:
        """A piece of the text; the first one opens its block."""
        return self._begin() + _delta(0, {"type": "text_delta", "text": text})

    def idle(self) -> bytes:
        """Shows that the connection lives, also to clients that do not count a ping."""
        return _event({"type": "ping"}) + self.piece("")

    def closing(self, drawn: Completion, whole: Mapping[str, Any]) -> bytes:
        """Ends what was opened, tells the calls and why it stopped."""
        told = b""
        if self._begun or whole["content"][0]["type"] == "text":
            told = self._begin() + _event({"type": "content_block_stop", "index": 0})
        place = int(bool(told))
        for block in whole["content"]:
            if block["type"] == "tool_use":
                told += _told_call(place, block)
                place += 1
        delta = {name: whole[name] for name in ("stop_reason", "stop_sequence")}
        told += _event({"type": "message_delta", "delta": delta, "usage": whole["usage"]})
        return told + _event({"type": "message_stop"})

    def failure(self, status: int, detail: str) -> bytes:
        """An error where the answer should go on."""
        return _event({"type": "error", "error": {"type": "api_error", "message": detail}})

    def three_chunks(self, drawn: Completion, whole: Mapping[str, Any]) -> bytes:
        """The whole answer as the real server tells it: one delta a block."""
        text = self.piece(drawn.text) if drawn.text else b""
        return self.opening() + text + self.closing(drawn, whole)

    def _begin(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
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


def _stop_reason(drawn: Completion) -> str:
    if drawn.stop_reason is not None:
        return "stop_sequence"
    return _STOP_REASONS.get(drawn.finish_reason, "end_turn")


def _told_call(place: int, block: Mapping[str, Any]) -> bytes:
    arguments = json.dumps(block["input"], ensure_ascii=False)
    delta = {"type": "input_json_delta", "partial_json": arguments}
    stop = _event({"type": "content_block_stop", "index": place})
    return _start(place, {**block, "input": {}}) + _delta(place, delta) + stop


def _start(place: int, block: Mapping[str, Any]) -> bytes:
    return _event({"type": "content_block_start", "index": place, "content_block": block})


def _delta(place: int, delta: Mapping[str, Any]) -> bytes:
    return _event({"type": "content_block_delta", "index": place, "delta": delta})


def _event(data: Mapping[str, Any]) -> bytes:
    return sse_event(data, data["type"])


def _parsed(arguments: str) -> Any:
    try:
        found = json.loads(arguments)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
