"""Legacy completions on the wire as vLLM writes them: the whole answer, or chunks. No I/O."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from proxy.dialects.chat.chunks import Chunks, fingerprint, share
from proxy.dialects.logprobs import AlignedTokens, Entry, entries_of, token_bytes
from proxy.dialects.request import ChatRequest, PublicAnswer, pieces, usage_of, whole_text
from proxy.dialects.tool_constraints import raw_calls
from proxy.http.errors import ApiError

_encode = msgspec.json.Encoder().encode

LOWEST = -9999.0
"""Stands for a log probability that JSON cannot tell."""


Prompt = str | list[int]
"""Text, or token ids."""


class CompletionFields(msgspec.Struct, frozen=True):
    """What only a legacy request has."""

    echo: tuple[str, ...]
    """The prompts, where they are to stand before their answers; else empty."""
    logprobs: int | None
    """Alternatives asked for with each token."""
    prompts: tuple[Prompt, ...] = ()
    """As they came."""


class CompletionsWriter:
    """Writes the answer to one legacy request.

    Args:
        request: The request, with `CompletionFields` in `extra`.
        model: The name to tell.
        created: Unix seconds.
    """

    def __init__(self, request: ChatRequest, model: str, created: int) -> None:
        self._request = request
        self._legacy: CompletionFields = request.extra
        self._head = {
            "id": f"cmpl-{request.request_id}",
            "object": "text_completion",
            "created": created,
            "model": model,
        }
        self._chunks = Chunks(self._head, request)
        self._choices = request.n * max(1, len(request.parts))
        self._ids = bool(request.body.get("return_token_ids"))
        self._live = False

    # --- the whole answer -----------------------------------------------------------------------

    def whole(self, winners: Sequence[PublicAnswer]) -> bytes:
        """The JSON body of an answer that is not streamed; one winner for each choice."""
        return _encode(
            {
                **self._head,
                "choices": [self._choice(index, one) for index, one in enumerate(winners)],
                "service_tier": None,
                "system_fingerprint": fingerprint(),
                "usage": {
                    **usage_of(winners, self._request.n if self._request.parts else 0),
                    "completion_tokens_details": None,
                },
                "kv_transfer_params": None,
                "ec_transfer_params": None,
                "metrics": None,
            }
        )

    def _choice(self, index: int, one: PublicAnswer) -> dict[str, Any]:
        entries = self._entries(one)
        echo = self._echo(index)
        return {
            "index": index,
            "text": echo + _text(one),
            "logprobs": legacy_logprobs(entries, len(echo), self._legacy.logprobs),
            "finish_reason": _reason(one),
            "stop_reason": one.stop_reason,
            "token_ids": one.token_ids if self._ids else None,
            "prompt_logprobs": one.prompt_logprobs,
            "prompt_token_ids": one.prompt_token_ids if self._ids else None,
            "routed_experts": None,
        }

    # --- a stream -------------------------------------------------------------------------------

    def opening(self) -> bytes:
        """A chunk for each choice: empty, or the prompt where it is echoed."""
        more = self._chunks.waiting()
        return b"".join(
            self._chunks.event(_chunk(at, self._echo(at)), more) for at in range(self._choices)
        )

    def keepalive(self) -> bytes:
        """An event that changes nothing."""
        return self._chunks.event(_chunk(0, ""), self._chunks.waiting())

    def answer(self, winners: Sequence[PublicAnswer]) -> bytes:
        """All pieces of all choices in turns, and the end."""
        turns = zip_longest(*map(self._pieces, range(len(winners)), winners), fillvalue=b"")
        return b"".join(event for turn in turns for event in turn) + self._end(winners)

    def piece(self, delta: Mapping[str, Any]) -> bytes:
        """One delta of choice 0 as it comes from the upstream; what is no text keeps alive."""
        self._live = True
        if content := delta.get("content"):
            told = _chunk(0, whole_text(str(content)))
            return self._chunks.event(told, self._chunks.waiting())
        return self.keepalive()

    def finish(self, winner: PublicAnswer) -> bytes:
        """The end after all pieces; with none before it the whole answer."""
        if not self._live:
            return self.answer([winner])
        entries = self._entries(winner)
        raw = _text(winner)[len(winner.content or "") :]
        return self._last(0, winner, raw, entries, len(self._echo(0))) + self._end([winner])

    def error(self, refusal: ApiError) -> bytes:
        """What ends a stream that has begun and cannot be finished."""
        return self._chunks.error(refusal)

    # --- events ---------------------------------------------------------------------------------

    def _pieces(self, at: int, one: PublicAnswer) -> Iterator[bytes]:
        """All events of one choice; the last piece of its text is its end."""
        timed, rest = self._timed(one)
        last, entries = timed.pop() if timed else ("", [])
        prompt, total = one.usage["prompt_tokens"], one.usage["completion_tokens"]
        size = sum(len(piece) for piece, _ in timed) + len(last)
        done, offset = 0, len(self._echo(at))
        for piece, tokens in timed:
            done += len(piece)
            logprobs = legacy_logprobs(tokens, offset, self._legacy.logprobs)
            offset += _told(logprobs)
            usage = self._chunks.usage(prompt, share(total, done, size))
            yield self._chunks.event(_chunk(at, piece, logprobs), usage)
        yield self._last(at, one, last, [*entries, *rest], offset)

    def _timed(self, one: PublicAnswer) -> tuple[list[tuple[str, list[Entry]]], list[Entry]]:
        text, entries = _text(one), self._entries(one)
        if not entries or not text:
            return [(piece, []) for piece in pieces(text)], entries
        aligned = AlignedTokens(entries)
        return aligned.cut(text, last=True), aligned.rest()

    def _last(
        self, at: int, one: PublicAnswer, text: str, entries: list[Entry], offset: int
    ) -> bytes:
        logprobs = legacy_logprobs(entries, offset, self._legacy.logprobs)
        told = _chunk(at, text, logprobs, _reason(one), one.stop_reason, self._token_ids(one))
        usage = self._chunks.usage(one.usage["prompt_tokens"], one.usage["completion_tokens"])
        return self._chunks.event(told, usage + self._chunks.mark)

    def _end(self, winners: Sequence[PublicAnswer]) -> bytes:
        """What follows the last choice that has an answer; the others end without one."""
        missing = range(len(winners), self._choices)
        more = self._chunks.waiting()
        told = (self._chunks.event(_chunk(at, "", None, "abort"), more) for at in missing)
        return b"".join(told) + self._chunks.end([_undetailed(one) for one in winners])

    def _echo(self, at: int) -> str:
        """What stands before the text of a choice."""
        return self._legacy.echo[at // self._request.n] if self._legacy.echo else ""

    def _entries(self, one: PublicAnswer) -> list[Entry]:
        return entries_of(one.logprobs) if self._legacy.logprobs is not None else []

    def _token_ids(self, one: PublicAnswer) -> tuple[Any, Any]:
        return (one.prompt_token_ids, one.token_ids) if self._ids else (None, None)


def _chunk(
    at: int,
    text: str,
    logprobs: Mapping[str, Any] | None = None,
    finish_reason: str | None = None,
    stop_reason: Any = None,
    token_ids: tuple[Any, Any] = (None, None),
) -> bytes:
    """A choice of a stream."""
    return _encode(
        {
            "index": at,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": finish_reason,
            "stop_reason": stop_reason,
            "prompt_token_ids": token_ids[0],
            "token_ids": token_ids[1],
        }
    )


def _text(one: PublicAnswer) -> str:
    """A message as bare text; a call in it as the model writes one."""
    parts = [one.content] if one.content else []
    if one.tool_calls:
        parts.append(raw_calls(one.tool_calls))
    return "\n".join(parts)


def _reason(one: PublicAnswer) -> str:
    return "stop" if one.finish_reason == "tool_calls" else one.finish_reason


def _undetailed(one: PublicAnswer) -> PublicAnswer:
    return msgspec.structs.replace(one, usage={**one.usage, "completion_tokens_details": None})


def _told(logprobs: Mapping[str, Any] | None) -> int:
    return sum(map(len, logprobs["tokens"])) if logprobs else 0


def legacy_logprobs(entries: Sequence[Entry], offset: int, most: int | None) -> Any:
    """Log probabilities in the legacy form: four lists, one place for each token.

    Args:
        entries: The tokens as chat completions tell them.
        offset: Characters of the text before the first of them.
        most: Alternatives told with each token; -1 for all there are, None for no logprobs.

    Returns:
        None when there are no tokens.
    """
    if not entries or most is None:
        return None
    tokens = [str(one.get("token") or token_bytes(one).decode(errors="replace")) for one in entries]
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token)
    return {
        "text_offset": offsets,
        "token_logprobs": [_logprob(one) for one in entries],
        "tokens": tokens,
        "top_logprobs": [
            _tops(one, token, most) for one, token in zip(entries, tokens, strict=True)
        ],
    }


def _tops(entry: Entry, token: str, most: int) -> dict[str, float]:
    """The token itself and its alternatives, the likeliest first among them."""
    tops = entry.get("top_logprobs")
    tops = [one for one in tops if isinstance(one, dict)] if isinstance(tops, list) else []
    found = {token: _logprob(entry)}
    for one in tops if most < 0 else tops[:most]:
        found.setdefault(str(one.get("token")), _logprob(one))
    return found


def _logprob(entry: Entry) -> float:
    told = entry.get("logprob")
    return max(told, LOWEST) if isinstance(told, int | float) else LOWEST
