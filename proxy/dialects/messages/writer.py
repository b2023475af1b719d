"""Anthropic Messages on the wire as vLLM writes them: the whole message, or events. No I/O.

Key sets, their order and the order of events follow captures of a real server. What vLLM does not
send are the pings, which keep clients alive that count events. Usage counts the whole prompt:
there are no `cache_*` fields that a part of it would hide in.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from proxy.dialects.request import ChatRequest, PublicAnswer, deltas, whole_text
from proxy.dialects.tool_constraints import LiveCalls, fitted, raw_calls, refuses_calls
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
}


def error_body(refusal: ApiError) -> bytes:
    """An error in Anthropic's words, as the body of an answer or the data of an event."""
    kind = _ERRORS.get(refusal.status)
    if kind is None:
        kind = "api_error" if refusal.status >= 500 else "invalid_request_error"
    error: dict[str, Any] = {"type": kind, "message": refusal.message}
    if refusal.details is not None:
        error["details"] = refusal.details
    return _encode({"type": "error", "error": error})


class MessagesWriter:
    """Writes the answer to one request; a `Writer`.

    Where a stream opens, the length of the prompt is not known yet: `message_start` tells
    `request.extra` when that is a number (an estimate), else 0. The last `message_delta` has the
    real one.
    """

    def __init__(self, request: ChatRequest, model: str, created: int) -> None:
        """`created` is not told in this dialect."""
        self._request = request
        self._id = f"chatcmpl-{request.request_id}"
        self._model = model
        told = request.extra
        self._prompt = told if isinstance(told, int) and not isinstance(told, bool) else 0
        self._index = 0
        self._open = ""  # kind of the block that is being told
        self._signature = hashlib.blake2b(digest_size=16)
        self._live: LiveCalls | None = None
        self._call = -1  # index of the tool call that is being told
        self._held: list[str] = []  # text that came inside a tool call

    def whole(self, winners: Sequence[PublicAnswer]) -> bytes:
        """The message of an answer that is not streamed; this dialect has one choice."""
        (one,) = fitted(winners[:1], self._request)
        reason, stop = _stop(one)
        message: dict[str, Any] = {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "content": list(_blocks(one)) or [{"type": "text", "text": ""}],
            "model": self._model,
            "stop_reason": reason,
        }
        if stop is not None:
            message["stop_sequence"] = stop
        message["usage"] = _usage(one)
        return _encode(message)

    def opening(self) -> bytes:
        """`message_start`, sent at admission."""
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
        """A ping: allowed anywhere in a stream, changes nothing."""
        return PING

    def answer(self, winners: Sequence[PublicAnswer]) -> bytes:
        """The whole answer after `opening`."""
        (one,) = fitted(winners[:1], self._request)
        told = [event for delta in deltas(_callable(one)) for event in self._delta(delta)]
        return b"".join(told) + self._end(one)

    def piece(self, delta: Mapping[str, Any]) -> bytes:
        """One delta of a chat stream as the events it makes; a ping when it makes none."""
        if self._live is None:
            self._live = LiveCalls(self._request)
        told: list[bytes] = []
        if thought := delta.get("reasoning") or delta.get("reasoning_content"):
            told += self._delta({"reasoning": whole_text(str(thought))})
        if text := delta.get("content"):
            told += self._delta({"content": whole_text(str(text))})
        for call in delta.get("tool_calls") or ():
            for part in self._live.deltas(call):
                told += self._delta(part)
        return b"".join(told) or PING

    def finish(self, winner: PublicAnswer) -> bytes:
        """The end after all pieces; with none before it the whole answer."""
        if self._live is None:
            return self.answer([winner])
        told: list[bytes] = []
        if winner.tool_calls and refuses_calls(self._request.body):
            raw = ("\n" if winner.content else "") + raw_calls(winner.tool_calls)
            told += self._delta({"content": raw})
        (one,) = fitted([winner], self._request)
        return b"".join(told) + self._end(one)

    def error(self, refusal: ApiError) -> bytes:
        """The end of a stream that cannot be finished: no `message_stop` follows."""
        self._held.clear()
        return b"".join(self._close()) + b"event: error\ndata: " + error_body(refusal) + b"\n\n"

    # --- blocks -----------------------------------------------------------------------------

    def _end(self, one: PublicAnswer) -> bytes:
        """The open block is closed, then stop reason and usage."""
        reason, stop = _stop(one)
        delta = {"stop_reason": reason, "stop_sequence": stop}
        last = _event("message_delta", {"delta": delta, "usage": _usage(one)})
        return b"".join(self._close()) + last + STOP

    def _delta(self, delta: Mapping[str, Any]) -> Iterator[bytes]:
        """The events of one delta that has one kind of news."""
        if thought := delta.get("reasoning"):
            yield from self._start("thinking", {"thinking": ""})
            self._signature.update(thought.encode())
            yield self._told({"type": "thinking_delta", "thinking": thought})
        elif text := delta.get("content"):
            if self._open == "tool_use":
                self._held.append(text)  # a block begun now would cut the call's arguments off
            else:
                yield from self._text(text)
        for call in delta.get("tool_calls") or ():
            yield from self._tool(call)

    def _text(self, text: str) -> Iterator[bytes]:
        yield from self._start("text", {"text": ""})
        yield self._told({"type": "text_delta", "text": text})

    def _tool(self, call: Mapping[str, Any]) -> Iterator[bytes]:
        """A call's begin has its id; what goes on has a piece of its arguments."""
        if named := call.get("id"):
            yield from self._close()
            self._call = call["index"]
            block = {"id": named, "name": call["function"]["name"], "input": {}}
            yield from self._start("tool_use", block)
        elif self._open == "tool_use" and self._call == call["index"]:
            arguments = call["function"]["arguments"]
            yield self._told({"type": "input_json_delta", "partial_json": arguments})

    def _start(self, kind: str, block: dict[str, Any]) -> Iterator[bytes]:
        if self._open == kind:
            return
        yield from self._close()
        self._open = kind
        block = {"type": kind, **block}
        yield _event("content_block_start", {"content_block": block, "index": self._index})

    def _told(self, delta: dict[str, Any]) -> bytes:
        return _event("content_block_delta", {"delta": delta, "index": self._index})

    def _close(self) -> Iterator[bytes]:
        if not self._open:
            return
        if self._open == "thinking":
            signature = self._signature.hexdigest()
            yield self._told({"type": "signature_delta", "signature": signature})
            self._signature = hashlib.blake2b(digest_size=16)
        yield _event("content_block_stop", {"index": self._index})
        self._open = ""
        self._index += 1
        if self._held:
            text = "".join(self._held)
            self._held.clear()
            yield from self._text(text)
            yield from self._close()


