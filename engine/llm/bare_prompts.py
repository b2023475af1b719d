"""Prompts without the tags of a conversation: the ids of a text as they are."""

from typing import Any

from ajet_swarm.common.errors import AjetError
from engine.interface import PolicyBackend, Prompt
from engine.server.lifecycle import EngineError


def bare_prompt(policy: PolicyBackend, prompt: str | list[int], limit: int) -> Prompt:
    """The prompt of a legacy completion; of one without room for the answer the end is kept.

    Args:
        policy: Which reads it.
        prompt: Text, or token ids.
        limit: Tokens of the answer.

    Raises:
        Refused: 400, it is empty.
    """
    ids, cut = _end_of(policy, prompt) if isinstance(prompt, str) else (tuple(prompt), False)
    if not ids:
        raise EngineError(400, "The prompt is empty.")
    room = max(1, policy.context - limit)
    return Prompt(ids[-room:], truncated=cut or len(ids) > room)


def _end_of(policy: PolicyBackend, text: str) -> tuple[tuple[int, ...], bool]:
    """The ids of so much of the end of a text as a window holds, and whether that is not all."""
    size = min(len(text), 8 * policy.context)
    while True:
        try:
            return text_prompt(policy, text[-size:]).tokens, size < len(text)
        except EngineError:  # it does not fit
            if size <= 1:
                raise
            size //= 2


def text_prompt(policy: PolicyBackend, text: str) -> Prompt:
    """What a user turn of this text has more than one of none.

    Raises:
        Refused: 400, it is longer than the window.
    """
    if not text:
        return Prompt(())
    bare = render_messages(policy, [_user("")], None, 1).tokens
    full = render_messages(policy, [_user(text)], None, 1)
    if full.truncated:
        raise EngineError(
            400,
            f"This model's maximum context length is {policy.context} tokens, and the text is "
            "longer: it cannot be counted.",
        )
    front = _common_prefix(bare, full.tokens)
    back = _common_prefix(bare[front:][::-1], full.tokens[front:][::-1])
    return Prompt(full.tokens[front : len(full.tokens) - back])


def render_messages(
    policy: PolicyBackend,
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None,
    limit: int,
) -> Prompt:
    """The prompt of a conversation.

    Raises:
        Refused: 400, it cannot be rendered.
    """
    try:
        return policy.render(messages, tools, limit)
    except (ValueError, TypeError, AjetError) as error:
        raise EngineError(400, f"messages: cannot be rendered: {error}") from error


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _common_prefix(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """How many ids both begin with."""
    both = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(both) if a != b), min(len(one), len(other)))
