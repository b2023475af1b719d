"""Liveliness of a text; a measure independent of the reward."""

import re

_HOT = re.compile(
    r"\b(wow|love|yes|hooray|exciting|amazing|fantastic|brilliant|awesome|wonderful|great)\b", re.I
)


def liveliness(text: str) -> float:
    """Return 0 to 1: 0.2 for each run of `!` (up to three) and each hot word (up to two)."""
    return 0.2 * min(len(re.findall(r"!+", text)), 3) + 0.2 * min(len(_HOT.findall(text)), 2)
