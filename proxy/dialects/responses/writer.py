"""Writer of OpenAI Responses in vLLM's format: a complete object, or a stream. No I/O.

The keys, their order and which of them are null match captures of a real server. An answer that a
limit ended has the status `incomplete` but ends with `response.completed`, as in vLLM: agents treat
the event `response.incomplete` as an error and send the request again.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ajet_swarm.runtime import Chance
from proxy.dialects.logprobs import AlignedTokens, Entry, token_entries
from proxy.dialects.request import PublicAnswer, call_deltas, deltas, new_call_id, pieces
from proxy.dialects.responses.output import (
    CustomCallItem,
    Event,
    FunctionCallItem,
    MessageItem,
    OutputItem,
    ReasoningItem,
)
from proxy.dialects.responses.store import ResponseStore
from proxy.http.errors import ApiError, EngineOffline, ProxyStopping

_encode = msgspec.json.Encoder().encode

_CUT = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Finish reason -> `incomplete_details.reason` of the response."""


class ResponseFields(msgspec.Struct, frozen=True):
    """The data of a request that its response needs."""

    response_id: str
    echo: dict[str, msgspec.Raw]
    """The fields that the response repeats, as JSON."""
    names: dict[str, tuple[str, str | None]]
    """The upstream's name of a tool -> its own name and its namespace."""
    custom: frozenset[str]
    """The upstream's names of tools that take free text."""
    logprobs: bool = False
    """Whether log probabilities are requested."""
    store: bool = True
    """Whether the client may refer to the output items later."""


