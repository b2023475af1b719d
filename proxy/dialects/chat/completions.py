"""Legacy completions: each prompt is sent as a user message, or as plain text. No I/O.

An AgentJet server has no route for plain prompts, so it applies its chat template to the prompt. A
server with a completions route gets the prompt unchanged (`proxy.upstream.bare_prompts`). The
answer is the message's text without its reasoning; log probabilities are those of the answer only.
Each of several prompts becomes its own group; the response lists the answers to all as choices.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from core.dialects.errors import ApiError, invalid
from core.dialects.validation import (
    INTEGERS,
    bad_value,
    check_common,
    check_logprobs,
    check_numbers,
)
from proxy.dialects.chat.completions_writer import CompletionFields, CompletionsWriter, Prompt
from proxy.dialects.chat.request import NOT_UPSTREAM
from proxy.dialects.request import ChatRequest, Dialect, RequestReader, choice_fields, refusal_body

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
