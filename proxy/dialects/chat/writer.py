"""Writer of chat completions in vLLM's format: a complete body, or a stream. No I/O.

The keys, their order and which of them are null match captures of a real server.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from proxy.dialects.chat.chunks import Chunks, fingerprint, tokens_so_far
from proxy.dialects.logprobs import AlignedTokens, Entry, token_entries
from proxy.dialects.request import (
    ChatRequest,
    PublicAnswer,
    call_deltas,
    deltas,
    usage_of,
    valid_text,
)
from proxy.dialects.tool_constraints import (
    LiveCalls,
    apply_tool_choice,
    forbids_calls,
    forces_call,
    raw_calls,
)
from proxy.http.errors import ApiError

_encode = msgspec.json.Encoder().encode

DeltaTokens = tuple[dict[str, Any], list[Entry]]
"""A delta and its tokens."""


class ChatWriter:
    """Writer of the response to one chat request; see `proxy.dialects.base.Writer`.

    Args:
        request: The request.
        model: The model name in the response.
        created: Time of the response in Unix seconds.
        reasoning: Name of the field that holds the reasoning.
    """

    def __init__(
        self, request: ChatRequest, model: str, created: int, reasoning: str = "reasoning"
    ) -> None:
        self._request = request
        self._head = {
            "id": f"chatcmpl-{request.request_id}",
            "object": "chat.completion.chunk",
            "created": created,
            "model": model,
        }
        self._chunks = Chunks(self._head, request)
        self._field = reasoning
        self._logprobs = bool(request.body.get("logprobs"))
        self._ids = bool(request.body.get("return_token_ids"))
        self._live: LiveCalls | None = None

    # --- a complete body ------------------------------------------------------------------------

    def body(self, winners: Sequence[PublicAnswer]) -> bytes:
        """Return the JSON body of a response that is not streamed; one winner per choice."""
        answers = apply_tool_choice(winners, self._request)
        first = answers[0] if answers else None
        return _encode(
            {
                **self._head,
                "object": "chat.completion",
                "choices": [self._choice(index, answer) for index, answer in enumerate(answers)],
                "service_tier": None,
                "system_fingerprint": fingerprint(),
                "usage": usage_of(answers),
                "prompt_logprobs": first.prompt_logprobs if first else None,
                "prompt_token_ids": first.prompt_token_ids if first and self._ids else None,
                "prompt_text": first.prompt_text if first else None,
                "kv_transfer_params": None,
                "ec_transfer_params": None,
                "metrics": None,
            }
        )

    def _choice(self, index: int, answer: PublicAnswer) -> dict[str, Any]:
        content = answer.content
        if content is None and answer.tool_calls and forces_call(self._request.body):
            content = ""
        message: dict[str, Any] = {
            "role": "assistant",
            "content": content,
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
        }
        if answer.tool_calls:
            message["tool_calls"] = answer.tool_calls
        message[self._field] = answer.reasoning
        return {
            "index": index,
            "message": message,
            "logprobs": answer.logprobs if self._logprobs else None,
            "finish_reason": answer.finish_reason,
            "stop_reason": answer.stop_reason,
            "token_ids": answer.token_ids if self._ids else None,
            "routed_experts": None,
        }

    # --- a stream -------------------------------------------------------------------------------

    def opening(self) -> bytes:
        """Return the role chunks of all choices."""
        fields = self._chunks.prompt_usage() + b',"prompt_token_ids":null,"prompt_text":null'
        delta = {"role": "assistant", "content": ""}
        return b"".join(
            self._chunks.event(_empty_choice_json(index, delta), fields)
            for index in range(self._request.n)
        )

    def keepalive(self) -> bytes:
        """Return an empty chunk: SSE comments do not reset the timeouts of clients."""
        return self._chunks.event(_empty_choice_json(0, {}), self._chunks.prompt_usage())

    def answer(self, winners: Sequence[PublicAnswer]) -> bytes:
        """Return the events of all choices, interleaved, and the end."""
        answers = apply_tool_choice(winners, self._request)
        turns = zip_longest(
            *(self._choice_events(index, answer) for index, answer in enumerate(answers)),
            fillvalue=b"",
        )
        events = b"".join(event for turn in turns for event in turn)
        return events + self._end(answers)

    def delta_events(self, delta: Mapping[str, Any]) -> bytes:
        """Return the events of one delta of choice 0; a keepalive if it has no content."""
        if self._live is None:
            self._live = LiveCalls(self._request)
        public_deltas: list[dict[str, Any]] = []
        if reasoning := delta.get("reasoning") or delta.get("reasoning_content"):
            public_deltas.append({self._field: valid_text(str(reasoning))})
        if content := delta.get("content"):
            public_deltas.append({"content": valid_text(str(content))})
        for call in delta.get("tool_calls") or ():
            public_deltas += self._live.deltas(call)
        if not public_deltas:
            return self.keepalive()
        usage = self._chunks.prompt_usage()
        return b"".join(
            self._chunks.event(_choice_json(0, public_delta), usage)
            for public_delta in public_deltas
        )

    def finish(self, winner: PublicAnswer) -> bytes:
        """Return the end of a stream of deltas; without any delta, all events of the answer."""
        if self._live is None:
            return self.answer([winner])
        calls_text = b""
        if winner.tool_calls and forbids_calls(self._request.body):
            raw = ("\n" if winner.content else "") + raw_calls(winner.tool_calls)
            calls_text = self._chunks.event(
                _choice_json(0, {"content": raw}), self._chunks.prompt_usage()
            )
        (answer,) = apply_tool_choice([winner], self._request)
        entries = token_entries(answer.logprobs) if self._logprobs else []
        return (
            calls_text
            + self._closing_event(0, answer, entries, self._prompt_ids(0, answer))
            + self._end([answer])
        )

    def error(self, refusal: ApiError) -> bytes:
        """Return the end of a stream that cannot be finished."""
        return self._chunks.error(refusal)

    # --- events ---------------------------------------------------------------------------------

    def _choice_events(self, index: int, answer: PublicAnswer) -> Iterator[bytes]:
        """Yield all events of one choice; after a token limit, the last one has the last text."""
        parts, trailing = self._deltas_with_tokens(answer)
        last_delta: dict[str, Any] = {}
        if answer.finish_reason == "length" and parts and "tool_calls" not in parts[-1][0]:
            last_delta, entries = parts.pop()
            trailing = [*entries, *trailing]
        all_chars = sum(_length(delta) for delta, _ in parts)
        prompt, total = answer.usage["prompt_tokens"], answer.usage["completion_tokens"]
        prompt_ids = self._prompt_ids(index, answer)
        sent_chars = 0
        for delta, entries in parts:
            sent_chars += _length(delta)
            usage = self._chunks.usage(prompt, tokens_so_far(total, sent_chars, all_chars))
            yield self._chunks.event(_choice_json(index, delta, entries), usage + prompt_ids)
            prompt_ids = b""
        yield self._closing_event(index, answer, trailing, prompt_ids, last_delta)

    def _deltas_with_tokens(self, answer: PublicAnswer) -> tuple[list[DeltaTokens], list[Entry]]:
        """Split an answer into deltas with their tokens; also return the remaining tokens."""
        entries = token_entries(answer.logprobs) if self._logprobs else []
        if not entries:
            return [(delta, []) for delta in deltas(answer, self._field)], []
        aligned = AlignedTokens(entries)
        result: list[DeltaTokens] = []
        for name, text in ((self._field, answer.reasoning), ("content", answer.content)):
            if text:
                split = aligned.cut(text, last=name == "content")
                result += [({name: piece}, tokens) for piece, tokens in split]
        calls: list[DeltaTokens] = [(delta, []) for delta in call_deltas(answer)]
        if calls:
            calls[0] = (calls[0][0], aligned.rest())
            return result + calls, []
        return result, aligned.rest()

    def _closing_event(
        self,
        index: int,
        answer: PublicAnswer,
        entries: list[Entry],
        fields: bytes = b"",
        delta: Mapping[str, Any] | None = None,
    ) -> bytes:
        """Return the event that ends a choice."""
        choice = {
            "index": index,
            "delta": delta or {},
            "logprobs": {"content": entries} if entries else None,
            "finish_reason": answer.finish_reason,
            "stop_reason": answer.stop_reason,
            "token_ids": answer.token_ids if self._ids else None,
        }
        usage = self._chunks.usage(answer.usage["prompt_tokens"], answer.usage["completion_tokens"])
        return self._chunks.event(_encode(choice), usage + self._chunks.last_fields + fields)

    def _end(self, winners: Sequence[PublicAnswer]) -> bytes:
        """Return the end of the stream; choices without an answer end with `abort`."""
        closing = b""
        for index in range(len(winners), self._request.n):
            choice = {
                "index": index,
                "delta": {},
                "logprobs": None,
                "finish_reason": "abort",
                "stop_reason": None,
                "token_ids": None,
            }
            closing += self._chunks.event(_encode(choice), self._chunks.prompt_usage())
        return closing + self._chunks.end(winners)

    def _prompt_ids(self, index: int, answer: PublicAnswer) -> bytes:
        if index or not self._ids or answer.prompt_token_ids is None:
            return b""
        return b',"prompt_token_ids":' + _encode(answer.prompt_token_ids)


def _empty_choice_json(index: int, delta: Mapping[str, Any]) -> bytes:
    """Encode a choice without any token of the model."""
    head = b'{"index":%d,"delta":' % index + _encode(delta)
    return head + b',"logprobs":null,"finish_reason":null}'


def _choice_json(index: int, delta: Mapping[str, Any], entries: Sequence[Entry] = ()) -> bytes:
    """Encode a choice with a part of the answer."""
    logprobs = b'{"content":' + _encode(entries) + b"}" if entries else b"null"
    head = b'{"index":%d,"delta":' % index + _encode(delta) + b',"logprobs":' + logprobs
    return head + b',"finish_reason":null,"token_ids":null}'


def _length(delta: Mapping[str, Any]) -> int:
    """Return the number of characters in a delta."""
    for call in delta.get("tool_calls") or ():
        return len(call["function"].get("arguments") or call["function"].get("name") or "")
    return sum(len(text) for text in delta.values() if text)
