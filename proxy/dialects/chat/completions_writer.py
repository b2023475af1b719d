"""Writer of legacy completions in vLLM's format: a complete body, or a stream. No I/O."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from proxy.dialects.chat.chunks import Chunks, fingerprint, tokens_so_far
from proxy.dialects.logprobs import AlignedTokens, Entry, token_bytes, token_entries
from proxy.dialects.request import ChatRequest, PublicAnswer, pieces, usage_of, valid_text
from proxy.dialects.tool_constraints import raw_calls
from proxy.http.errors import ApiError

_encode = msgspec.json.Encoder().encode

LOWEST = -9999.0
"""Replaces a log probability of minus infinity, which JSON cannot represent."""


Prompt = str | list[int]
"""Text or token ids."""


class CompletionFields(msgspec.Struct, frozen=True):
    """The fields that only legacy requests have."""

    echo: tuple[str, ...]
    """The prompts to repeat before their answers; empty without `echo`, and with `logprobs`."""
    logprobs: int | None
    """Requested alternatives per token; None for no logprobs."""
    prompts: tuple[Prompt, ...] = ()
    """The prompts as the client sent them."""


class CompletionsWriter:
    """Writer of the response to one legacy request; see `proxy.dialects.base.Writer`.

    Args:
        request: The request, with `CompletionFields` in `extra`.
        model: The model name in the response.
        created: Time of the response in Unix seconds.
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

    # --- a complete body ------------------------------------------------------------------------

    def body(self, winners: Sequence[PublicAnswer]) -> bytes:
        """Return the JSON body of a response that is not streamed; one winner per choice."""
        return _encode(
            {
                **self._head,
                "choices": [self._choice(index, answer) for index, answer in enumerate(winners)],
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

    def _choice(self, index: int, answer: PublicAnswer) -> dict[str, Any]:
        entries = self._entries(answer)
        return {
            "index": index,
            "text": self._echo(index) + _text(answer),
            "logprobs": legacy_logprobs(entries, 0, self._legacy.logprobs),
            "finish_reason": _reason(answer),
            "stop_reason": answer.stop_reason,
            "token_ids": answer.token_ids if self._ids else None,
            "prompt_logprobs": answer.prompt_logprobs,
            "prompt_token_ids": answer.prompt_token_ids if self._ids else None,
            "routed_experts": None,
        }

    # --- a stream -------------------------------------------------------------------------------

    def opening(self) -> bytes:
        """Return the first chunk of each choice: empty, or the prompt if it is echoed."""
        usage = self._chunks.prompt_usage()
        return b"".join(
            self._chunks.event(_choice_json(index, self._echo(index)), usage)
            for index in range(self._choices)
        )

    def keepalive(self) -> bytes:
        """Return an empty chunk."""
        return self._chunks.event(_choice_json(0, ""), self._chunks.prompt_usage())

    def answer(self, winners: Sequence[PublicAnswer]) -> bytes:
        """Return the events of all choices, interleaved, and the end."""
        turns = zip_longest(*map(self._choice_events, range(len(winners)), winners), fillvalue=b"")
        return b"".join(event for turn in turns for event in turn) + self._end(winners)

    def delta_events(self, delta: Mapping[str, Any]) -> bytes:
        """Return the chunk of one delta of choice 0; a keepalive if it has no text."""
        self._live = True
        if content := delta.get("content"):
            choice = _choice_json(0, valid_text(str(content)))
            return self._chunks.event(choice, self._chunks.prompt_usage())
        return self.keepalive()

    def finish(self, winner: PublicAnswer) -> bytes:
        """Return the end of a stream of deltas; without any delta, all events of the answer."""
        if not self._live:
            return self.answer([winner])
        entries = self._entries(winner)
        raw = _text(winner)[len(winner.content or "") :]
        return self._closing_event(0, winner, raw, entries, 0) + self._end([winner])

    def error(self, refusal: ApiError) -> bytes:
        """Return the end of a stream that cannot be finished."""
        return self._chunks.error(refusal)

    # --- events ---------------------------------------------------------------------------------

    def _choice_events(self, index: int, answer: PublicAnswer) -> Iterator[bytes]:
        """Yield all events of one choice; the last one has the last part of its text."""
        timed, trailing = self._split_text(answer)
        last_text, entries = timed.pop() if timed else ("", [])
        prompt, total = answer.usage["prompt_tokens"], answer.usage["completion_tokens"]
        all_chars = sum(len(piece) for piece, _ in timed) + len(last_text)
        sent_chars = offset = 0
        for piece, tokens in timed:
            sent_chars += len(piece)
            logprobs = legacy_logprobs(tokens, offset, self._legacy.logprobs)
            offset += _text_length(logprobs)
            usage = self._chunks.usage(prompt, tokens_so_far(total, sent_chars, all_chars))
            yield self._chunks.event(_choice_json(index, piece, logprobs), usage)
        yield self._closing_event(index, answer, last_text, [*entries, *trailing], offset)

    def _split_text(
        self, answer: PublicAnswer
    ) -> tuple[list[tuple[str, list[Entry]]], list[Entry]]:
        text, entries = _text(answer), self._entries(answer)
        if not entries or not text:
            return [(piece, []) for piece in pieces(text)], entries
        aligned = AlignedTokens(entries)
        return aligned.cut(text, last=True), aligned.rest()

    def _closing_event(
        self, index: int, answer: PublicAnswer, text: str, entries: list[Entry], offset: int
    ) -> bytes:
        logprobs = legacy_logprobs(entries, offset, self._legacy.logprobs)
        choice = _choice_json(
            index, text, logprobs, _reason(answer), answer.stop_reason, self._token_ids(answer)
        )
        usage = self._chunks.usage(answer.usage["prompt_tokens"], answer.usage["completion_tokens"])
        return self._chunks.event(choice, usage + self._chunks.last_fields)

    def _end(self, winners: Sequence[PublicAnswer]) -> bytes:
        """Return the end of the stream; choices without an answer end with `abort`."""
        missing = range(len(winners), self._choices)
        usage = self._chunks.prompt_usage()
        closing = (
            self._chunks.event(_choice_json(index, "", None, "abort"), usage) for index in missing
        )
        return b"".join(closing) + self._chunks.end(
            [_without_details(answer) for answer in winners]
        )

    def _echo(self, index: int) -> str:
        """Return the prompt to repeat before the text of a choice; empty without `echo`."""
        return self._legacy.echo[index // self._request.n] if self._legacy.echo else ""

    def _entries(self, answer: PublicAnswer) -> list[Entry]:
        return token_entries(answer.logprobs) if self._legacy.logprobs is not None else []

    def _token_ids(self, answer: PublicAnswer) -> tuple[Any, Any]:
        return (answer.prompt_token_ids, answer.token_ids) if self._ids else (None, None)


def _choice_json(
    index: int,
    text: str,
    logprobs: Mapping[str, Any] | None = None,
    finish_reason: str | None = None,
    stop_reason: Any = None,
    token_ids: tuple[Any, Any] = (None, None),
) -> bytes:
    """Encode one choice of a stream's event."""
    return _encode(
        {
            "index": index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": finish_reason,
            "stop_reason": stop_reason,
            "prompt_token_ids": token_ids[0],
            "token_ids": token_ids[1],
        }
    )


def _text(answer: PublicAnswer) -> str:
    """Return a message as plain text, with tool calls in the format that models write."""
    parts = [answer.content] if answer.content else []
    if answer.tool_calls:
        parts.append(raw_calls(answer.tool_calls))
    return "\n".join(parts)


def _reason(answer: PublicAnswer) -> str:
    return "stop" if answer.finish_reason == "tool_calls" else answer.finish_reason


def _without_details(answer: PublicAnswer) -> PublicAnswer:
    return msgspec.structs.replace(
        answer, usage={**answer.usage, "completion_tokens_details": None}
    )


def _text_length(logprobs: Mapping[str, Any] | None) -> int:
    return sum(map(len, logprobs["tokens"])) if logprobs else 0


def legacy_logprobs(entries: Sequence[Entry], offset: int, alternatives: int | None) -> Any:
    """Convert log probabilities to the legacy form: four lists with one item per token.

    Args:
        entries: The tokens in the form of chat completions.
        offset: Position of the first token in the text, in characters.
        alternatives: Alternatives per token; -1 for all, None for no logprobs.

    Returns:
        None when there are no tokens or no logprobs are requested.
    """
    if not entries or alternatives is None:
        return None
    tokens = [
        str(entry.get("token") or token_bytes(entry).decode(errors="replace")) for entry in entries
    ]
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token)
    return {
        "text_offset": offsets,
        "token_logprobs": [_logprob(entry) for entry in entries],
        "tokens": tokens,
        "top_logprobs": [
            _top_logprobs(entry, token, alternatives)
            for entry, token in zip(entries, tokens, strict=True)
        ],
    }


def _top_logprobs(entry: Entry, token: str, alternatives: int) -> dict[str, float]:
    """Map the token and its alternatives, the likeliest first, to their log probabilities."""
    tops = entry.get("top_logprobs")
    tops = [top for top in tops if isinstance(top, dict)] if isinstance(tops, list) else []
    result = {token: _logprob(entry)}
    for top in tops if alternatives < 0 else tops[:alternatives]:
        result.setdefault(str(top.get("token")), _logprob(top))
    return result


def _logprob(entry: Entry) -> float:
    value = entry.get("logprob")
    return max(value, LOWEST) if isinstance(value, int | float) else LOWEST
