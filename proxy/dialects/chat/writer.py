"""Chat completions on the wire as vLLM writes them: the whole answer, or chunks. No I/O.

Key sets, their order and which keys are null follow captures of a real server.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from proxy.dialects.chat.chunks import Chunks, fingerprint, share
from proxy.dialects.logprobs import AlignedTokens, Entry, entries_of
from proxy.dialects.request import (
    ChatRequest,
    PublicAnswer,
    call_deltas,
    deltas,
    usage_of,
    whole_text,
)
from proxy.dialects.tool_constraints import LiveCalls, fitted, is_forced, raw_calls, refuses_calls
from proxy.http.errors import ApiError

_encode = msgspec.json.Encoder().encode

Timed = tuple[dict[str, Any], list[Entry]]
"""A delta and the tokens it is made of."""


class ChatWriter:
    """Writes the answer to one chat request: one id, one time, one model in all of it.

    Args:
        request: The request.
        model: The name to tell.
        created: Unix seconds.
        reasoning: The field reasoning is told in.
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

    # --- the whole answer -----------------------------------------------------------------------

    def whole(self, winners: Sequence[PublicAnswer]) -> bytes:
        """The JSON body of an answer that is not streamed; one winner for each choice."""
        fit = fitted(winners, self._request)
        first = fit[0] if fit else None
        return _encode(
            {
                **self._head,
                "object": "chat.completion",
                "choices": [self._choice(index, one) for index, one in enumerate(fit)],
                "service_tier": None,
                "system_fingerprint": fingerprint(),
                "usage": usage_of(fit),
                "prompt_logprobs": first.prompt_logprobs if first else None,
                "prompt_token_ids": first.prompt_token_ids if first and self._ids else None,
                "prompt_text": first.prompt_text if first else None,
                "kv_transfer_params": None,
                "ec_transfer_params": None,
                "metrics": None,
            }
        )

    def _choice(self, index: int, one: PublicAnswer) -> dict[str, Any]:
        content = one.content
        if content is None and one.tool_calls and is_forced(self._request.body):
            content = ""
        message: dict[str, Any] = {
            "role": "assistant",
            "content": content,
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
        }
        if one.tool_calls:
            message["tool_calls"] = one.tool_calls
        message[self._field] = one.reasoning
        return {
            "index": index,
            "message": message,
            "logprobs": one.logprobs if self._logprobs else None,
            "finish_reason": one.finish_reason,
            "stop_reason": one.stop_reason,
            "token_ids": one.token_ids if self._ids else None,
            "routed_experts": None,
        }

    # --- a stream -------------------------------------------------------------------------------

    def opening(self) -> bytes:
        """The role chunks of all choices."""
        more = self._chunks.waiting() + b',"prompt_token_ids":null,"prompt_text":null'
        delta = {"role": "assistant", "content": ""}
        return b"".join(
            self._chunks.event(_quiet(at, delta), more) for at in range(self._request.n)
        )

    def keepalive(self) -> bytes:
        """An event that changes nothing; clients count events, comments do not keep them alive."""
        return self._chunks.event(_quiet(0, {}), self._chunks.waiting())

    def answer(self, winners: Sequence[PublicAnswer]) -> bytes:
        """All pieces of all choices in turns, and the end."""
        fit = fitted(winners, self._request)
        turns = zip_longest(*(self._pieces(at, one) for at, one in enumerate(fit)), fillvalue=b"")
        told = b"".join(event for turn in turns for event in turn)
        return told + self._end(fit)

    def piece(self, delta: Mapping[str, Any]) -> bytes:
        """One delta of choice 0 as it comes from the upstream."""
        if self._live is None:
            self._live = LiveCalls(self._request)
        told: list[dict[str, Any]] = []
        if reasoning := delta.get("reasoning") or delta.get("reasoning_content"):
            told.append({self._field: whole_text(str(reasoning))})
        if content := delta.get("content"):
            told.append({"content": whole_text(str(content))})
        for call in delta.get("tool_calls") or ():
            told += self._live.deltas(call)
        if not told:
            return self.keepalive()
        more = self._chunks.waiting()
        return b"".join(self._chunks.event(_spoken(0, one), more) for one in told)

    def finish(self, winner: PublicAnswer) -> bytes:
        """The end after all pieces; with none before it the whole answer."""
        if self._live is None:
            return self.answer([winner])
        held = b""
        if winner.tool_calls and refuses_calls(self._request.body):
            raw = ("\n" if winner.content else "") + raw_calls(winner.tool_calls)
            held = self._chunks.event(_spoken(0, {"content": raw}), self._chunks.waiting())
        (fit,) = fitted([winner], self._request)
        entries = entries_of(fit.logprobs) if self._logprobs else []
        return held + self._last(0, fit, entries, self._prompt_ids(0, fit)) + self._end([fit])

    def error(self, refusal: ApiError) -> bytes:
        """What ends a stream that has begun and cannot be finished."""
        return self._chunks.error(refusal)

    # --- events ---------------------------------------------------------------------------------

    def _pieces(self, at: int, one: PublicAnswer) -> Iterator[bytes]:
        """All events of one choice. Where a limit ended it, its last text comes with the end."""
        timed, rest = self._timed(one)
        end: dict[str, Any] = {}
        if one.finish_reason == "length" and timed and "tool_calls" not in timed[-1][0]:
            end, entries = timed.pop()
            rest = [*entries, *rest]
        size = sum(_length(delta) for delta, _ in timed)
        prompt, total = one.usage["prompt_tokens"], one.usage["completion_tokens"]
        first = self._prompt_ids(at, one)
        done = 0
        for delta, entries in timed:
            done += _length(delta)
            usage = self._chunks.usage(prompt, share(total, done, size))
            yield self._chunks.event(_spoken(at, delta, entries), usage + first)
            first = b""
        yield self._last(at, one, rest, first, end)

    def _timed(self, one: PublicAnswer) -> tuple[list[Timed], list[Entry]]:
        """The deltas of a winner with the tokens of each, and the tokens that are left."""
        entries = entries_of(one.logprobs) if self._logprobs else []
        if not entries:
            return [(delta, []) for delta in deltas(one, self._field)], []
        aligned = AlignedTokens(entries)
        found: list[Timed] = []
        for name, text in ((self._field, one.reasoning), ("content", one.content)):
            if text:
                cut = aligned.cut(text, last=name == "content")
                found += [({name: piece}, tokens) for piece, tokens in cut]
        calls: list[Timed] = [(delta, []) for delta in call_deltas(one)]
        if calls:
            calls[0] = (calls[0][0], aligned.rest())
            return found + calls, []
        return found, aligned.rest()

    def _last(
        self,
        at: int,
        one: PublicAnswer,
        entries: list[Entry],
        more: bytes = b"",
        delta: Mapping[str, Any] | None = None,
    ) -> bytes:
        """The event that ends a choice."""
        choice = {
            "index": at,
            "delta": delta or {},
            "logprobs": {"content": entries} if entries else None,
            "finish_reason": one.finish_reason,
            "stop_reason": one.stop_reason,
            "token_ids": one.token_ids if self._ids else None,
        }
        usage = self._chunks.usage(one.usage["prompt_tokens"], one.usage["completion_tokens"])
        return self._chunks.event(_encode(choice), usage + self._chunks.mark + more)

    def _end(self, winners: Sequence[PublicAnswer]) -> bytes:
        """What follows the last choice that has an answer; the others end without one."""
        told = b""
        for at in range(len(winners), self._request.n):
            choice = {
                "index": at,
                "delta": {},
                "logprobs": None,
                "finish_reason": "abort",
                "stop_reason": None,
                "token_ids": None,
            }
            told += self._chunks.event(_encode(choice), self._chunks.waiting())
        return told + self._chunks.end(winners)

    def _prompt_ids(self, at: int, one: PublicAnswer) -> bytes:
        if at or not self._ids or one.prompt_token_ids is None:
            return b""
        return b',"prompt_token_ids":' + _encode(one.prompt_token_ids)


def _quiet(at: int, delta: Mapping[str, Any]) -> bytes:
    """A choice with no token of the model in it."""
    told = b'{"index":%d,"delta":' % at + _encode(delta)
    return told + b',"logprobs":null,"finish_reason":null}'


def _spoken(at: int, delta: Mapping[str, Any], entries: Sequence[Entry] = ()) -> bytes:
    """A choice with a piece of the answer."""
    logprobs = b'{"content":' + _encode(entries) + b"}" if entries else b"null"
    told = b'{"index":%d,"delta":' % at + _encode(delta) + b',"logprobs":' + logprobs
    return told + b',"finish_reason":null,"token_ids":null}'


def _length(delta: Mapping[str, Any]) -> int:
    """Characters a delta tells."""
    for call in delta.get("tool_calls") or ():
        return len(call["function"].get("arguments") or call["function"].get("name") or "")
    return sum(len(text) for text in delta.values() if text)
