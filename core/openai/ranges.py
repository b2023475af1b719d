"""vLLM's ranges of the numbers in a request, with its words for a number out of range."""

import math

MOST_CHOICES = 128
"""Choices per request."""
FLOATS = frozenset(
    [
        *("temperature", "top_p", "presence_penalty", "frequency_penalty", "min_p"),
        "repetition_penalty",
    ]
)
"""Fields whose numbers may have a fraction."""
_ABOVE_0 = math.nextafter(0, 1)
_RANGES = (
    ("max_tokens", 1, math.inf, "must be at least 1"),
    ("max_completion_tokens", 1, math.inf, "must be at least 1"),
    ("max_output_tokens", 1, math.inf, "must be at least 1"),
    ("n", 1, math.inf, "must be at least 1"),
    ("n", -math.inf, MOST_CHOICES, f"must be at most {MOST_CHOICES}"),
    ("temperature", 0, math.inf, "must be non-negative"),
    ("top_p", _ABOVE_0, 1, "must be in (0, 1]"),
    ("presence_penalty", -2, 2, "must be in [-2, 2]"),
    ("frequency_penalty", -2, 2, "must be in [-2, 2]"),
    ("repetition_penalty", _ABOVE_0, math.inf, "must be greater than zero"),
    ("top_k", -1, math.inf, "must be 0 (disable), or at least 1"),
    ("min_p", 0, 1, "must be in [0, 1]"),
    ("min_tokens", 0, math.inf, "must be greater than or equal to 0"),
)
"""Field, its least and its largest value, and vLLM's words for another one."""


def range_error(field: str, value: float) -> str:
    """Return vLLM's words for a number out of its range; empty for any other number."""
    for name, least, most, words in _RANGES:
        if name == field and not least <= value <= most:
            return f"{field} {words}, got {float(value) if field in FLOATS else value}."
    return ""
