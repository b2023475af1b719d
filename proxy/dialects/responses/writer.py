"""Responses on the wire as vLLM writes them: the whole object, or events. No I/O.

Key sets, their order and which keys are null follow captures of a real server. An answer that was
cut ends with `response.completed` and the status `incomplete`, which is vLLM's way too: agents take
the event `response.incomplete` for an error and ask again.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from proxy.dialects.logprobs import AlignedTokens, Entry, entries_of
from proxy.dialects.request import PublicAnswer, call_deltas, call_id, deltas, pieces
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
"""Finish reason -> why a response is incomplete."""


class ResponseFields(msgspec.Struct, frozen=True):
    """What of a request its response needs."""

    response_id: str
    echo: dict[str, msgspec.Raw]
    """Fields that are repeated, as JSON."""
    names: dict[str, tuple[str, str | None]]
    """The upstream's name of a tool -> its own name and its namespace."""
    custom: frozenset[str]
    """The upstream's names of tools that take free text."""
    logprobs: bool = False
    """They were asked for."""
    store: bool = True
    """The client may refer to what it was told."""


class ResponseWriter:
    """Writes the answer to one Responses request; see `proxy.dialects.base.Writer`."""

    def __init__(
        self, asked: ResponseFields, model: str, created: int, kept: ResponseStore
    ) -> None:
        """Start.

        Args:
            asked: What the reader took of the request.
            model: The name to tell.
            created: Unix seconds.
            kept: Where items go that the client may refer to.
        """
        self._kept = kept
        self._asked = asked
        self._model = model
        self._created = created
        self._number = 0
        self._output: list[dict[str, Any]] = []
        self._item: OutputItem | None = None
        self._call = -1
        self._logprobs: list[dict[str, Any]] | None = None
        self._begun = b""

    def whole(self, winners: Sequence[PublicAnswer]) -> bytes:
        """The body of an answer that is not streamed."""
        for _ in self._tell(winners[0]):
            pass
        for item in self._output:
            if item["type"] == "reasoning":
                item["status"] = None
        return self._closed(winners[0])

    def opening(self) -> bytes:
        """Sent at admission, before any token."""
        self._begun = self._response("in_progress")
        return self._state("response.created", self._begun) + self.keepalive()

    def keepalive(self) -> bytes:
        """Says again that the response is in progress; clients count events."""
        return self._state("response.in_progress", self._begun)

    def piece(self, delta: Mapping[str, Any]) -> bytes:
        """One delta of a chat stream."""
        return self._events(self._piece(delta))

    def finish(self, winner: PublicAnswer) -> bytes:
        """Close the open item and the response; a winner of which nothing is told is told first."""
        if self._item is None and not self._output:
            end = self._events(self._tell(winner))
        else:
            if isinstance(self._item, MessageItem):
                self._item.logprobs = self._logprobs_of(winner)
            end = self._events(self._close())
        return end + self._state("response.completed", self._closed(winner))

    def answer(self, winners: Sequence[PublicAnswer]) -> bytes:
        """All events of the winner after `opening`."""
        return self.finish(winners[0])

    def error(self, refusal: ApiError) -> bytes:
        """The response has failed."""
        failed = self._response("failed", output=self._output, error=failure(refusal))
        return self._state("response.failed", failed)

    # --- the response -----------------------------------------------------------------------------

    def _closed(self, winner: PublicAnswer) -> bytes:
        if self._asked.store:
            for item in self._output:
                self._kept.put(item)
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
        echo = self._asked.echo
        told: dict[str, Any] = {
            "id": self._asked.response_id,
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
            told["error"] = error
        return _encode(told)

    # --- the events -------------------------------------------------------------------------------

    def _tell(self, winner: PublicAnswer) -> Iterator[Event]:
        self._logprobs = self._logprobs_of(winner)
        for delta, tokens in self._deltas(winner):
            yield from self._piece(delta, tokens)
        yield from self._close()

    def _deltas(self, winner: PublicAnswer) -> Iterator[tuple[dict[str, Any], list[Entry]]]:
        """The deltas of a winner, each with the tokens of its text where those were asked for."""
        text = winner.content
        entries = entries_of(winner.logprobs) if self._logprobs else []
        cut = AlignedTokens(entries).cut(text, last=True) if entries and text else []
        if not any(tokens for _, tokens in cut):
            yield from ((delta, []) for delta in deltas(winner))
            return
        yield from (({"reasoning": piece}, []) for piece in pieces(winner.reasoning or ""))
        yield from (({"content": piece}, tokens) for piece, tokens in cut)
        yield from ((delta, []) for delta in call_deltas(winner))

    def _piece(self, delta: Mapping[str, Any], tokens: Sequence[Entry] = ()) -> Iterator[Event]:
        if text := delta.get("reasoning") or delta.get("reasoning_content"):
            if not isinstance(self._item, ReasoningItem):
                yield from self._open(ReasoningItem(self._next()))
            yield from self._add(text)
        if text := delta.get("content"):
            if not isinstance(self._item, MessageItem):
                yield from self._open(MessageItem(self._next(), self._logprobs))
            if tokens and isinstance(self._item, MessageItem):
                self._item.untold = [_logprob(one) for one in tokens]
            yield from self._add(text)
        for call in delta.get("tool_calls") or ():
            function = call.get("function") or {}
            index = call.get("index") or 0
            if not isinstance(self._item, FunctionCallItem) or index != self._call:
                self._call = index
                yield from self._open(self._called(call.get("id"), function.get("name") or ""))
            if text := function.get("arguments"):
                yield from self._add(text)

    def _called(self, given: str | None, flat: str) -> FunctionCallItem:
        kind = CustomCallItem if flat in self._asked.custom else FunctionCallItem
        name, namespace = self._asked.names.get(flat, (flat, None))
        return kind(self._next(), given or call_id(), name, namespace)

    def _next(self) -> int:
        return len(self._output) + (self._item is not None)

    def _open(self, item: OutputItem) -> Iterator[Event]:
        yield from self._close()
        self._item = item
        yield from item.opened()

    def _add(self, text: str) -> Iterator[Event]:
        return iter(()) if self._item is None else self._item.added(text)

    def _close(self) -> Iterator[Event]:
        item, self._item = self._item, None
        if item is not None:
            self._output.append(item.whole())
            yield from item.closed()

    def _logprobs_of(self, winner: PublicAnswer) -> list[dict[str, Any]] | None:
        if not self._asked.logprobs or not isinstance(winner.logprobs, dict):
            return None
        told = winner.logprobs.get("content")
        return [_logprob(one) for one in told] if isinstance(told, list) else None

    def _events(self, events: Iterable[Event]) -> bytes:
        return b"".join([self._event(event) for event in events])

    def _state(self, kind: str, response: bytes) -> bytes:
        return self._event({"response": msgspec.Raw(response), "sequence_number": -1, "type": kind})

    def _event(self, event: Event) -> bytes:
        event["sequence_number"] = self._number
        self._number += 1
        return b"event: %s\ndata: %s\n\n" % (event["type"].encode(), _encode(event))


# --- figures and faults -------------------------------------------------------------------------


def usage_of(winner: PublicAnswer) -> dict[str, Any]:
    """The usage of the winner alone.

    A reasoning count the upstream does not give is told as 0: clients take nothing but a number.
    """
    usage = winner.usage
    prompt, completion = usage["prompt_tokens"], usage["completion_tokens"]
    read = usage.get("prompt_tokens_details") or {}
    thought = usage.get("completion_tokens_details") or {}
    return {
        "input_tokens": prompt,
        "input_tokens_details": {
            "cached_tokens": read.get("cached_tokens") or 0,
            "cache_write_tokens": 0,
            "input_tokens_per_turn": [],
            "cached_tokens_per_turn": [],
        },
        "output_tokens": completion,
        "output_tokens_details": {
            "reasoning_tokens": thought.get("reasoning_tokens") or 0,
            "tool_output_tokens": 0,
            "output_tokens_per_turn": [],
            "tool_output_tokens_per_turn": [],
        },
        "total_tokens": prompt + completion,
    }


def failure(refusal: ApiError) -> dict[str, str]:
    """The `error` of a failed response, in words that make agents do the right thing.

    Codex gives up on `invalid_prompt`, makes room on `context_length_exceeded`, waits as long as
    the message says on `rate_limit_exceeded`, and asks again on anything else.
    """
    message = refusal.message
    if isinstance(refusal, ProxyStopping | EngineOffline):
        return {"code": "server_error", "message": refusal.message}
    if refusal.status in (429, 503) and refusal.retry_after is not None:
        wait = f"{message} Please try again in {refusal.retry_after}s."
        return {"code": "rate_limit_exceeded", "message": wait}
    if "maximum context length" in message:
        return {"code": "context_length_exceeded", "message": message}
    code = "invalid_prompt" if refusal.status < 500 else "server_error"
    return {"code": code, "message": message}


def _logprob(one: Any) -> dict[str, Any]:
    one = one if isinstance(one, dict) else {}
    tops = one.get("top_logprobs")
    return _token(one) | {"top_logprobs": [_token(top) for top in tops or () if top]}


def _token(one: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "token": one.get("token", ""),
        "bytes": one.get("bytes") or [],
        "logprob": one.get("logprob", 0.0),
    }
