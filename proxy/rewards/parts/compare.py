"""Comparing a text with the dataset's reference: what the kinds about it share."""

import math
import re
from collections import Counter

from proxy.rewards.text import words_of

_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?|[-+]?\.\d+")
_DIGIT = re.compile(r"\d")
_ALONE = re.compile(rf"[^\w+\-.]*({_NUMBER.pattern})\s*(?:%|[^\W\d]{{1,12}})?[^\w]*")
_BOXED = re.compile(r"\\boxed\{([^{}]*)\}|####\s*([^\n]+)")

PHRASE = 12
"""Longest reference, in words, that an answer may contain as it stands."""
TOLERANCE = 1e-6
"""Relative difference up to which two numbers are the same."""


def final(text: str) -> str | None:
    """The last `\\boxed{}` or `####` of a text, where there is one."""
    if "####" not in text and "\\boxed{" not in text:
        return None
    marked = _BOXED.findall(text)
    return str(marked[-1][0] or marked[-1][1]).strip() if marked else None


def goal_of(wanted: str) -> str:
    """What a reference comes to: its marked end, else the whole."""
    marked = final(wanted)
    return wanted.strip() if marked is None else marked


def bare(text: str) -> str:
    """Lower case, single spaces, no marks around it."""
    return " ".join(text.lower().split()).strip(" .!?\"'`*")


def number_in(goal: str) -> float | None:
    """The number that a reference is, perhaps with a unit; None when it is no number."""
    alone = _ALONE.fullmatch(goal)
    return None if alone is None else value_of(alone.group(1))


def value_of(number: str) -> float:
    return float(number.replace(",", ""))


def numeric(text: str, goal: float, elsewhere: float, tolerance: float) -> tuple[float, str]:
    """1 for a text whose final number is `goal`, `elsewhere` for one that only names it.

    The final number is that of the last `\\boxed{}` or `####`, else the last number.
    """
    if _DIGIT.search(text) is None:
        return 0.0, f"no number, {goal:g} expected"
    marked = final(text)
    last = _NUMBER.findall(text if marked is None else marked)
    if not last:
        return 0.0, f"no number, {goal:g} expected"
    end = value_of(last[-1])
    if math.isclose(end, goal, rel_tol=tolerance, abs_tol=1e-9):
        return 1.0, f"ends with {goal:g}"
    numbers = _NUMBER.findall(text)
    if any(math.isclose(value_of(one), goal, rel_tol=tolerance) for one in numbers):
        return elsewhere, f"names {goal:g}, ends with {end:g}"
    return 0.0, f"ends with {end:g}, {goal:g} expected"


def verbal(text: str, goal: str) -> tuple[float, str]:
    """0.9 for a short reference that stands in the text; for longer ones 0.6 times the F1."""
    have, want = words_of(text), words_of(goal)
    if not want:
        return 0.0, "the reference has no words to compare"
    if len(want) <= PHRASE:
        if f" {' '.join(want)} " in f" {' '.join(have)} ":
            return 0.9, "contains the reference"
        if len(want) == 1:
            return 0.0, "the reference is not in it"
    common = (Counter(have) & Counter(want)).total()
    score = 2 * common / (len(have) + len(want))
    return 0.6 * score, f"word F1 with the reference {score:.2f}"
