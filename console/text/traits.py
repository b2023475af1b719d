"""Words for the traits of answers that rewards may follow."""

from collections.abc import Mapping

from ajet_swarm.common.text import one_line

_WORDS: Mapping[str, tuple[str, str]] = {
    "length": ("length", "longer"),
    "punctuation": ("the density of punctuation", "fuller of punctuation"),
    "repetition": ("repetition within the answer", "more repetitive"),
    "likeness": ("likeness to past winners", "closer to past winners"),
    "refusal": ("phrases of refusal", "a refusal"),
    "flattery": ("flattering phrases", "more flattering"),
    "emoji": ("the number of emoji", "fuller of emoji"),
    "markup": ("the density of markup", "fuller of headings, lists and bold text"),
    "reference": ("overlap with the reference", "closer to a copy of the reference"),
}
"""Trait -> noun, and description of an answer that has more of it."""


def trait_words(trait: str, word: str = "") -> tuple[str, str]:
    """Return a noun for the trait, and a description of an answer that has more of it.

    Args:
        trait: Its name in the events.
        word: The word of an answer, for the trait keyword; a model wrote it.
    """
    if word:
        shown = one_line(word, 24)
        return f"the word `{shown}`", f"one with `{shown}`"
    return _WORDS.get(trait, (trait, f"higher in {trait}"))
