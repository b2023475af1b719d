"""Whether a text repeats itself, as AgentJet's hooks ask."""

from collections import deque
from collections.abc import Iterable
from typing import Any


def has_repeat(token: Iterable[Any], remember_n_words: int = 5, patience_max: int = 10) -> bool:
    """Whether a text repeats itself.

    Args:
        token: Words, or a string to look at character by character.
        remember_n_words: How many distinct tokens back a token counts as seen.
        patience_max: A count of tokens, not seconds: True as soon as that many in a row were seen
            just before.
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