class ResponseWriter:
    """Writer of the response to one Responses request; see `proxy.dialects.base.Writer`."""

    def __init__(
        self,
        fields: ResponseFields,
        model: str,
        created: int,
        store: ResponseStore,
        chance: Chance,
    ) -> None:
        """Start a response.

        Args:
            fields: The data of the request that the response needs.
            model: The model name in the response.
            created: Time of the response in Unix seconds.
            store: Store of output items to which the client may refer.
            chance: Source of their ids.
        """
        self._store = store
        self._chance = chance
        self._fields = fields
        self._model = model
        self._created = created
        self._number = 0
        self._output: list[dict[str, Any]] = []
        self._item: OutputItem | None = None
        self._call = -1
        self._logprobs: list[dict[str, Any]] | None = None
        self._in_progress = b""

    def body(self, winners: Sequence[PublicAnswer]) -> bytes:
        """Return the JSON body of a response that is not streamed; it has the first winner only."""
        for _ in self._answer_events(winners[0]):
            pass
        for item in self._output:
            if item["type"] == "reasoning":
                item["status"] = None
        return self._final_response(winners[0])

    def opening(self) -> bytes:
        """Return the first events, sent at admission."""
        self._in_progress = self._response("in_progress")
        return self._response_event("response.created", self._in_progress) + self.keepalive()

    def keepalive(self) -> bytes:
        """Return `response.in_progress`, which resets the timeouts of clients."""
        return self._response_event("response.in_progress", self._in_progress)

    def delta_events(self, delta: Mapping[str, Any]) -> bytes:
        """Return the events of one delta of a chat stream."""
        return self._events(self._delta_items(delta))

    def finish(self, winner: PublicAnswer) -> bytes:
        """Close the open item and the response; without any delta before it, send all events."""
        if self._item is None and not self._output:
            end = self._events(self._answer_events(winner))
        else:
            if isinstance(self._item, MessageItem):
                self._item.logprobs = self._logprobs_of(winner)
            end = self._events(self._close())
        return end + self._response_event("response.completed", self._final_response(winner))

    def answer(self, winners: Sequence[PublicAnswer]) -> bytes:
        """Return all events of the first winner after `opening`."""
        return self.finish(winners[0])

    def error(self, refusal: ApiError) -> bytes:
        """Return `response.failed`, the end of a stream that cannot be finished."""
        failed = self._response("failed", output=self._output, error=failure(refusal))
        return self._response_event("response.failed", failed)

    # --- the response -----------------------------------------------------------------------------

    def _final_response(self, winner: PublicAnswer) -> bytes:
        if self._fields.store:
            for item in self._output:
                self._store.put(item)
        cut = _CUT.get(winner.finish_reason)
        return self._response(
            "incomplete" if cut else "completed",
            output=self._output,
            usage=usage_of(winner),
            incomplete_details={"reason": cut} if cut else None,
        )

    def _response(
        self,
        status: str,
        *,
        output: Sequence[dict[str, Any]] = (),
        usage: dict[str, Any] | None = None,
        incomplete_details: dict[str, str] | None = None,
        error: dict[str, str] | None = None,
    ) -> bytes:
        echo = self._fields.echo
        response: dict[str, Any] = {
            "id": self._fields.response_id,
            "created_at": self._created,
            "incomplete_details": incomplete_details,
            "instructions": echo["instructions"],
            "metadata": echo["metadata"],
            "model": self._model,
            "object": "response",
            "output": output,
            "parallel_tool_calls": echo["parallel_tool_calls"],
            "temperature": echo["temperature"],
            "tool_choice": echo["tool_choice"],
            "tools": echo["tools"],
            "top_p": echo["top_p"],
            "background": False,
            "max_output_tokens": echo["max_output_tokens"],
            "max_tool_calls": echo["max_tool_calls"],
            "previous_response_id": None,
            "prompt": None,
            "reasoning": echo["reasoning"],
            "service_tier": echo["service_tier"],
            "status": status,
            "text": echo["text"],
            "top_logprobs": echo["top_logprobs"],
            "truncation": echo["truncation"],
            "usage": usage,
            "user": echo["user"],
            "presence_penalty": echo["presence_penalty"],
            "frequency_penalty": echo["frequency_penalty"],
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "input_messages": None,
            "output_messages": None,
        }
        if error is not None:
            response["error"] = error
        return _encode(response)

    # --- the events -------------------------------------------------------------------------------

    def _answer_events(self, winner: PublicAnswer) -> Iterator[Event]:
        self._logprobs = self._logprobs_of(winner)
        for delta, tokens in self._deltas(winner):
            yield from self._delta_items(delta, tokens)
        yield from self._close()

    def _deltas(self, winner: PublicAnswer) -> Iterator[tuple[dict[str, Any], list[Entry]]]:
        """Yield the deltas of an answer, each with the tokens of its text if they are requested."""
        text = winner.content
        entries = token_entries(winner.logprobs) if self._logprobs else []
        cut = AlignedTokens(entries).cut(text, last=True) if entries and text else []
        if not any(tokens for _, tokens in cut):
            yield from ((delta, []) for delta in deltas(winner))
            return
        yield from (({"reasoning": piece}, []) for piece in pieces(winner.reasoning or ""))
        yield from (({"content": piece}, tokens) for piece, tokens in cut)
        yield from ((delta, []) for delta in call_deltas(winner))

    def _delta_items(
        self, delta: Mapping[str, Any], tokens: Sequence[Entry] = ()
    ) -> Iterator[Event]:
        if text := delta.get("reasoning") or delta.get("reasoning_content"):
            if not isinstance(self._item, ReasoningItem):
                yield from self._open(ReasoningItem(self._next_index(), self._chance))
            yield from self._add(text)
        if text := delta.get("content"):
            if not isinstance(self._item, MessageItem):
                yield from self._open(MessageItem(self._next_index(), self._chance, self._logprobs))
            if tokens and isinstance(self._item, MessageItem):
                self._item.next_logprobs = [_logprob(entry) for entry in tokens]
            yield from self._add(text)
        for call in delta.get("tool_calls") or ():
            function = call.get("function") or {}
            index = call.get("index") or 0
            if index < self._call and not call.get("id"):
                continue  # the item of an earlier call is closed
            if not isinstance(self._item, FunctionCallItem) or index != self._call:
                self._call = index
                yield from self._open(self._call_item(call.get("id"), function.get("name") or ""))
            if text := function.get("arguments"):
                yield from self._add(text)

    def _call_item(self, call_id: str | None, flat: str) -> FunctionCallItem:
        kind = CustomCallItem if flat in self._fields.custom else FunctionCallItem
        name, namespace = self._fields.names.get(flat, (flat, None))
        index = self._next_index()
        call_id = call_id or new_call_id(self._fields.response_id, index)
        return kind(index, self._chance, call_id, name, namespace)

    def _next_index(self) -> int:
        return len(self._output) + (self._item is not None)

    def _open(self, item: OutputItem) -> Iterator[Event]:
        yield from self._close()
        self._item = item
        yield from item.opening_events()

    def _add(self, text: str) -> Iterator[Event]:
        return iter(()) if self._item is None else self._item.delta_events(text)

    def _close(self) -> Iterator[Event]:
        item, self._item = self._item, None
        if item is not None:
            if isinstance(item, FunctionCallItem) and not item.text:
                yield from item.delta_events("{}")
            self._output.append(item.as_json())
            yield from item.closing_events()

    def _logprobs_of(self, winner: PublicAnswer) -> list[dict[str, Any]] | None:
        if not self._fields.logprobs or not isinstance(winner.logprobs, dict):
            return None
        content = winner.logprobs.get("content")
        return [_logprob(one) for one in content] if isinstance(content, list) else None

    def _events(self, events: Iterable[Event]) -> bytes:
        return b"".join([self._event(event) for event in events])

    def _response_event(self, kind: str, response: bytes) -> bytes:
        return self._event({"response": msgspec.Raw(response), "sequence_number": -1, "type": kind})

    def _event(self, event: Event) -> bytes:
        event["sequence_number"] = self._number
        self._number += 1
        return b"event: %s\ndata: %s\n\n" % (event["type"].encode(), _encode(event))


