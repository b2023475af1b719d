"""Legacy completions: each prompt is sent as a user message, or as plain text. No I/O.

An AgentJet server has no route for plain prompts, so it applies its chat template to the prompt. A
server with a completions route gets the prompt unchanged (`proxy.upstream.bare_prompts`). The
answer is the message's text without its reasoning; log probabilities are those of the answer only.
Each of several prompts becomes its own group; the response lists the answers to all as choices.

Writer of legacy completions in vLLM's format: a complete body, or a stream. No I/O.

The text of an answer is that of its message without the reasoning; tool calls follow it in the
format that models write.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import msgspec
from msgspec.structs import replace

from core.dialects.errors import ApiError, invalid
from core.dialects.request import (
    Entry,
    PublicAnswer,
    alternatives,
    requested_tokens,
    token_bytes,
    usage_of,
)
from core.dialects.validation import (
    INTEGERS,
    bad_value,
    check_common,
    check_logprobs,
    check_numbers,
)
from proxy.dialects.chat.request import NOT_UPSTREAM
from proxy.dialects.chat.writer import ChunkWriter, whole_body
from proxy.dialects.request import ChatRequest, Dialect, RequestReader, choice_fields, refusal_body

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


MAX_TOKENS = 16
"""vLLM's default for this route."""

MOST_PROMPTS = 1024
"""Prompts per request; each one becomes a group."""

_LEGACY_ONLY = frozenset(
    [
        *("prompt", "prompt_embeds", "echo", "suffix", "logprobs", "best_of"),
        # fields of chat completions only; vLLM ignores them here too
        *("messages", "tools", "tool_choice", "parallel_tool_calls", "top_logprobs"),
        "max_completion_tokens",
    ]
)
_NO_PROMPT = "Either prompt or prompt_embeds must be provided and non-empty."
NO_TOKENS = (
    "Prompts of token ids are not supported: the upstream does not turn them into text. Send the "
    "prompt as text."
)
_MIXED = "A prompt is a text, a list of texts, token ids, or a list of lists of token ids."
_NO_ECHO = "echo of a prompt of token ids is not supported."
_NO_LOGPROBS = (
    "echo with logprobs is not supported: the upstream does not return the log probabilities of a "
    "prompt."
)


class EchoRefused(ApiError):
    """The request wants more of its prompt than a chat completion has, such as its log
    probabilities: only a server with a completions route can answer it."""

    def __init__(self, refusal: ApiError) -> None:
        super().__init__(400, None, refusal.message, kind=refusal.kind, param=refusal.param)


def read_request(data: bytes, headers: Mapping[str, str], client: str = "") -> ChatRequest:
    """Parse and check one request; each of several prompts becomes a part of it.

    Raises:
        ApiError: The request is invalid (vLLM refuses it too), or its prompt is not supported.
    """
    request = _read(data, headers, client)
    prompts = request.extra.prompts
    if len(prompts) == 1:
        return request
    return replace(request, parts=tuple(_part(request, *part) for part in enumerate(prompts)))


def _convert(body: dict[str, Any], _: str) -> tuple[dict[str, Any], dict[str, Any]]:
    prompts = prompts_of(body)
    check(body)
    message = _message(prompts[0])
    dropped = _LEGACY_ONLY | NOT_UPSTREAM
    upstream = {key: value for key, value in body.items() if key not in dropped}
    upstream["messages"] = [message]
    if upstream.get("max_tokens") is None:
        upstream["max_tokens"] = MAX_TOKENS
    if (count := body.get("logprobs")) is not None:
        upstream |= {"logprobs": True, "top_logprobs": count}
    extra = CompletionFields(_echoed(body, prompts), count, tuple(prompts))
    return upstream, choice_fields(body) | {"query": message["content"], "extra": extra}


_read = RequestReader("completions", _convert)


def _message(prompt: Prompt) -> dict[str, Any]:
    """Return the prompt as a user message; empty for token ids, which are decoded later."""
    return {"role": "user", "content": prompt if isinstance(prompt, str) else ""}


def _echoed(body: Mapping[str, Any], prompts: list[Prompt]) -> tuple[str, ...]:
    """Return the prompts to repeat before their answers; empty unless `echo` is set.

    Raises:
        EchoRefused: The prompts are token ids, or their log probabilities are requested.
    """
    texts = tuple([prompt for prompt in prompts if isinstance(prompt, str)])
    if body.get("echo") and len(texts) < len(prompts):
        raise EchoRefused(bad_value(_NO_ECHO, "echo"))
    if body.get("echo") and body.get("logprobs") is not None:
        raise EchoRefused(bad_value(_NO_LOGPROBS, "logprobs"))
    return texts if body.get("echo") else ()


def _part(whole: ChatRequest, index: int, prompt: Prompt) -> ChatRequest:
    """Return the request for one of several prompts."""
    messages = [_message(prompt)]
    return replace(
        whole,
        request_id=f"{whole.request_id}-{index}",
        body={**whole.body, "messages": messages},
        messages=messages,
        query=messages[0]["content"],
        stream=False,
        extra=replace(whole.extra, prompts=(prompt,)),
        key=f"{whole.key}-{index}",
    )


def prompts_of(body: Mapping[str, Any]) -> list[Prompt]:
    """Return the prompts of a request, at least one: all texts, or all lists of token ids.

    Raises:
        ApiError: There is no prompt, or one of another kind.
    """
    if body.get("prompt_embeds") not in (None, "", []):
        raise bad_value("prompt_embeds are not supported.", "prompt_embeds")
    prompt = body.get("prompt")
    if prompt is None or prompt in ("", []):
        raise bad_value(_NO_PROMPT, "prompt")
    prompts = prompt if isinstance(prompt, list) else [prompt]
    if _are_ids(prompt):
        return [prompt]
    if (count := len(prompts)) > MOST_PROMPTS:
        text = f"prompt must hold at most {MOST_PROMPTS} texts, got {count}."
        raise bad_value(text, "prompt")
    for prompt_ in prompts:
        if prompt_ in ("", []):
            raise bad_value(_NO_PROMPT, "prompt")
        if isinstance(prompt_, int | list) and isinstance(prompt, list):
            if not _are_ids(prompt_) or not all(isinstance(other, list) for other in prompts):
                raise bad_value(_MIXED, "prompt")
        elif not isinstance(prompt_, str):
            raise invalid("string_type", "body.prompt", "Input should be a valid string", prompt_)
    return prompts


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and all(
        type(item) is int and 0 <= item < 1 << 31 for item in value
    )


def check(body: dict[str, Any]) -> None:
    """Check the fields as vLLM does, and refuse what a chat completion cannot provide.

    Raises:
        ApiError: A field is invalid; the error names it.
    """
    check_numbers(body, integers=(*INTEGERS, "logprobs"), flags=("stream", "echo"))
    if body.get("suffix") is not None:
        raise bad_value("suffix is not currently supported", "suffix")
    if body.get("echo") and body.get("max_tokens") == 0:
        text = "echo without generation is not supported: max_tokens must be at least 1, got 0."
        raise EchoRefused(bad_value(text, "max_tokens", 0))
    check_common(body)
    check_logprobs(body.get("logprobs"), "logprobs")


COMPLETIONS = Dialect("completions", read_request, CompletionsWriter, refusal_body)
