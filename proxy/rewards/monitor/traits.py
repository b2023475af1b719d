"""Traits of an answer that a policy can exploit to raise its reward, measured cheaply."""

import re
from collections.abc import Sequence

TRAITS = ("length", "punctuation", "repetition", "likeness", "refusal")

HEAD, TAIL = 700, 300
"""Characters at the beginning and the end of a long text whose words are read."""
WINNERS = 50
"""Number of winners in one generation; likeness compares with this one and the previous one."""

_MARKS = "!?.,;:*#"
_REFUSAL = re.compile(
    r"\b(?:i(?:'m| am)? (?:sorry|afraid|unable|not able)|i (?:can(?:no|')t|won't|will not)"
    r"|as an ai|i don't know|i do not know|cannot (?:help|assist|comply))\b"
)

_HINTS = (
    "sorry",
    "can",
    "won",
    "will not",
    "unable",
    "not able",
    "afraid",
    "an ai",
    " know",
)
"""Every refusal contains one of these; searching for them is much cheaper."""

Grams = set[int]
"""Hashes of word trigrams."""


class TraitReader:
    """Measures the traits of answers, and remembers the winners of the newest groups.

    Its memory is bounded: the word trigrams of at most twice `WINNERS` answers.
    """

    def __init__(self) -> None:
        self._newer: Grams = set()
        self._older: Grams = set()
        self._count = 0

    def of(self, text: str, length: float) -> tuple[tuple[float, ...], Grams]:
        """Return the traits, in the order of `TRAITS`, and the trigrams to pass to `add_winner`.

        Args:
            text: The answer, possibly truncated.
            length: Length of the whole answer, in the same unit for all answers of its group.
        """
        ends = text if len(text) <= HEAD + TAIL else f"{text[:HEAD]} {text[-TAIL:]}"
        lower = ends.lower()
        words = lower.split()
        count = len(words) - 2
        grams = set(map(hash, zip(words, words[1:], words[2:], strict=False)))
        size = len(grams)
        count_of = lower.count
        marks = sum([count_of(mark) for mark in _MARKS])
        values = (
            length,
            marks / len(lower) if lower else 0.0,
            1.0 - size / count if count > 0 else 0.0,
            len((grams & self._newer) | (grams & self._older)) / size if size else 0.0,
            _refuses(lower[:200]),
        )
        return values, grams

    def add_winner(self, grams: Grams) -> None:
        """Remember a winner; the oldest generation is dropped when a new one begins."""
        self._newer |= grams
        self._count += 1
        if self._count >= WINNERS:
            self._older, self._newer, self._count = self._newer, set(), 0


def _refuses(begin: str) -> float:
    """Return 1 if a text that begins this way is a refusal, else 0."""
    for hint in _HINTS:
        if hint in begin:
            break
    else:
        return 0.0
    return 1.0 if _REFUSAL.search(begin.replace("’", "'")) else 0.0


def lengths(tokens: Sequence[int], texts: Sequence[str]) -> list[float]:
    """Return the lengths of a group's answers: tokens if all are known, else characters."""
    return [float(one) for one in tokens] if all(tokens) else [float(len(one)) for one in texts]
