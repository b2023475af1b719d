"""The output items of a response and their stream events. No I/O.

The keys and their order match captures of a real vLLM; those of a custom call, which vLLM does not
have, match OpenAI's documentation. Events have the sequence number -1, which the writer replaces.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from ajet_swarm.runtime import Chance
from proxy.dialects.request import pieces
from proxy.dialects.responses.tools import custom_input

Event = dict[str, Any]
JsonObject = dict[str, Any]


class OutputItem(ABC):
    """One item of the output, which grows while it is streamed.

    Attributes:
        index: Index in the response's `output`.
        id: The item's id in all its events.
    """

    prefix = ""

    def __init__(self, index: int, chance: Chance) -> None:
        self.index = index
        self.id = f"{self.prefix}_{chance.token(8)}"
        self._parts: list[str] = []

    @property
    def text(self) -> str:
        """Return the text so far."""
        return "".join(self._parts)

    @abstractmethod
    def opening_events(self) -> Iterator[Event]:
        """Yield the events that begin the item."""

    def delta_events(self, text: str) -> Iterator[Event]:
        """Append `text` and yield its events."""
        self._parts.append(text)
        yield from self._delta(text)

    @abstractmethod
    def closing_events(self) -> Iterator[Event]:
        """Yield the events that end the item."""

    @abstractmethod
    def as_json(self) -> JsonObject:
        """Return the item as in the response's `output`."""

    @abstractmethod
    def _delta(self, text: str) -> Iterator[Event]: ...

    def _item(self, event: str, item: JsonObject) -> Event:
        return {
            "item": item,
            "output_index": self.index,
            "sequence_number": -1,
            "type": f"response.output_item.{event}",
        }

    def _part(self, event: str, part: JsonObject) -> Event:
        return {
            "content_index": 0,
            "item_id": self.id,
            "output_index": self.index,
            "part": part,
            "sequence_number": -1,
            "type": f"response.content_part.{event}",
        }


class ReasoningItem(OutputItem):
    """The model's reasoning."""

    prefix = "rs"

    def opening_events(self) -> Iterator[Event]:
        """Yield the `added` events of the item and its part."""
        yield self._item("added", self._json(None, "in_progress"))
        yield self._part("added", _reasoning_part(""))

    def closing_events(self) -> Iterator[Event]:
        """Yield the `done` events of text, part and item."""
        yield {
            "content_index": 0,
            "item_id": self.id,
            "output_index": self.index,
            "sequence_number": -1,
            "text": self.text,
            "type": "response.reasoning_text.done",
        }
        yield self._part("done", _reasoning_part(self.text))
        yield self._item("done", self.as_json())

    def as_json(self) -> JsonObject:
        """Return the item with its text so far."""
        return self._json([_reasoning_part(self.text)], "completed")

    def _delta(self, text: str) -> Iterator[Event]:
        yield {
            "content_index": 0,
            "delta": text,
            "item_id": self.id,
            "output_index": self.index,
            "sequence_number": -1,
            "type": "response.reasoning_text.delta",
        }

    def _json(self, content: list[JsonObject] | None, status: str) -> JsonObject:
        return {
            "id": self.id,
            "summary": [],
            "type": "reasoning",
            "content": content,
            "encrypted_content": None,
            "status": status,
        }


class MessageItem(OutputItem):
    """The model's answer text."""

    prefix = "msg"

    def __init__(
        self, index: int, chance: Chance, logprobs: list[JsonObject] | None = None
    ) -> None:
        """Start an empty message.

        Args:
            index: Index in the response's `output`.
            chance: Source of its id.
            logprobs: Those of all its tokens, if known and requested.
        """
        super().__init__(index, chance)
        self.logprobs = logprobs
        self.next_logprobs = logprobs or []
        """Log probabilities for the next delta; all of them if tokens do not match texts."""

    def opening_events(self) -> Iterator[Event]:
        """Yield the `added` events of the item and its part."""
        yield self._item("added", self._json([], "in_progress"))
        yield self._part("added", _text_part("", []))

    def closing_events(self) -> Iterator[Event]:
        """Yield the `done` events of text, part and item."""
        yield {
            "content_index": 0,
            "item_id": self.id,
            "logprobs": [_without_bytes(logprob) for logprob in self.logprobs or ()],
            "output_index": self.index,
            "sequence_number": -1,
            "text": self.text,
            "type": "response.output_text.done",
        }
        yield self._part("done", _text_part(self.text, self.logprobs))
        yield self._item("done", self.as_json())

    def as_json(self) -> JsonObject:
        """Return the item with its text so far."""
        return self._json([_text_part(self.text, self.logprobs)], "completed")

    def _delta(self, text: str) -> Iterator[Event]:
        logprobs, self.next_logprobs = self.next_logprobs, []
        yield {
            "content_index": 0,
            "delta": text,
            "item_id": self.id,
            "logprobs": [_without_bytes(logprob) for logprob in logprobs],
            "output_index": self.index,
            "sequence_number": -1,
            "type": "response.output_text.delta",
        }

    def _json(self, content: list[JsonObject], status: str) -> JsonObject:
        return {
            "id": self.id,
            "content": content,
            "role": "assistant",
            "status": status,
            "type": "message",
            "phase": None,
        }


