"""The output items of a response, each with the events that tell it. No I/O.

An item is opened, added to and closed; `whole` is what stands in the response's `output`. Keys and
their order follow captures of a real vLLM; those of a custom call, which vLLM does not have, follow
OpenAI's description. Events carry a sequence number of -1, which the writer replaces.
"""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from proxy.dialects.request import pieces
from proxy.dialects.responses.tools import custom_input

Event = dict[str, Any]
Told = dict[str, Any]


class OutputItem(ABC):
    """One item of the output.

    Attributes:
        index: Its place in the output.
        id: Told in all its events.
    """

    prefix = ""

    def __init__(self, index: int) -> None:
        self.index = index
        self.id = f"{self.prefix}_{secrets.token_hex(8)}"
        self._parts: list[str] = []

    @property
    def text(self) -> str:
        """All that was added."""
        return "".join(self._parts)

    @abstractmethod
    def opened(self) -> Iterator[Event]:
        """The events that begin it."""

    def added(self, text: str) -> Iterator[Event]:
        """The events of some more of it."""
        self._parts.append(text)
        yield from self._delta(text)

    @abstractmethod
    def closed(self) -> Iterator[Event]:
        """The events that end it."""

    @abstractmethod
    def whole(self) -> Told:
        """As it stands in the output."""

    @abstractmethod
    def _delta(self, text: str) -> Iterator[Event]: ...

    def _item(self, what: str, item: Told) -> Event:
        return {
            "item": item,
            "output_index": self.index,
            "sequence_number": -1,
            "type": f"response.output_item.{what}",
        }

    def _part(self, what: str, part: Told) -> Event:
        return {
            "content_index": 0,
            "item_id": self.id,
            "output_index": self.index,
            "part": part,
            "sequence_number": -1,
            "type": f"response.content_part.{what}",
        }


class ReasoningItem(OutputItem):
    """What the model thought."""

    prefix = "rs"

    def opened(self) -> Iterator[Event]:
        """The item, then its one part."""
        yield self._item("added", self._told(None, "in_progress"))
        yield self._part("added", _thought(""))

    def closed(self) -> Iterator[Event]:
        """Text, part and item are done."""
        yield {
            "content_index": 0,
            "item_id": self.id,
            "output_index": self.index,
            "sequence_number": -1,
            "text": self.text,
            "type": "response.reasoning_text.done",
        }
        yield self._part("done", _thought(self.text))
        yield self._item("done", self.whole())

    def whole(self) -> Told:
        """With its text."""
        return self._told([_thought(self.text)], "completed")

    def _delta(self, text: str) -> Iterator[Event]:
        yield {
            "content_index": 0,
            "delta": text,
            "item_id": self.id,
            "output_index": self.index,
            "sequence_number": -1,
            "type": "response.reasoning_text.delta",
        }

    def _told(self, content: list[Told] | None, status: str) -> Told:
        return {
            "id": self.id,
            "summary": [],
            "type": "reasoning",
            "content": content,
            "encrypted_content": None,
            "status": status,
        }


class MessageItem(OutputItem):
    """What the model said."""

    prefix = "msg"

    def __init__(self, index: int, logprobs: list[Told] | None = None) -> None:
        """Start.

        Args:
            index: Its place in the output.
            logprobs: Of all its tokens, if they are known and asked for.
        """
        super().__init__(index)
        self.logprobs = logprobs
        self.untold = logprobs or []
        """What the next delta tells; all of them where nobody knows which token is in which text.
        """

    def opened(self) -> Iterator[Event]:
        """The item, then its one part."""
        yield self._item("added", self._told([], "in_progress"))
        yield self._part("added", _said("", []))

    def closed(self) -> Iterator[Event]:
        """Text, part and item are done."""
        yield {
            "content_index": 0,
            "item_id": self.id,
            "logprobs": [_short(one) for one in self.logprobs or ()],
            "output_index": self.index,
            "sequence_number": -1,
            "text": self.text,
            "type": "response.output_text.done",
        }
        yield self._part("done", _said(self.text, self.logprobs))
        yield self._item("done", self.whole())

    def whole(self) -> Told:
        """With its text."""
        return self._told([_said(self.text, self.logprobs)], "completed")

    def _delta(self, text: str) -> Iterator[Event]:
        untold, self.untold = self.untold, []
        yield {
            "content_index": 0,
            "delta": text,
            "item_id": self.id,
            "logprobs": [_short(one) for one in untold],
            "output_index": self.index,
            "sequence_number": -1,
            "type": "response.output_text.delta",
        }

    def _told(self, content: list[Told], status: str) -> Told:
        return {
            "id": self.id,
            "content": content,
            "role": "assistant",
            "status": status,
            "type": "message",
            "phase": None,
        }


class FunctionCallItem(OutputItem):
    """A call of a function."""

    prefix = "fc"

    def __init__(self, index: int, call_id: str, name: str, namespace: str | None) -> None:
        super().__init__(index)
        self._call_id = call_id
        self._name = name
        self._namespace = namespace

    def opened(self) -> Iterator[Event]:
        """The item, still without arguments."""
        yield self._item("added", self._told("", "in_progress"))

    def closed(self) -> Iterator[Event]:
        """Arguments and item are done."""
        yield {
            "arguments": self.text,
            "item_id": self.id,
            "output_index": self.index,
            "sequence_number": -1,
            "type": "response.function_call_arguments.done",
            "name": self._name,
        }
        yield self._item("done", self.whole())

    def whole(self) -> Told:
        """With its arguments."""
        return self._told(self.text, "completed")

    def _delta(self, text: str) -> Iterator[Event]:
        yield {
            "delta": text,
            "item_id": self.id,
            "output_index": self.index,
            "sequence_number": -1,
            "type": "response.function_call_arguments.delta",
        }

    def _told(self, arguments: str, status: str) -> Told:
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
    """A call of a tool that takes free text; told when the arguments around it are complete."""

    prefix = "ctc"

    def closed(self) -> Iterator[Event]:
        """The text, then text and item are done."""
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
        yield self._item("done", self.whole())

    def whole(self) -> Told:
        """With its text."""
        return self._told(custom_input(self.text), "completed")

    def _delta(self, text: str) -> Iterator[Event]:
        return iter(())

    def _told(self, arguments: str, status: str) -> Told:
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


def _thought(text: str) -> Told:
    return {"text": text, "type": "reasoning_text"}


def _said(text: str, logprobs: list[Told] | None) -> Told:
    return {"annotations": [], "text": text, "type": "output_text", "logprobs": logprobs}


def _short(one: Told) -> Told:
    """A token's logprob as events tell it: without bytes."""
    others = [{"token": top["token"], "logprob": top["logprob"]} for top in one["top_logprobs"]]
    return {"token": one["token"], "logprob": one["logprob"], "top_logprobs": others}
