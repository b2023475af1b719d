"""The output items of a response and their stream events. No I/O.

The keys and their order match captures of a real vLLM; those of a custom call, which vLLM does not
have, match OpenAI's documentation. A custom call takes free text; it is streamed when its arguments
are complete.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ajet_swarm.runtime import Chance
from core.dialects.request import Entry, alternatives
from core.dialects.responses.tools import custom_input
from core.dialects.writer import Block, BlockStream, event_bytes

_encode = msgspec.json.Encoder().encode

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


_TYPES = {"reasoning": "reasoning", "content": "message"}
"""Kind of block -> type of its item."""


class ResponseFields(msgspec.Struct, frozen=True):
    """The data of a request that its response needs."""

    response_id: str
    echo: dict[str, msgspec.Raw]
    """The fields of the response after its id and time, in their order, as JSON: those of the
    request that it repeats, and the values of the others while it is in progress."""
    names: dict[str, tuple[str, str | None]]
    """The upstream's name of a tool -> its own name and its namespace."""
    custom: frozenset[str]
    """The upstream's names of tools that take free text."""
    store: bool = True
    """Whether the client may refer to the output items later."""
    first_event: int = 0
    """`sequence_number` of the first event."""


class OutputItem(msgspec.Struct, eq=False):
    """The item of one block; its methods yield events without a sequence number."""

    block: Block
    kind: str
    """Key of `_FORMS`."""
    namespace: str | None = None
    logprobs: list[JsonObject] | None = None
    """Those of all tokens of a message, if known and requested."""

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
        if self.kind == "custom_tool_call" and text:
            yield self._event(f"{form.text_event}.delta", delta=text)
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


class ItemStream(BlockStream):
    """Converter of deltas to the events of items.

    Args:
        fields: The data of the request.
        chance: Source of the items' ids.

    Attributes:
        output: The items so far.
        logprobs: Those of all tokens of the answer, if known and requested.
    """

    def __init__(self, fields: ResponseFields, chance: Chance) -> None:
        super().__init__()
        self.output: list[JsonObject] = []
        self.logprobs: list[JsonObject] | None = None
        self._fields = fields
        self._chance = chance
        self._number = fields.first_event

    def add_whole(self, block: Block) -> None:
        """Append the item of a block of an answer that is not streamed."""
        item = self._new(block).as_json()
        self.output.append(item | ({"status": None} if block.kind == "reasoning" else {}))

    def response_event(self, name: str, response: bytes) -> bytes:
        """Return an event with a response."""
        return self._bytes([_event(name, {"response": msgspec.Raw(response)})])

    def _item(self, block: Block) -> OutputItem:
        if block.kind != "call":
            return OutputItem(block, _TYPES[block.kind], logprobs=self.logprobs)
        kind = "custom_tool_call" if block.name in self._fields.custom else "function_call"
        name, namespace = self._fields.names.get(block.name, (block.name, None))
        return OutputItem(msgspec.structs.replace(block, name=name), kind, namespace)

    def _new(self, block: Block) -> OutputItem:
        block.id = f"{_FORMS[self._item(block).kind].prefix}_{self._chance.token(8)}"
        return self._item(block)

    def _start(self, block: Block) -> bytes:
        return self._bytes(self._new(block).opening_events())

    def _add(self, block: Block, text: str, tokens: Sequence[Entry]) -> bytes:
        logprobs = list(map(logprob_of, tokens))
        if not logprobs and not block.text:  # the tokens do not match the texts
            logprobs = self.logprobs or []
        return self._bytes(self._item(block).delta_events(text, logprobs))

    def _stop(self, block: Block) -> bytes:
        empty = b""
        if block.kind == "call" and not block.text:
            empty = self._add(block, "{}", ())
        item = self._item(block)
        self.output.append(item.as_json())
        return empty + self._bytes(item.closing_events())

    def _bytes(self, events: Iterable[JsonObject]) -> bytes:
        result = b""
        for event in events:
            event["sequence_number"] = self._number
            self._number += 1
            result += event_bytes(event["type"], _encode(event))
        return result


def _event(name: str, fields: Mapping[str, Any]) -> JsonObject:
    """Return an event; its fields are in the order of the alphabet, as vLLM's are."""
    event = {**fields, "sequence_number": -1, "type": f"response.{name}"}
    return dict(sorted(event.items()))


def _without_bytes(entry: JsonObject) -> JsonObject:
    """Return a token's logprob as in events: without `bytes`."""
    others = [{"token": top["token"], "logprob": top["logprob"]} for top in entry["top_logprobs"]]
    return {"token": entry["token"], "logprob": entry["logprob"], "top_logprobs": others}


def logprob_of(entry: Entry) -> JsonObject:
    """Return a token's logprob as in items."""
    return _token(entry) | {"top_logprobs": list(map(_token, alternatives(entry)))}


def _token(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "token": entry.get("token", ""),
        "bytes": entry.get("bytes") or [],
        "logprob": entry.get("logprob", 0.0),
    }
