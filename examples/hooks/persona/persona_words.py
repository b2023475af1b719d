"""Countable features of a text; a helper module of the hooks."""

import re

_LIVELY = """
adore amazing awesome beautiful brilliant cheerful delighted delightful enjoy excellent excited
exciting fabulous fantastic favourite favorite fun glad great happy hooray incredible joy love
lovely marvellous perfect spectacular super thrilled vibrant wonderful wow yay yes
"""
LIVELY = frozenset(_LIVELY.split())
DULL = frozenset(["unfortunately", "boring", "whatever", "cannot", "unable", "meh"])


def words(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]+", text.lower())


def extraversion(text: str) -> float:
    """Return 0 to 1; two lively words and three exclamation marks give the maximum."""
    spoken = words(text)
    lively = min(sum(word in LIVELY for word in spoken), 2)
    dull = sum(word in DULL for word in spoken)
    marks = min(len(re.findall(r"!+", text)), 3)
    return max(0.0, min(1.0, 0.2 * (lively + marks - dull)))


def relevance(text: str, question: str) -> float:
    """Return the share of the question's longer words that the answer uses."""
    wanted = {word[:5] for word in words(question) if len(word) > 3}
    if not wanted:
        return 1.0
    return len(wanted & {word[:5] for word in words(text)}) / len(wanted)


def diversity(own: frozenset[str], others: list[frozenset[str]]) -> float:
    """Return 1 minus the largest Jaccard overlap with another answer."""
    if not own:
        return 0.0
    return 1.0 - max((len(own & other) / len(own | other) for other in others), default=0.0)
