"""Legacy completions: the prompt is asked as one message of a user, or bare. No I/O.

An AgentJet server has no route for bare prompts, so its chat template is put around the prompt. A
server that completes texts gets the prompt as it came (`proxy.servers.bare_prompts`). The answer is
the text of the message without its reasoning, and log probabilities are those of the answer alone.
Each of several prompts becomes a group of its own; its answers are choices beside those of the
others.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from proxy.dialects.base import Dialect
from proxy.dialects.chat.completions_writer import CompletionFields, CompletionsWriter, Prompt
from proxy.dialects.chat.request import NOT_UPSTREAM
from proxy.dialects.common import decode, join_key, refusal_body, request_id, trains
from proxy.dialects.request import ChatRequest
from proxy.dialects.session_marks import session_of
from proxy.dialects.validation import (
    INTEGERS,
    bad_value,
    check_common,
    check_logprobs,
    check_numbers,
)
from proxy.http.errors import invalid

MAX_TOKENS = 16
"""vLLM's own default of this route."""

MOST_PROMPTS = 1024
"""Prompts of one request: each becomes a group."""

_LEGACY = frozenset(
    {
        "prompt",
        "prompt_embeds",
        "echo",
        "suffix",
        "logprobs",
        "best_of",
        # known to chat completions only, ignored here as vLLM does
        "messages",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "top_logprobs",
        "max_completion_tokens",
    }
)
_NO_PROMPT = "Either prompt or prompt_embeds must be provided and non-empty."
NO_TOKENS = (
    "Prompts of token ids are not supported: the upstream does not turn them into text. Send the "
    "prompt as text."
)
_MIXED = "A prompt is a text, a list of texts, token ids, or a list of lists of token ids."
_NO_ECHO = "echo of a prompt of token ids is not supported."


def read_request(data: bytes, headers: Mapping[str, str], client: str = "") -> ChatRequest:
    """Parse and check one request.

    Args:
        data: The raw body.
        headers: Lower-case names.
        client: Where it comes from; with key and session it tells senders apart.

    Raises:
        ApiError: vLLM would refuse it too, or the prompt cannot be asked as a message.
    """
    body = decode(data, headers.get("content-type", ""))
    prompts = prompts_of(body)
    prompt = prompts[0]
    check(body)
    train = trains(headers)
    dropped = _LEGACY | NOT_UPSTREAM
    options = body.get("stream_options") or {}
    session = session_of(headers, body)
    messages = [_message(prompt)]
    asked = {key: value for key, value in body.items() if key not in dropped}
    asked["messages"] = messages
    if asked.get("max_tokens") is None:
        asked["max_tokens"] = MAX_TOKENS
    if (count := body.get("logprobs")) is not None:
        asked |= {"logprobs": True, "top_logprobs": count}
    request = ChatRequest(
        dialect="completions",
        request_id=request_id(headers),
        body=asked,
        messages=messages,
        query=messages[0]["content"],
        model=body.get("model") or "",
        stream=bool(body.get("stream")),
        include_usage=bool(options.get("include_usage")),
        continuous_usage=bool(options.get("continuous_usage_stats")),
        n=body.get("n") or 1,
        train=train,
        session=session,
        key=join_key(data, headers, client, session, train, "completions"),
        address=client,
        headers=headers,
        extra=CompletionFields(_echoed(body, prompts), body.get("logprobs"), tuple(prompts)),
    )
    if len(prompts) == 1:
        return request
    return replace(request, parts=tuple(_part(request, *one) for one in enumerate(prompts)))


def _message(prompt: Prompt) -> dict[str, Any]:
    """The prompt as a user's message; token ids are put into words later, by who knows them."""
    return {"role": "user", "content": prompt if isinstance(prompt, str) else ""}


def _echoed(body: Mapping[str, Any], prompts: list[Prompt]) -> tuple[str, ...]:
    """The prompts that stand before their answers.

    Raises:
        ApiError: they are token ids.
    """
    texts = tuple([one for one in prompts if isinstance(one, str)])
    if body.get("echo") and len(texts) < len(prompts):
        raise bad_value(_NO_ECHO, "echo")
    return texts if body.get("echo") else ()


def _part(whole: ChatRequest, at: int, prompt: Prompt) -> ChatRequest:
    """The request of one of several prompts; its answer is told with those of the others."""
    messages = [_message(prompt)]
    return replace(
        whole,
        request_id=f"{whole.request_id}-{at}",
        body={**whole.body, "messages": messages},
        messages=messages,
        query=messages[0]["content"],
        stream=False,
        extra=replace(whole.extra, prompts=(prompt,)),
        key=f"{whole.key}-{at}",
    )


def prompts_of(body: Mapping[str, Any]) -> list[Prompt]:
    """The prompts of a request, at least one: all of them texts, or all token ids.

    Raises:
        ApiError: there is none, or another kind.
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
    for one in prompts:
        if one in ("", []):
            raise bad_value(_NO_PROMPT, "prompt")
        if isinstance(one, int | list) and isinstance(prompt, list):
            if not _are_ids(one) or not all(isinstance(other, list) for other in prompts):
                raise bad_value(_MIXED, "prompt")
        elif not isinstance(one, str):
            raise invalid("string_type", "body.prompt", "Input should be a valid string", one)
    return prompts


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and all(type(one) is int and 0 <= one < 1 << 31 for one in value)


def check(body: dict[str, Any]) -> None:
    """Refuse what vLLM refuses, and what cannot be answered from a chat.

    Raises:
        ApiError: names the field.
    """
    check_numbers(body, integers=(*INTEGERS, "logprobs"), flags=("stream", "echo"))
    if body.get("suffix") is not None:
        raise bad_value("suffix is not currently supported", "suffix")
    if body.get("echo") and body.get("max_tokens") == 0:
        text = "echo without generation is not supported: max_tokens must be at least 1, got 0."
        raise bad_value(text, "max_tokens", 0)
    check_common(body)
    check_logprobs(body.get("logprobs"), "logprobs")


COMPLETIONS = Dialect("completions", read_request, CompletionsWriter, refusal_body)
