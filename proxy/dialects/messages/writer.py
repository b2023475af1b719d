"""Writer of Anthropic Messages in vLLM's format: a complete message, or a stream. No I/O.

The keys, their order and the order of events match captures of a real server. In addition to what
vLLM sends, there are pings, which reset the timeouts of clients.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from proxy.dialects.request import ChatRequest, PublicAnswer, deltas, valid_text
from proxy.dialects.tool_constraints import LiveCalls, apply_tool_choice, forbids_calls, raw_calls
from proxy.http.errors import ApiError

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

PING = b'event: ping\ndata: {"type":"ping"}\n\n'
STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'

_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def error_body(refusal: ApiError) -> bytes:
    """Return an error in Anthropic's form: the body of a response or the data of an event."""
    kind = _ERRORS.get(refusal.status)
    if kind is None:
        kind = "api_error" if refusal.status >= 500 else "invalid_request_error"
    error: dict[str, Any] = {"type": kind, "message": refusal.message}
    if refusal.details is not None:
        error["details"] = refusal.details
    return _encode({"type": "error", "error": error})


class MessagesWriter:
    """Writer of the response to one request; see `proxy.dialects.base.Writer`.

    When a stream opens, the length of the prompt is not known yet: `message_start` reports the
    estimate in `request.extra`, or 0 if that is not an integer. The last `message_delta` has the
    real number.
    """

    def __init__(self, request: ChatRequest, model: str, created: int) -> None:
        """Start a response; this dialect does not transmit `created`."""
        self._request = request
        self._id = f"chatcmpl-{request.request_id}"
        self._model = model
        estimate = request.extra
        self._prompt = (
            estimate if isinstance(estimate, int) and not isinstance(estimate, bool) else 0
        )
        self._index = 0
        self._open = ""  # type of the open content block; empty for none
        self._signature = hashlib.blake2b(digest_size=16)
        self._live: LiveCalls | None = None
        self._call = -1  # index of the open tool call
        self._pending_text: list[str] = []  # text that arrived within a tool call

    def body(self, winners: Sequence[PublicAnswer]) -> bytes:
        """Return the message of a response that is not streamed; this dialect has one choice."""
        (answer,) = apply_tool_choice(winners[:1], self._request)
        reason, stop = _stop_reason(answer)
        message: dict[str, Any] = {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "content": list(_blocks(answer)) or [{"type": "text", "text": ""}],
            "model": self._model,
            "stop_reason": reason,
        }
        if stop is not None:
            message["stop_sequence"] = stop
        message["usage"] = _usage(answer)
        return _encode(message)

    def opening(self) -> bytes:
        """Return `message_start`, sent at admission."""
        message: dict[str, Any] = {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": self._model,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": self._prompt, "output_tokens": 0},
        }
        return _event("message_start", {"message": message})

    def keepalive(self) -> bytes:
        """Return a ping, which is allowed anywhere in a stream."""
        return PING

    def answer(self, winners: Sequence[PublicAnswer]) -> bytes:
        """Return all events of the answer after `opening`."""
        (answer,) = apply_tool_choice(winners[:1], self._request)
        events = [
            event
            for delta in deltas(_with_valid_arguments(answer))
            for event in self._convert(delta)
        ]
        return b"".join(events) + self._end(answer)

    def delta_events(self, delta: Mapping[str, Any]) -> bytes:
        """Return the events of one delta of a chat stream; a ping if it has no content."""
        if self._live is None:
            self._live = LiveCalls(self._request)
        events: list[bytes] = []
        if thought := delta.get("reasoning") or delta.get("reasoning_content"):
            events += self._convert({"reasoning": valid_text(str(thought))})
        if text := delta.get("content"):
            events += self._convert({"content": valid_text(str(text))})
        for call in delta.get("tool_calls") or ():
            for part in self._live.deltas(call):
                events += self._convert(part)
        return b"".join(events) or PING

    def finish(self, winner: PublicAnswer) -> bytes:
        """Return the end of a stream of deltas; without any delta, all events of the answer."""
        if self._live is None:
            return self.answer([winner])
        events: list[bytes] = []
        if winner.tool_calls and forbids_calls(self._request.body):
            raw = ("\n" if winner.content else "") + raw_calls(winner.tool_calls)
            events += self._convert({"content": raw})
        (answer,) = apply_tool_choice([winner], self._request)
        return b"".join(events) + self._end(answer)

    def error(self, refusal: ApiError) -> bytes:
        """Return the end of a stream that cannot be finished; no `message_stop` follows."""
        self._pending_text.clear()
        return b"".join(self._close()) + b"event: error\ndata: " + error_body(refusal) + b"\n\n"

    # --- blocks -----------------------------------------------------------------------------

    def _end(self, answer: PublicAnswer) -> bytes:
        """Close the open block, then send stop reason and usage."""
        reason, stop = _stop_reason(answer)
        delta = {"stop_reason": reason, "stop_sequence": stop}
        last = _event("message_delta", {"delta": delta, "usage": _usage(answer)})
        return b"".join(self._close()) + last + STOP

    def _convert(self, delta: Mapping[str, Any]) -> Iterator[bytes]:
        """Yield the events of a delta that has one kind of content."""
        if thought := delta.get("reasoning"):
            yield from self._start("thinking", {"thinking": ""})
            self._signature.update(thought.encode())
            yield self._block_delta({"type": "thinking_delta", "thinking": thought})
        elif text := delta.get("content"):
            if self._open == "tool_use":
                self._pending_text.append(
                    text
                )  # a text block here would cut off the call's arguments
            else:
                yield from self._text(text)
        for call in delta.get("tool_calls") or ():
            yield from self._tool(call)

    def _text(self, text: str) -> Iterator[bytes]:
        yield from self._start("text", {"text": ""})
        yield self._block_delta({"type": "text_delta", "text": text})

    def _tool(self, call: Mapping[str, Any]) -> Iterator[bytes]:
        """Yield the events of a call's delta: the first has an id, the others arguments."""
        if call_id := call.get("id"):
            yield from self._close()
            self._call = call["index"]
            block = {"id": call_id, "name": call["function"]["name"], "input": {}}
            yield from self._start("tool_use", block)
        elif self._open == "tool_use" and self._call == call["index"]:
            arguments = call["function"]["arguments"]
            yield self._block_delta({"type": "input_json_delta", "partial_json": arguments})

    def _start(self, kind: str, block: dict[str, Any]) -> Iterator[bytes]:
        if self._open == kind:
            return
        yield from self._close()
        self._open = kind
        block = {"type": kind, **block}
        yield _event("content_block_start", {"content_block": block, "index": self._index})

    def _block_delta(self, delta: dict[str, Any]) -> bytes:
        return _event("content_block_delta", {"delta": delta, "index": self._index})

    def _close(self) -> Iterator[bytes]:
        if not self._open:
            return
        if self._open == "thinking":
            signature = self._signature.hexdigest()
            yield self._block_delta({"type": "signature_delta", "signature": signature})
            self._signature = hashlib.blake2b(digest_size=16)
        yield _event("content_block_stop", {"index": self._index})
        self._open = ""
        self._index += 1
        if self._pending_text:
            text = "".join(self._pending_text)
            self._pending_text.clear()
            yield from self._text(text)
            yield from self._close()


