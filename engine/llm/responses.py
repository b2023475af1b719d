"""OpenAI Responses form of a call: `/v1/responses` (protocol section 5.1).

Requests are converted to chat requests, answers back to responses. Images, files, reasoning items
and other unreadable input are dropped, as on the real server; nothing is stored between calls.
"""

import itertools
import time
import uuid
from collections.abc import Mapping
from typing import Any

from pydantic import Field

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

_ROLES = {
    "developer": "system",
    "system": "system",
    "assistant": "assistant",
    "tool": "tool",
}


class ResponsesRequest(SamplingFields):
    """The request fields that are used."""

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
        """Return the equivalent chat request.

        Raises:
            EngineError: 400, no readable message remains.
        """
        items = [self.input] if isinstance(self.input, str) else self.input
        messages = [message for item in items for message in _messages(item)]
        if not messages:
            raise EngineError(400, "input: contains no readable message")
        if self.instructions:
            messages.insert(0, {"role": "system", "content": self.instructions})
        return validate(
            ChatRequest,
            {
                **self.model_dump(include={"model", "temperature", "top_p", "stop", "seed"}),
                **self.sampling_fields(),
                "messages": messages,
                "stream": self.stream,
                "max_tokens": self.max_output_tokens,
                "tools": [tool for tool in map(_tool, self.tools or []) if tool] or None,
                "tool_choice": _choice(self.tool_choice),
            },
        )


def _messages(item: str | Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one input item as chat messages; none for unreadable items."""
    if isinstance(item, str):
        return [{"role": "user", "content": item}] if item else []
    kind = item.get("type", "message" if "role" in item else None)
    if kind == "message":
        text = text_of(item.get("content"))
        return [{"role": _ROLES.get(str(item.get("role")), "user"), "content": text}] * bool(text)
    if kind == "function_call":
        name, arguments = str(item.get("name", "")), _text(item.get("arguments"))
        call = call_of(_text(item.get("call_id")), name, arguments)
        return [{"role": "assistant", "content": "", "tool_calls": [call]}]
    if kind == "function_call_output":
        return [result_of(_text(item.get("call_id")), text_of(item.get("output")))]
    return []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _tool(tool: Mapping[str, Any]) -> dict[str, Any] | None:
    if tool.get("type") != "function":
        return None
    if isinstance(tool.get("function"), Mapping):
        return dict(tool)
    return tool_of(tool.get("name"), tool)


def _choice(choice: Any) -> Any:
    if not isinstance(choice, Mapping):
        return choice
    if choice.get("type") == "function":
        return choice_of(choice.get("name"))
    return choice.get("type")


class ResponsesEncoder:
    """Encoder of one answer as a response, in one piece or as events; tool calls get events of
    their own.

    Args:
        model: The policy's name.
        requested: Model name in the request, echoed.
    """

    format = "responses"

    def __init__(self, model: str, requested: str | None) -> None:
        self._model = requested or model
        self._id, self._created = f"resp_{uuid.uuid4().hex}", int(time.time())
        self._message = f"msg_{uuid.uuid4().hex}"
        self._numbers = itertools.count(1)
        self._item_open = False

    def whole(self, completion: Completion) -> dict[str, Any]:
        """Return the answer as one object."""
        calls = [
            {
                "id": f"fc_{uuid.uuid4().hex}",
                "type": "function_call",
                "status": "completed",
                "call_id": call["id"],
                **call["function"],
            }
            for call in tool_calls(completion)
        ]
        truncated = completion.finish_reason == "length"
        status = "incomplete" if truncated else "completed"
        text = [self._item(completion.text, status)] if completion.text or not calls else []
        prompt, sampled = len(completion.prompt_tokens), len(completion.tokens)
        return {
            **self._shell(status),
            "incomplete_details": {"reason": "max_output_tokens"} if truncated else None,
            "output": [*text, *calls],
            "usage": {
                "input_tokens": prompt,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": sampled,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": prompt + sampled,
            },
            "ajetc": {"truncated": completion.truncated, "step": completion.step},
        }

    def opening(self) -> bytes:
        """Return the start of the response."""
        shell = self._shell("in_progress")
        created = self._event("response.created", response=shell)
        return created + self._event("response.in_progress", response=shell)

    def piece(self, text: str) -> bytes:
        """Return the event for a piece of text; the first one opens its item."""
        return self._open_item() + self._text_event(
            "response.output_text.delta", delta=text, logprobs=[]
        )

    def idle(self) -> bytes:
        """Return a keep-alive comment."""
        return b": keepalive\n\n"

    def closing(self, completion: Completion, whole: Mapping[str, Any]) -> bytes:
        """Close the open item, then return the tool calls and the completed response."""
        events = b""
        for index, item in enumerate(whole["output"]):
            if item["type"] == "message":
                events += self._open_item() + self._end(item)
            else:
                events += self._call(index, item)
        return events + self._event("response.completed", response=whole)

    def failure(self, status: int, detail: str) -> bytes:
        """Return the event for an error in the middle of a stream."""
        error = {"code": "server_error", "message": detail}
        return self._event("response.failed", response={**self._shell("failed"), "error": error})

    def compact_stream(self, completion: Completion, whole: Mapping[str, Any]) -> bytes:
        """Return the whole answer as the real server streams it: one delta, no events for tool
        calls."""
        text = [item for item in whole["output"] if item["type"] == "message"]
        events = self.opening() + b"".join(
            self.piece(completion.text) + self._end(item) for item in text
        )
        return events + self._event("response.completed", response=whole)

    def _open_item(self) -> bytes:
        if self._item_open:
            return b""
        self._item_open = True
        item = {**self._item("", "in_progress"), "content": []}
        added = self._event("response.output_item.added", output_index=0, item=item)
        return added + self._text_event("response.content_part.added", part=_part(""))

    def _end(self, item: Mapping[str, Any]) -> bytes:
        text = item["content"][0]["text"]
        done = self._text_event("response.output_text.done", text=text, logprobs=[])
        done += self._text_event("response.content_part.done", part=_part(text))
        return done + self._event("response.output_item.done", output_index=0, item=item)

    def _call(self, index: int, item: Mapping[str, Any]) -> bytes:
        position = {"item_id": item["id"], "output_index": index}
        arguments = item["arguments"]
        started = {**item, "status": "in_progress", "arguments": ""}
        return b"".join(
            (
                self._event("response.output_item.added", output_index=index, item=started),
                self._event("response.function_call_arguments.delta", **position, delta=arguments),
                self._event(
                    "response.function_call_arguments.done",
                    **position,
                    name=item["name"],
                    arguments=arguments,
                ),
                self._event("response.output_item.done", output_index=index, item=item),
            )
        )

    def _text_event(self, name: str, /, **facts: Any) -> bytes:
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
