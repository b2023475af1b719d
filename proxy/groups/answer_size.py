"""The memory that one answer may take: what its request can lead to, with a margin."""

from collections.abc import Mapping
from typing import Any

LEAST, MOST = 2 << 20, 64 << 20
"""Bytes that an answer may always take, and never exceed."""
TOKEN, LOGPROB = 64, 200
"""Bytes of a token, and of each of its most likely alternatives."""
MARGIN = 4
UNKNOWN_WINDOW = 1 << 15
"""Tokens of the answer if neither the request nor the server limits them."""
_LIMITS = frozenset({"max_completion_tokens", "max_tokens", "top_logprobs", "prompt_logprobs"})


def largest_answer(body: Mapping[str, Any], window: int | None) -> int:
    """Return the largest number of bytes of an answer.

    Args:
        body: The chat request.
        window: Context window of the model in tokens; None if unknown.
    """
    tokens = window = window or UNKNOWN_WINDOW
    alternatives = 0
    if not _LIMITS.isdisjoint(body):
        tokens = _number(body, "max_completion_tokens") or _number(body, "max_tokens") or window
        alternatives = _number(body, "top_logprobs")
        if of_prompt := _number(body, "prompt_logprobs"):
            tokens, alternatives = tokens + window, max(alternatives, of_prompt)
    return min(max(tokens * (TOKEN + LOGPROB * alternatives) * MARGIN, LEAST), MOST)


def _number(body: Mapping[str, Any], name: str) -> int:
    value = body.get(name)
    return value if isinstance(value, int) and value > 0 else 0
