"""Detection of repetitive text, for AgentJet's hooks."""

from collections import deque
from collections.abc import Iterable
from typing import Any


def has_repeat(token: Iterable[Any], remember_n_words: int = 5, patience_max: int = 10) -> bool:
    """Return whether a text repeats itself.

    Args:
        token: Words, or a string, of which each character is a token.
        remember_n_words: Number of distinct recent tokens that count as a repetition.
        patience_max: Number of tokens in a row that have to be repetitions; a count, not seconds.
    """
    recent: deque[Any] = deque(maxlen=remember_n_words)
    seen_in_a_row = 0
    for item in token:
        if item in recent:
            seen_in_a_row += 1
            if seen_in_a_row >= patience_max:
                return True
        else:
            recent.append(item)
            seen_in_a_row = 0
    return False
