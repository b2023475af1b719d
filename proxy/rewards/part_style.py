"""Parts that look at how an answer is written: length, relevance, diversity."""

import math

from proxy.rewards.base import Part
from proxy.rewards.text import Reading

IDEAL = 60
"""Words of an answer that is neither short nor long."""
WIDTH = 1.2
"""How tolerant the length is: 0.6 remains at a third and at three times the ideal."""


def length(count: int, weight: float) -> Part:
    """1 at `IDEAL` words, falling smoothly to either side on the scale of their ratio; 0 for none.

    Smooth everywhere, so that two answers of different length seldom get the same reward.
    """
    if count == 0:
        return Part("length", 0.0, weight, False, "no words")
    value = math.exp(-0.5 * (math.log(count / IDEAL) / WIDTH) ** 2)
    return Part("length", value, weight, False, f"{count} words")


def relevance(stems: tuple[str, ...], line: str, weight: float) -> Part:
    """Share of the query's content words that the answer takes up, by their stems.

    Half of them is enough for 1: an answer that only repeats the question is not better.
    """
    found = 0
    for stem in stems:
        if " " + stem in line:
            found += 1
    value = min(1.0, 2 * found / len(stems))
    return Part("relevance", value, weight, False, f"{found} of {len(stems)} query words taken up")


def shared_most(readings: list[Reading]) -> list[tuple[int, int]]:
    """For each answer: how many trigrams its nearest sibling shares, and which that is.

    0 and -1 for an answer that shares none.
    """
    most = [(0, -1)] * len(readings)
    for one, reading in enumerate(readings):
        for other in range(one):
            both = len(reading.grams & readings[other].grams)
            if both > most[one][0]:
                most[one] = (both, other)
            if both > most[other][0]:
                most[other] = (both, one)
    return most


def diversity(own: frozenset[int], most: tuple[int, int], weight: float) -> Part:
    """1 minus the largest share of the answer's trigrams that one sibling has too."""
    if not own:
        return Part("diversity", 0.0, weight, False, "nothing to compare")
    shared, nearest = most
    if nearest < 0:
        return Part("diversity", 1.0, weight, False, "shares no phrase with a sibling")
    share = shared / len(own)
    return Part(
        "diversity", 1.0 - share, weight, False, f"{share:.0%} shared with candidate {nearest + 1}"
    )