def _event(kind: str, fields: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), _encode({"type": kind, **fields}))


def _blocks(answer: PublicAnswer) -> Iterator[dict[str, Any]]:
    if answer.reasoning:
        signature = hashlib.blake2b(answer.reasoning.encode(), digest_size=16)
        yield {
            "type": "thinking",
            "thinking": answer.reasoning,
            "signature": signature.hexdigest(),
        }
    if answer.content:
        yield {"type": "text", "text": answer.content}
    for call in answer.tool_calls:
        function = call["function"]
        tool_input = _input(function["arguments"]) or {}
        yield {"type": "tool_use", "id": call["id"], "name": function["name"], "input": tool_input}


def _input(arguments: str) -> dict[str, Any] | None:
    """Parse a tool call's arguments; None unless they are a JSON object."""
    try:
        value = _decode(arguments)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _with_valid_arguments(answer: PublicAnswer) -> PublicAnswer:
    """Replace arguments that are not a JSON object by none, as a complete message does."""
    if all(_input(call["function"]["arguments"]) is not None for call in answer.tool_calls):
        return answer
    calls = []
    for call in answer.tool_calls:
        function = call["function"]
        valid = _input(function["arguments"]) is not None
        arguments = function["arguments"] if valid else ""
        calls.append({**call, "function": {**function, "arguments": arguments}})
    return msgspec.structs.replace(answer, tool_calls=calls)


def _stop_reason(answer: PublicAnswer) -> tuple[str, str | None]:
    """Return the stop reason, and the stop string that ended the answer.

    Complete tool calls take precedence over a stop string; calls that it cut must not be run.
    """
    if answer.finish_reason == "length":
        return "max_tokens", None
    complete = [_input(call["function"]["arguments"]) is not None for call in answer.tool_calls]
    if complete and all(complete):
        return "tool_use", None
    if isinstance(answer.stop_reason, str):
        return "stop_sequence", answer.stop_reason
    if complete:
        return "tool_use", None
    return ("refusal" if answer.finish_reason == "content_filter" else "end_turn"), None


def _usage(answer: PublicAnswer) -> dict[str, int]:
    """Return the usage; its three counts of input add up to the prompt, as Anthropic's do.

    Without a count of cached tokens from the upstream the `cache_*` fields are missing.
    """
    prompt, details = answer.usage["prompt_tokens"], answer.usage.get("prompt_tokens_details")
    usage = {"input_tokens": prompt, "output_tokens": answer.usage["completion_tokens"]}
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    if type(cached) is not int or not 0 <= cached <= prompt:
        return usage
    cache = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": cached}
    return usage | cache | {"input_tokens": prompt - cached}
