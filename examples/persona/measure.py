"""How lively a text is: another measure than the reward's, so that it cannot flatter itself."""

import re

_HOT = re.compile(
    r"\b(wow|love|yes|hooray|exciting|amazing|fantastic|brilliant|awesome|wonderful|great)\b", re.I
)
_LOUD = re.compile(r"!+")


def liveliness(text: str) -> float:
    """0 to 1: 0.2 for each run of `!` (three count) and each hot word (two count)."""
    return 0.2 * min(len(_LOUD.findall(text)), 3) + 0.2 * min(len(_HOT.findall(text)), 2)
