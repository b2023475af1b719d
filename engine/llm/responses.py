"""The Responses form of a call: `/v1/responses` (protocol section 5.1).

Read into a chat request and told back as a response. Images, files, reasoning items and what else
the policy cannot read are dropped, as on the real server; nothing is stored between calls.
"""

import itertools
import time
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

_ROLES = {
    "developer": "system",
    "system": "system",
    "assistant": "assistant",
    "tool": "tool",
}


class ResponsesRequest(BaseModel):
    """What of a request is read."""

    input: str | list[str | dict[str, Any]] = Field(description="Text, or messages and calls.")
    model: str | None = None
    instructions: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None
    stream: bool | None = None
    max_output_tokens: Count | None = None
    temperature: Temperature | None = None
    top_p: Mass | None = None
    stop: str | list[str] | None = None
    seed: int | None = None

    def chat(self) -> ChatRequest:
        """The same as a chat request.

        Raises:
            Refused: 400, nothing is left to answer.
        """
        items = [self.input] if isinstance(self.input, str) else self.input
        messages = [message for item in items for message in _messages(item)]
        if not messages:
            raise EngineError(400, "input: holds no message this server can read")
        if self.instructions:
            messages.insert(0, {"role": "system", "content": self.instructions})
        return validate(
            ChatRequest,
            {
                **self.model_dump(include={"model", "temperature", "top_p", "stop", "seed"}),
                "messages": messages,
                "stream": self.stream,
                "max_tokens": self.max_output_tokens,
                "tools": [tool for tool in map(_tool, self.tools or []) if tool] or None,
                "tool_choice": _choice(self.tool_choice),
            },
        )


def _messages(item: str | Mapping[str, Any]) -> list[dict[str, Any]]:
    """One item of the input as chat messages; none for what cannot be read."""
    if isinstance(item, str):
        return [{"role": "user", "content": item}] if item else []
    kind = item.get("type", "message" if "role" in item else None)
    if kind == "message":
        text = text_of(item.get("content"))
        return [{"role": _ROLES.get(str(item.get("role")), "user"), "content": text}] * bool(text)
    if kind == "function_call":
        function = {"name": str(item.get("name", "")), "arguments": _text(item.get("arguments"))}
        call = {"id": _text(item.get("call_id")), "type": "function", "function": function}
        return [{"role": "assistant", "content": "", "tool_calls": [call]}]
    if kind == "function_call_output":
        identity = _text(item.get("call_id"))
        output = text_of(item.get("output"))
        return [{"role": "tool", "tool_call_id": identity, "content": output}]
    return []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _tool(tool: Mapping[str, Any]) -> dict[str, Any] | None:
    if tool.get("type") != "function":
        return None
    if isinstance(tool.get("function"), Mapping):
        return dict(tool)
    function = {
        key: tool[key] for key in ("name", "description", "parameters") if tool.get(key) is not None
    }
    return {"type": "function", "function": function}


def _choice(choice: Any) -> Any:
    if not isinstance(choice, Mapping):
        return choice
    if choice.get("type") == "function":
        return {"type": "function", "function": {"name": choice.get("name")}}
    return choice.get("type")


class ResponsesEncoder:
    """One answer as a response, whole or as events; `function_call` items get events of their own.

    Args:
        model: The policy's name.
        asked: The name in the request, echoed.
    """

    format = "responses"

    def __init__(self, model: str, asked: str | None) -> None:
        self._model = asked or model
        self._id, self._created = f"resp_{uuid.uuid4().hex}", int(time.time())
        self._message = f"msg_{uuid.uuid4().hex}"
        self._numbers = itertools.count(1)
        self._begun = False

    def whole(self, drawn: Completion) -> dict[str, Any]:
        """The answer as one object."""
        calls = [
            {
                "id": f"fc_{uuid.uuid4().hex}",
                "type": "function_call",
                "status": "completed",
                "call_id": call["id"],
                **call["function"],
            }
            for call in tool_calls(drawn)
        ]
        cut = drawn.finish_reason == "length"
        status = "incomplete" if cut else "completed"
        text = [self._item(drawn.text, status)] if drawn.text or not calls else []
        prompt, sampled = len(drawn.prompt_tokens), len(drawn.tokens)
        return {
            **self._shell(status),
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": [*text, *calls],
            "usage": {
                "input_tokens": prompt,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": sampled,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": prompt + sampled,
            },
            "ajetc": {"truncated": drawn.truncated, "step": drawn.step},
        }

    def opening(self) -> bytes:
        """The response exists."""
        shell = self._shell("in_progress")
        created = self._event("response.created", response=shell)
        return created + self._event("response.in_progress", response=shell)

    def piece(self, text: str) -> bytes:
        """A piece of the text; the first one opens its item."""
        return self._begin() + self._told("response.output_text.delta", delta=text, logprobs=[])

    def idle(self) -> bytes:
        """Shows that the connection lives."""
        return b": keepalive\n\n"

    def closing(self, drawn: Completion, whole: Mapping[str, Any]) -> bytes:
        """Ends what was opened, tells the calls, then the whole response."""
        told = b""
        for place, item in enumerate(whole["output"]):
            if item["type"] == "message":
                told += self._begin() + self._end(item)
            else:
                told += self._call(place, item)
        return told + self._event("response.completed", response=whole)

    def failure(self, status: int, detail: str) -> bytes:
        """An error where the answer should go on."""
        error = {"code": "server_error", "message": detail}
        return self._event("response.failed", response={**self._shell("failed"), "error": error})

    def three_chunks(self, drawn: Completion, whole: Mapping[str, Any]) -> bytes:
        """The whole answer as the real server tells it: one delta, no events for calls."""
        text = [item for item in whole["output"] if item["type"] == "message"]
        told = self.opening() + b"".join(self.piece(drawn.text) + self._end(one) for one in text)
        return told + self._event("response.completed", response=whole)

    def _begin(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        item = {**self._item("", "in_progress"), "content": []}
        added = self._event("response.output_item.added", output_index=0, item=item)
        return added + self._told("response.content_part.added", part=_part(""))

    def _end(self, item: Mapping[str, Any]) -> bytes:
        text = item["content"][0]["text"]
        done = self._told("response.output_text.done", text=text, logprobs=[])
        done += self._told("response.content_part.done", part=_part(text))
        return done + self._event("response.output_item.done", output_index=0, item=item)

    def _call(self, place: int, item: Mapping[str, Any]) -> bytes:
        where = {"item_id": item["id"], "output_index": place}
        arguments = item["arguments"]
        begun = {**item, "status": "in_progress", "arguments": ""}
        return b"".join(
            (
                self._event("response.output_item.added", output_index=place, item=begun),
                self._event("response.function_call_arguments.delta", **where, delta=arguments),
                self._event(
                    "response.function_call_arguments.done",
                    **where,
                    name=item["name"],
                    arguments=arguments,
                ),
                self._event("response.output_item.done", output_index=place, item=item),
            )
        )

    def _told(self, name: str, /, **facts: Any) -> bytes:
        return self._event(name, item_id=self._message, output_index=0, content_index=0, **facts)

    def _event(self, name: str, /, **facts: Any) -> bytes:
        return sse_event({"type": name, "sequence_number": next(self._numbers), **facts}, name)

    def _item(self, text: str, status: str) -> dict[str, Any]:
        return {
            "id": self._message,
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": [_part(text)],
        }

    def _shell(self, status: str) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "model": self._model,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "output": [],
            "parallel_tool_calls": True,
            "temperature": None,
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "usage": None,
        }


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