# --- usage, errors, log probabilities -----------------------------------------------------------


def usage_of(winner: PublicAnswer) -> dict[str, Any]:
    """Return the usage of the winner only.

    An unknown number of reasoning tokens is reported as 0, because clients require a number.
    """
    usage = winner.usage
    prompt, completion = usage["prompt_tokens"], usage["completion_tokens"]
    prompt_details = usage.get("prompt_tokens_details") or {}
    completion_details = usage.get("completion_tokens_details") or {}
    return {
        "input_tokens": prompt,
        "input_tokens_details": {
            "cached_tokens": prompt_details.get("cached_tokens") or 0,
            "cache_write_tokens": 0,
            "input_tokens_per_turn": [],
            "cached_tokens_per_turn": [],
        },
        "output_tokens": completion,
        "output_tokens_details": {
            "reasoning_tokens": completion_details.get("reasoning_tokens") or 0,
            "tool_output_tokens": 0,
            "output_tokens_per_turn": [],
            "tool_output_tokens_per_turn": [],
        },
        "total_tokens": prompt + completion,
    }


def failure(refusal: ApiError) -> dict[str, str]:
    """Return the `error` of a failed response, with codes to which agents react correctly.

    Codex gives up on `invalid_prompt`, compacts the conversation on `context_length_exceeded`,
    waits for the time in the message on `rate_limit_exceeded`, and retries on any other code.
    """
    message = refusal.message
    if isinstance(refusal, ProxyStopping | EngineOffline):
        return {"code": "server_error", "message": refusal.message}
    if refusal.status in (429, 503) and refusal.retry_after is not None:
        text = f"{message} Please try again in {refusal.retry_after}s."
        return {"code": "rate_limit_exceeded", "message": text}
    if "maximum context length" in message:
        return {"code": "context_length_exceeded", "message": message}
    code = "invalid_prompt" if refusal.status < 500 else "server_error"
    return {"code": code, "message": message}


def _logprob(entry: Any) -> dict[str, Any]:
    entry = entry if isinstance(entry, dict) else {}
    tops = entry.get("top_logprobs")
    return _token(entry) | {"top_logprobs": [_token(top) for top in tops or () if top]}


def _token(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "token": entry.get("token", ""),
        "bytes": entry.get("bytes") or [],
        "logprob": entry.get("logprob", 0.0),
    }