class FunctionCallItem(OutputItem):
    """A call of a function tool."""

    prefix = "fc"

    def __init__(
        self, index: int, chance: Chance, call_id: str, name: str, namespace: str | None
    ) -> None:
        super().__init__(index, chance)
        self._call_id = call_id
        self._name = name
        self._namespace = namespace

    def opening_events(self) -> Iterator[Event]:
        """Yield the `added` event of the item, without arguments."""
        yield self._item("added", self._json("", "in_progress"))

    def closing_events(self) -> Iterator[Event]:
        """Yield the `done` events of arguments and item."""
        yield {
            "arguments": self.text,
            "item_id": self.id,
            "output_index": self.index,
            "sequence_number": -1,
            "type": "response.function_call_arguments.done",
            "name": self._name,
        }
        yield self._item("done", self.as_json())

    def as_json(self) -> JsonObject:
        """Return the item with its arguments so far."""
        return self._json(self.text, "completed")

    def _delta(self, text: str) -> Iterator[Event]:
        yield {
            "delta": text,
            "item_id": self.id,
            "output_index": self.index,
            "sequence_number": -1,
            "type": "response.function_call_arguments.delta",
        }

    def _json(self, arguments: str, status: str) -> JsonObject:
        return {
            "arguments": arguments,
            "call_id": self._call_id,
            "name": self._name,
            "type": "function_call",
            "id": self.id,
            "async": None,
            "caller": None,
            "namespace": self._namespace,
            "status": status,
        }


class CustomCallItem(FunctionCallItem):
    """A call of a custom tool, which takes free text; streamed when its arguments are complete."""

    prefix = "ctc"

    def closing_events(self) -> Iterator[Event]:
        """Yield the text, then the `done` events of text and item."""
        text = custom_input(self.text)
        for piece in pieces(text):
            yield {
                "delta": piece,
                "item_id": self.id,
                "output_index": self.index,
                "sequence_number": -1,
                "type": "response.custom_tool_call_input.delta",
            }
        yield {
            "input": text,
            "item_id": self.id,
            "output_index": self.index,
            "sequence_number": -1,
            "type": "response.custom_tool_call_input.done",
        }
        yield self._item("done", self.as_json())

    def as_json(self) -> JsonObject:
        """Return the item with its text so far."""
        return self._json(custom_input(self.text), "completed")

    def _delta(self, text: str) -> Iterator[Event]:
        return iter(())

    def _json(self, arguments: str, status: str) -> JsonObject:
        return {
            "call_id": self._call_id,
            "input": arguments,
            "name": self._name,
            "type": "custom_tool_call",
            "id": self.id,
            "async": None,
            "caller": None,
            "namespace": self._namespace,
            "status": status,
        }


def _reasoning_part(text: str) -> JsonObject:
    return {"text": text, "type": "reasoning_text"}


def _text_part(text: str, logprobs: list[JsonObject] | None) -> JsonObject:
    return {"annotations": [], "text": text, "type": "output_text", "logprobs": logprobs}


def _without_bytes(entry: JsonObject) -> JsonObject:
    """Return a token's logprob as in events: without `bytes`."""
    others = [{"token": top["token"], "logprob": top["logprob"]} for top in entry["top_logprobs"]]
    return {"token": entry["token"], "logprob": entry["logprob"], "top_logprobs": others}
