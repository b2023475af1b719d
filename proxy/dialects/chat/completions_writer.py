"""Writer of legacy completions in vLLM's format: a complete body, or a stream. No I/O.

The text of an answer is that of its message without the reasoning; tool calls follow it in the
format that models write.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import msgspec

from core.dialects.logprobs import Entry, alternatives, requested_tokens, token_bytes
from core.dialects.request import PublicAnswer, usage_of
from proxy.dialects.chat.chunks import ChunkWriter, whole_body
from proxy.dialects.request import ChatRequest

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


class CompletionsWriter(ChunkWriter):
    """Writer of the response to one legacy request, with `CompletionFields` in its `extra`; see
    `ChunkWriter`."""

    id_prefix, kind = "cmpl", "text_completion"

    def __init__(self, request: ChatRequest, model: str, created: int) -> None:
        super().__init__(request, model, created)
        self._legacy: CompletionFields = request.extra
        self._offsets: Counter[int] = Counter()
        """Choice -> characters of its tokens so far."""

    def body(self, winners: Sequence[PublicAnswer]) -> bytes:
        """Return the JSON body; the choices of several prompts follow one another."""
        answers = self._shown(winners)
        choices = [self._whole(index, answer) for index, answer in enumerate(answers)]
        return whole_body(self._head, choices, usage_of(answers, self._each), {})

    def _whole(self, index: int, answer: PublicAnswer) -> dict[str, Any]:
        return {
            "index": index,
            "text": self._echo(index) + (answer.content or ""),
            "logprobs": legacy_logprobs(
                requested_tokens(self._request, answer), 0, self._legacy.logprobs
            ),
            "finish_reason": answer.finish_reason,
            "stop_reason": answer.stop_reason,
            "token_ids": answer.token_ids if self._ids else None,
            "prompt_logprobs": answer.prompt_logprobs,
            "prompt_token_ids": answer.prompt_token_ids if self._ids else None,
            "routed_experts": None,
        }

    def opening(self) -> bytes:
        """Return the first chunk of each choice: empty, or the prompt if it is echoed."""
        return b"".join(
            self._chunk(self._choice(index, {"content": self._echo(index)}))
            for index in range(self.choices)
        )

    def _shown(self, winners: Sequence[PublicAnswer]) -> list[PublicAnswer]:
        return [
            msgspec.structs.replace(
                answer, reasoning=None, usage={**answer.usage, "completion_tokens_details": None}
            )
            for answer in super()._shown(winners)
        ]

    def _delta(self, index: int, delta: Mapping[str, Any], tokens: Sequence[Entry] = ()) -> bytes:
        return super()._delta(index, delta, tokens) if "content" in delta else b""

    def _choice(
        self,
        index: int,
        delta: Mapping[str, Any],
        tokens: Sequence[Entry] = (),
        end: PublicAnswer | None = None,
    ) -> dict[str, Any]:
        logprobs = legacy_logprobs(tokens, self._offsets[index], self._legacy.logprobs)
        self._offsets[index] += sum(map(len, logprobs["tokens"])) if logprobs else 0
        ids = end if self._ids else None
        return {
            "index": index,
            "text": delta.get("content", ""),
            "logprobs": logprobs,
            "finish_reason": None if end is None else end.finish_reason,
            "stop_reason": None if end is None else end.stop_reason,
            "prompt_token_ids": None if ids is None else ids.prompt_token_ids,
            "token_ids": None if ids is None else ids.token_ids,
        }

    def _echo(self, index: int) -> str:
        """Return the prompt to repeat before the text of a choice; empty without `echo`."""
        return self._legacy.echo[index // self._request.n] if self._legacy.echo else ""


def legacy_logprobs(entries: Sequence[Entry], offset: int, most: int | None) -> Any:
    """Convert log probabilities to the legacy form: four lists with one item per token.

    Args:
        entries: The tokens in the form of chat completions.
        offset: Position of the first token in the text, in characters.
        most: Alternatives per token; -1 for all, None for no logprobs.

    Returns:
        None when there are no tokens or no logprobs are requested.
    """
    if not entries or most is None:
        return None
    tokens = [
        str(entry.get("token") or token_bytes(entry).decode(errors="replace")) for entry in entries
    ]
    tops = []
    for entry, token in zip(entries, tokens, strict=True):
        others = alternatives(entry)
        tops.append({token: _logprob(entry)})
        for top in others if most < 0 else others[:most]:
            tops[-1].setdefault(str(top.get("token")), _logprob(top))
    return {
        "text_offset": list(accumulate(map(len, tokens[:-1]), initial=offset)),
        "token_logprobs": list(map(_logprob, entries)),
        "tokens": tokens,
        "top_logprobs": tops,
    }


def _logprob(entry: Entry) -> float:
    value = entry.get("logprob")
    return max(value, LOWEST) if isinstance(value, int | float) else LOWEST
