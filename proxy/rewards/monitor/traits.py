"""Traits of an answer that rewards can be hacked by, read cheaply."""

import re
from collections.abc import Mapping, Sequence

TRAITS = ("length", "punctuation", "repetition", "likeness", "refusal")

HEAD, TAIL = 700, 300
"""Characters of a long text whose words are looked at: its begin and its end."""
WINNERS = 50
"""Winners of one generation; likeness looks at this one and the one before."""

_MARKS = "!?.,;:*#"
_REFUSAL = re.compile(
    r"\b(?:i(?:'m| am)? (?:sorry|afraid|unable|not able)|i (?:can(?:no|')t|won't|will not)"
    r"|as an ai|i don't know|i do not know|cannot (?:help|assist|comply))\b"
)

_HINTS = ("sorry", "can", "won", "will not", "unable", "not able", "afraid", "an ai", " know")
"""One of these is in every refusal; looking for them is much cheaper."""

Grams = set[int]
"""Hashes of word trigrams."""


class TraitReader:
    """Reads the traits of answers; knows the winners of the newest groups.

    What it keeps is bounded: the word trigrams of at most twice `WINNERS` answers.
    """

    def __init__(self) -> None:
        self._young: Grams = set()
        self._old: Grams = set()
        self._count = 0

    def of(self, text: str, length: float) -> tuple[tuple[float, ...], Grams]:
        """The traits in the order of `TRAITS`, and the trigrams to remember should it win.

        Args:
            text: The answer, perhaps cut.
            length: Of the whole answer, in whatever unit its group has.
        """
        ends = text if len(text) <= HEAD + TAIL else f"{text[:HEAD]} {text[-TAIL:]}"
        low = ends.lower()
        words = low.split()
        count = len(words) - 2
        grams = set(map(hash, zip(words, words[1:], words[2:], strict=False)))
        size = len(grams)
        many = low.count
        marks = sum([many(mark) for mark in _MARKS])
        found = (
            length,
            marks / len(low) if low else 0.0,
            1.0 - size / count if count > 0 else 0.0,
            len((grams & self._young) | (grams & self._old)) / size if size else 0.0,
            _refuses(low[:200]),
        )
        return found, grams

    def won(self, grams: Grams) -> None:
        """Remember a winner; the oldest generation is forgotten now and then."""
        self._young |= grams
        self._count += 1
        if self._count >= WINNERS:
            self._old, self._young, self._count = self._young, set(), 0


def _refuses(begin: str) -> float:
    """1 when a text that begins so refuses, else 0."""
    for hint in _HINTS:
        if hint in begin:
            break
    else:
        return 0.0
    return 1.0 if _REFUSAL.search(begin.replace("’", "'")) else 0.0


def lengths(tokens: Sequence[int], texts: Sequence[str]) -> list[float]:
    """Lengths of a group's answers in one unit: tokens where all are known, else characters."""
    return [float(one) for one in tokens] if all(tokens) else [float(len(one)) for one in texts]


WORDS: Mapping[str, str] = {
    "length": "length",
    "punctuation": "the density of punctuation",
    "repetition": "repetition within the answer",
    "likeness": "likeness to past winners",
    "refusal": "phrases of refusal",
}
"""The traits in a sentence."""
MORE: Mapping[str, str] = {
    "length": "longer",
    "punctuation": "fuller of punctuation",
    "repetition": "more repetitive",
    "likeness": "closer to past winners",
    "refusal": "a refusal",
}
"""What an answer that has more of a trait is."""
