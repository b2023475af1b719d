"""Rendering of prompts: conversations, and plain text or token ids without chat tags."""

from typing import Any

from ajet_swarm.common.errors import AjetError
from engine.interface import PolicyBackend, Prompt
from engine.server.lifecycle import EngineError


def bare_prompt(policy: PolicyBackend, prompt: str | list[int], limit: int) -> Prompt:
    """Return the prompt of a legacy completion; a too long one keeps its end.

    Args:
        policy: The policy that reads it.
        prompt: Text or token ids.
        limit: Maximum length of the answer in tokens.

    Raises:
        EngineError: 400, it is empty.
    """
    ids, cut = _end_of(policy, prompt) if isinstance(prompt, str) else (tuple(prompt), False)
    if not ids:
        raise EngineError(400, "The prompt is empty.")
    room = max(1, policy.context - limit)
    if not cut and len(ids) <= room:
        return Prompt(ids)
    length = _whole_length(policy, prompt) if cut and isinstance(prompt, str) else len(ids)
    return Prompt(ids[-room:], truncated=True, length=length)


def _end_of(policy: PolicyBackend, text: str) -> tuple[tuple[int, ...], bool]:
    """Return the ids of as much of the end of a text as fits the window, and whether that drops a
    part."""
    size = min(len(text), 8 * policy.context)
    while True:
        try:
            return text_prompt(policy, text[-size:]).tokens, size < len(text)
        except EngineError:  # too long
            if size <= 1:
                raise
            size //= 2


def _whole_length(policy: PolicyBackend, text: str) -> int:
    """Return the number of ids of a text over the window; 0 when the policy does not count them."""
    turn = render_messages(policy, [_user(text)], None, 1)
    if not turn.length:
        return 0
    return turn.length - len(render_messages(policy, [_user("")], None, 1).tokens)


def text_prompt(policy: PolicyBackend, text: str) -> Prompt:
    """Return the ids of plain text: a user turn with the text, minus the same turn without it.

    Raises:
        EngineError: 400, it is longer than the window.
    """
    if not text:
        return Prompt(())
    empty_turn = render_messages(policy, [_user("")], None, 1).tokens
    turn = render_messages(policy, [_user(text)], None, 1)
    if turn.truncated:
        raise EngineError(
            400,
            f"This model's maximum context length is {policy.context} tokens, and the text is "
            "longer: it cannot be counted.",
        )
    front = _common_prefix(empty_turn, turn.tokens)
    back = _common_prefix(empty_turn[front:][::-1], turn.tokens[front:][::-1])
    return Prompt(turn.tokens[front : len(turn.tokens) - back])


def render_messages(
    policy: PolicyBackend,
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None,
    limit: int,
) -> Prompt:
    """Return the prompt of a conversation.

    Raises:
        EngineError: 400, it cannot be rendered.
    """
    try:
        return policy.render(messages, tools, limit)
    except (ValueError, TypeError, AjetError) as error:
        raise EngineError(400, f"messages: cannot be rendered: {error}") from error


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _common_prefix(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    """Return the length of the common prefix."""
    both = zip(left, right, strict=False)
    return next((at for at, (a, b) in enumerate(both) if a != b), min(len(left), len(right)))