def _event(kind: str, fields: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), _encode({"type": kind, **fields}))


def _blocks(one: PublicAnswer) -> Iterator[dict[str, Any]]:
    if one.reasoning:
        signature = hashlib.blake2b(one.reasoning.encode(), digest_size=16)
        yield {
            "type": "thinking",
            "thinking": one.reasoning,
            "signature": signature.hexdigest(),
        }
    if one.content:
        yield {"type": "text", "text": one.content}
    for call in one.tool_calls:
        function = call["function"]
        given = _input(function["arguments"]) or {}
        yield {"type": "tool_use", "id": call["id"], "name": function["name"], "input": given}


def _input(arguments: str) -> dict[str, Any] | None:
    """A tool call's arguments as the object they must be, else None."""
    try:
        given = _decode(arguments)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return given if isinstance(given, dict) else None


def _callable(one: PublicAnswer) -> PublicAnswer:
    """Arguments that are no object are told as none at all, as in a message told whole."""
    if all(_input(call["function"]["arguments"]) is not None for call in one.tool_calls):
        return one
    calls = []
    for call in one.tool_calls:
        function = call["function"]
        sound = _input(function["arguments"]) is not None
        arguments = function["arguments"] if sound else ""
        calls.append({**call, "function": {**function, "arguments": arguments}})
    return msgspec.structs.replace(one, tool_calls=calls)


def _stop(one: PublicAnswer) -> tuple[str, str | None]:
    """Why it ended, and the stop string it met.

    A call that is complete goes before a stop string; one cut short by it must not be run.
    """
    if one.finish_reason == "length":
        return "max_tokens", None
    whole = [_input(call["function"]["arguments"]) is not None for call in one.tool_calls]
    if whole and all(whole):
        return "tool_use", None
    if isinstance(one.stop_reason, str):
        return "stop_sequence", one.stop_reason
    if whole:
        return "tool_use", None
    return ("refusal" if one.finish_reason == "content_filter" else "end_turn"), None


def _usage(one: PublicAnswer) -> dict[str, int]:
    return {
        "input_tokens": one.usage["prompt_tokens"],
        "output_tokens": one.usage["completion_tokens"],
    }
