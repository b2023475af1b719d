"""Words for the traits of answers that rewards may follow."""

from collections.abc import Mapping

_WORDS: Mapping[str, tuple[str, str]] = {
    "length": ("length", "longer"),
    "repetition": ("repetition within the answer", "more repetitive"),
    "refusal": ("phrases of refusal", "a refusal"),
    "reference": ("overlap with the reference", "closer to a copy of the reference"),
}
"""Trait -> noun, and description of an answer that has more of it."""


def trait_words(trait: str) -> tuple[str, str]:
    """Return a noun for the trait, and a description of an answer that has more of it."""
    return _WORDS.get(trait, (trait, f"higher in {trait}"))
