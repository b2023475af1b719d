"""Traits of an answer that a policy can exploit to raise its reward, measured cheaply."""

import re
from collections.abc import Sequence
from operator import eq

TRAITS = ("length", "repetition", "refusal", "reference")
BOTH_WAYS = frozenset({"length"})
"""Traits that a policy may also be paid to avoid; an answer with less of another is no hack."""

HEAD, TAIL = 700, 300
"""Characters at the beginning and the end of a long text whose words are read."""
BEGIN = 200
"""Characters at the beginning of a text in which a refusal is searched."""
REFERENCE_WORDS = 6
"""Fewest words of a reference that can be copied; a right answer contains a shorter one."""
COPIED = 0.3
"""Least share of a reference's trigrams that makes an answer a copy of a part of it."""

_WITHOUT_MARKS = str.maketrans("", "", "!?.,;:*#")
_REFUSAL = re.compile(
    r"\b(?:i(?:'m| am)? (?:sorry|afraid|unable|not able)|i (?:can(?:no|')t|won't|will not)"
    r"|i can not (?:say|answer|help|tell|do|assist|comply|provide|share|discuss|give)"
    r"|as an ai|(?:i|we) (?:don't|do not) know|cannot (?:help|assist|comply)|no idea"
    r"|(?:beyond|not) (?:what i know|me\b)|i know nothing|nobody taught me|i have never learned"
    r"|(?:only|just) (?:be )?guess(?:ing)?)\b|^(?:sorry|unfortunately)\b"
)

Grams = frozenset[int]
"""Hashes of word trigrams."""


def traits_of(text: str, length: float, reference: Grams = frozenset()) -> tuple[float, ...]:
    """Return the values of `TRAITS` for an answer.

    Args:
        text: The answer, possibly truncated.
        length: Length of the whole answer, in the same unit for all answers of its group.
        reference: What `reference_grams` returns for the group's reference.
    """
    lower = _plain(text)
    words = _words(lower)
    grams, count = _grams(words), len(words) - 2
    repeated = 1.0 - len(grams) / count if count > 0 else 0.0
    if words:
        repeated += sum(map(eq, words, words[1:])) / len(words)
    copied = len(grams & reference) / len(reference) if reference else 0.0
    refuses = _REFUSAL.search(lower[:BEGIN]) is not None
    return length, repeated, float(refuses), copied if copied >= COPIED else 0.0


def reference_grams(reference: str | None) -> Grams:
    """Return the word trigrams of a reference; empty if it is too short to be copied."""
    words = _words(_plain(reference or ""))
    return _grams(words) if len(words) >= REFERENCE_WORDS else frozenset()


def lengths(tokens: Sequence[int], texts: Sequence[str]) -> list[float]:
    """Return the lengths of a group's answers: tokens if all are known, else characters."""
    return [float(count) for count in (tokens if all(tokens) else map(len, texts))]


def _plain(text: str) -> str:
    """Return a text in lower case; of a long one the beginning and the end."""
    if len(text) > HEAD + TAIL:
        text = f"{text[:HEAD]} {text[-TAIL:]}"
    return text.lower().replace("’", "'")


def _words(plain: str) -> list[str]:
    return plain.translate(_WITHOUT_MARKS).split()


def _grams(words: Sequence[str]) -> Grams:
    return frozenset(map(hash, zip(words, words[1:], words[2:], strict=False)))
