"""The output items of a response and their stream events. No I/O.

The keys and their order match captures of a real vLLM; those of a custom call, which vLLM does not
have, match OpenAI's documentation. A custom call takes free text; it is streamed when its arguments
are complete.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ajet_swarm.runtime import Chance
from proxy.dialects.request import pieces
from proxy.dialects.responses.tools import custom_input
from proxy.dialects.writer import Block

JsonObject = dict[str, Any]


class Form(NamedTuple):
    """The form of one kind of item."""

    prefix: str
    """Beginning of its id."""
    text_event: str
    """Name of the events of its text."""
    field: str
    """Field of the last such event that has the whole text."""
    has_part: bool = False
    """The item has a part of content, with events of its own."""


_FORMS = {
    "reasoning": Form("rs", "reasoning_text", "text", has_part=True),
    "message": Form("msg", "output_text", "text", has_part=True),
    "function_call": Form("fc", "function_call_arguments", "arguments"),
    "custom_tool_call": Form("ctc", "custom_tool_call_input", "input"),
}


class OutputItem(msgspec.Struct, eq=False):
    """The item of one block; its methods yield events without a sequence number."""

    block: Block
    kind: str
    """Key of `_FORMS`."""
    namespace: str | None = None
    logprobs: list[JsonObject] | None = None
    """Those of all tokens of a message, if known and requested."""

    def give_id(self, chance: Chance) -> None:
        """Give the block its id."""
        self.block.id = f"{_FORMS[self.kind].prefix}_{chance.token(8)}"

    def opening_events(self) -> Iterator[JsonObject]:
        """Yield the events that begin the item."""
        yield self._item_event("added", self._json("in_progress", None))
        if _FORMS[self.kind].has_part:
            yield self._event("content_part.added", content_index=0, part=self._part("", []))

    def delta_events(self, text: str, logprobs: Sequence[JsonObject]) -> Iterator[JsonObject]:
        """Yield the events of a further text."""
        if self.kind != "custom_tool_call":
            name = f"{_FORMS[self.kind].text_event}.delta"
            yield self._event(name, delta=text, **self._position(logprobs))

    def closing_events(self) -> Iterator[JsonObject]:
        """Yield the events that end the item."""
        form, text = _FORMS[self.kind], self._text()
        if self.kind == "custom_tool_call":
            for piece in pieces(text):
                yield self._event(f"{form.text_event}.delta", delta=piece)
        position = self._position(self.logprobs or ())
        done = self._event(f"{form.text_event}.done", **{form.field: text}, **position)
        yield done | ({"name": self.block.name} if self.kind == "function_call" else {})
        if form.has_part:
            part = self._part(text, self.logprobs)
            yield self._event("content_part.done", content_index=0, part=part)
        yield self._item_event("done", self.as_json())

    def as_json(self) -> JsonObject:
        """Return the item as in the response's `output`."""
        return self._json("completed", self._text())

    def _text(self) -> str:
        text = self.block.text
        if self.kind == "function_call":
            return text or "{}"
        return custom_input(text or "{}") if self.kind == "custom_tool_call" else text

    def _position(self, logprobs: Sequence[JsonObject]) -> JsonObject:
        """Return the fields of an event about the text of a part."""
        if not _FORMS[self.kind].has_part:
            return {}
        tokens = {"logprobs": list(map(_without_bytes, logprobs))}
        return {"content_index": 0, **(tokens if self.kind == "message" else {})}

    def _event(self, name: str, **fields: Any) -> JsonObject:
        return _event(name, {**fields, "item_id": self.block.id, "output_index": self.block.index})

    def _item_event(self, name: str, item: JsonObject) -> JsonObject:
        return _event(f"output_item.{name}", {"item": item, "output_index": self.block.index})

    def _json(self, status: str, text: str | None) -> JsonObject:
        """Return the item; None for the text of one that begins."""
        block = self.block
        parts = [] if text is None else [self._part(text, self.logprobs)]
        if self.kind == "reasoning":
            return {
                "id": block.id,
                "summary": [],
                "type": self.kind,
                "content": parts or None,
                "encrypted_content": None,
                "status": status,
            }
        if self.kind == "message":
            return {
                "id": block.id,
                "content": parts,
                "role": "assistant",
                "status": status,
                "type": self.kind,
                "phase": None,
            }
        argument = {_FORMS[self.kind].field: text or ""}
        return {
            **(argument if self.kind == "function_call" else {}),
            "call_id": block.call_id,
            **argument,
            "name": block.name,
            "type": self.kind,
            "id": block.id,
            "async": None,
            "caller": None,
            "namespace": self.namespace,
            "status": status,
        }

    def _part(self, text: str, logprobs: list[JsonObject] | None) -> JsonObject:
        if self.kind == "reasoning":
            return {"text": text, "type": "reasoning_text"}
        return {"annotations": [], "text": text, "type": "output_text", "logprobs": logprobs}


def _event(name: str, fields: Mapping[str, Any]) -> JsonObject:
    """Return an event; its fields are in the order of the alphabet, as vLLM's are."""
    event = {**fields, "sequence_number": -1, "type": f"response.{name}"}
    return dict(sorted(event.items()))


def _without_bytes(entry: JsonObject) -> JsonObject:
    """Return a token's logprob as in events: without `bytes`."""
    others = [{"token": top["token"], "logprob": top["logprob"]} for top in entry["top_logprobs"]]
    return {"token": entry["token"], "logprob": entry["logprob"], "top_logprobs": others}
