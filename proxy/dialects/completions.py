"""Legacy completions on a chat upstream: the prompt is asked as one message of a user. No I/O.

A swarm server has no route for bare prompts, so its chat template stands around the prompt, the
answer is the message's text without its reasoning, and log probabilities are those of the answer
alone. Prompts are text; of several each is a group of its own, and its answers are choices beside
those of the others.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from proxy.conversation import ChatRequest
from proxy.dialects.base import Dialect
from proxy.dialects.chat import NOT_UPSTREAM
from proxy.dialects.checks import (
    INTEGERS,
    bad_value,
    check_common,
    check_logprobs,
    check_numbers,
)
from proxy.dialects.completions_wire import CompletionsWriter, Legacy
from proxy.dialects.reading import (
    decode,
    join_key,
    refusal_body,
    request_id,
    trains,
)
from proxy.errors import invalid
from proxy.sessions import session_of

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
_NO_TOKENS = (
    "Prompts of token ids are not supported: the upstream takes chat messages only. Send the "
    "prompt as text."
)


def read_request(data: bytes, headers: Mapping[str, str], client: str = "") -> ChatRequest:
    """Parse and check one request.

    Args:
        data: The raw body.
        headers: Lower-case names.
        client: Where it comes from; with key and session it tells senders apart.

    Raises:
        Refusal: vLLM would refuse it too, or the prompt cannot be asked as a message.
    """
    body = decode(data, headers.get("content-type", ""))
    prompts = prompts_of(body)
    prompt = prompts[0]
    check(body)
    train = trains(headers)
    dropped = _LEGACY | NOT_UPSTREAM
    options = body.get("stream_options") or {}
    session = session_of(headers, body)
    messages = [{"role": "user", "content": prompt}]
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
        query=prompt,
        model=body.get("model") or "",
        stream=bool(body.get("stream")),
        include_usage=bool(options.get("include_usage")),
        continuous_usage=bool(options.get("continuous_usage_stats")),
        n=body.get("n") or 1,
        train=train,
        session=session,
        key=join_key(data, headers, client, session, train, "completions"),
        headers=headers,
        extra=Legacy(tuple(prompts) if body.get("echo") else (), body.get("logprobs")),
    )
    if len(prompts) == 1:
        return request
    return replace(request, parts=tuple(_part(request, *one) for one in enumerate(prompts)))


def _part(whole: ChatRequest, at: int, prompt: str) -> ChatRequest:
    """The request of one of several prompts; its answer is told with those of the others."""
    messages = [{"role": "user", "content": prompt}]
    return replace(
        whole,
        request_id=f"{whole.request_id}-{at}",
        body={**whole.body, "messages": messages},
        messages=messages,
        query=prompt,
        stream=False,
        key=f"{whole.key}-{at}",
    )


def prompts_of(body: Mapping[str, Any]) -> list[str]:
    """The prompts of a request, as text; at least one.

    Raises:
        Refusal: there is none, or another kind.
    """
    if body.get("prompt_embeds") is not None:
        raise bad_value("prompt_embeds are not supported.", "prompt_embeds")
    prompt = body.get("prompt")
    if prompt is None or prompt in ("", []):
        raise bad_value(_NO_PROMPT, "prompt")
    prompts = prompt if isinstance(prompt, list) else [prompt]
    if (count := len(prompts)) > MOST_PROMPTS and not isinstance(prompts[0], int | list):
        text = f"prompt must hold at most {MOST_PROMPTS} texts, got {count}."
        raise bad_value(text, "prompt")
    for one in prompts:
        if isinstance(one, int | list) and isinstance(prompt, list):
            raise bad_value(_NO_TOKENS, "prompt")
        if one == "":
            raise bad_value(_NO_PROMPT, "prompt")
        if not isinstance(one, str):
            raise invalid("string_type", "body.prompt", "Input should be a valid string", one)
    return prompts


def check(body: dict[str, Any]) -> None:
    """Refuse what vLLM refuses, and what cannot be answered from a chat.

    Raises:
        Refusal: names the field.
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
