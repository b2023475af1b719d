"""Writer of Anthropic Messages in vLLM's format: a complete message, or a stream. No I/O.

The keys, their order and the order of events match captures of a real server. In addition to what
vLLM sends, there are pings, which reset the timeouts of clients.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from core.dialects.errors import ApiError
from core.dialects.request import DialectRequest, Entry, PublicAnswer
from core.dialects.writer import Block, BlockStream, Writer, blocks, event_bytes

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

PING = b'event: ping\ndata: {"type":"ping"}\n\n'
STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'

_FORMS = {
    "reasoning": ("thinking", "thinking_delta", "thinking"),
    "content": ("text", "text_delta", "text"),
    "call": ("tool_use", "input_json_delta", "partial_json"),
}
"""Kind of block -> its type, the type of its deltas, and their field."""
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


class MessagesWriter(Writer):
    """Writer of the response to one request; see `Writer`. It does not transmit `created`.

    When a stream opens, the length of the prompt is not known yet: `message_start` reports the
    estimate in `request.extra`, or 0 if that is not an integer. The last `message_delta` has the
    real number.
    """

    def __init__(self, request: DialectRequest, model: str, created: int) -> None:
        super().__init__(request, model, created)
        self._head = {
            "id": f"chatcmpl-{request.request_id}",
            "type": "message",
            "role": "assistant",
        }
        self._blocks = _MessageBlocks()

    def body(self, winners: Sequence[PublicAnswer]) -> bytes:
        """Return the message of a response that is not streamed."""
        (answer,) = self._shown(winners)
        reason, stop = _stop_reason(answer)
        content = [
            {"type": _FORMS[block.kind][0], **_whole(block)}
            for block in blocks(with_valid_arguments(answer))
        ]
        return _encode(
            {
                **self._head,
                "content": content or [{"type": "text", "text": ""}],
                "model": self._model,
                "stop_reason": reason,
                **({} if stop is None else {"stop_sequence": stop}),
                "usage": _usage(answer),
                **answer.extension,
            }
        )

    def opening(self) -> bytes:
        """Return `message_start`, sent at admission."""
        estimate = self._request.extra
        message: dict[str, Any] = {
            **self._head,
            "content": [],
            "model": self._model,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": estimate if type(estimate) is int else 0, "output_tokens": 0},
        }
        return _event("message_start", message=message)

    def keepalive(self) -> bytes:
        """Return a ping, which is allowed anywhere in a stream."""
        return PING

    def empty_text(self) -> bytes:
        """Return a delta without text: it also resets timeouts that ignore pings."""
        return self._blocks.delta({"content": ""})

    def error(self, refusal: ApiError) -> bytes:
        """Return the error; no `message_stop` follows."""
        return self._blocks.close(with_held=False) + event_bytes("error", error_body(refusal))

    def _choice_events(self, index: int, answer: PublicAnswer) -> Iterator[bytes]:
        return super()._choice_events(index, with_valid_arguments(answer))

    def _end(self, answers: Sequence[PublicAnswer]) -> bytes:
        """Close the open block, then send stop reason and usage."""
        (answer,) = answers
        reason, stop = _stop_reason(answer)
        delta = {"stop_reason": reason, "stop_sequence": stop}
        last = _event("message_delta", delta=delta, usage=_usage(answer))
        return self._blocks.close() + last + STOP

    def _delta(self, index: int, delta: Mapping[str, Any], tokens: Sequence[Entry] = ()) -> bytes:
        return self._blocks.delta(delta)


class _MessageBlocks(BlockStream):
    def _start(self, block: Block) -> bytes:
        kind, _, field = _FORMS[block.kind]
        empty = {"id": block.call_id, "name": block.name, "input": {}}
        fields = empty if block.kind == "call" else {field: ""}
        content_block = {"type": kind, **fields}
        return _event("content_block_start", content_block=content_block, index=block.index)

    def _add(self, block: Block, text: str, tokens: Sequence[Entry]) -> bytes:
        _, kind, field = _FORMS[block.kind]
        return _change(block, kind, field, text)

    def _stop(self, block: Block) -> bytes:
        signed = b""
        if block.kind == "reasoning":
            signed = _change(block, "signature_delta", "signature", _signature(block.text))
        return signed + _event("content_block_stop", index=block.index)


def _change(block: Block, kind: str, field: str, text: str) -> bytes:
    return _event("content_block_delta", delta={"type": kind, field: text}, index=block.index)


def _event(kind: str, **fields: Any) -> bytes:
    return event_bytes(kind, _encode({"type": kind, **fields}))


def _whole(block: Block) -> dict[str, Any]:
    """Return the fields of a complete block."""
    if block.kind == "reasoning":
        return {"thinking": block.text, "signature": _signature(block.text)}
    if block.kind == "content":
        return {"text": block.text}
    return {"id": block.call_id, "name": block.name, "input": _input(block.text) or {}}


def _signature(thought: str) -> str:
    return hashlib.blake2b(thought.encode(), digest_size=16).hexdigest()


def _input(arguments: str) -> dict[str, Any] | None:
    """Parse a tool call's arguments; None unless they are a JSON object."""
    try:
        value = _decode(arguments)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def with_valid_arguments(answer: PublicAnswer) -> PublicAnswer:
    """Replace arguments that are not a JSON object by an empty one, as a complete message does."""
    calls = []
    for call in answer.tool_calls:
        function = call["function"]
        valid = _input(function["arguments"]) is not None
        calls.append(call if valid else {**call, "function": {**function, "arguments": "{}"}})
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
