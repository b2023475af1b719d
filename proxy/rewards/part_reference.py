"""The part that compares an answer with the dataset's own."""

import math
import re
from collections import Counter

from proxy.rewards.base import Part
from proxy.rewards.text import words_of

_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?|[-+]?\.\d+")
_ALONE = re.compile(rf"[^\w+\-.]*({_NUMBER.pattern})\s*(?:%|[^\W\d]{{1,12}})?[^\w]*")
_BOXED = re.compile(r"\\boxed\{([^{}]*)\}|####\s*([^\n]+)")

PHRASE = 12
"""Longest reference, in words, that an answer may contain as it stands."""


def reference(text: str, wanted: str, weight: float) -> Part:
    """How well `text` agrees with the reference `wanted`.

    1 for the same text or the same final number; 0.9 for a short reference that stands in the
    answer; 0.25 for the right number in another place than the end; for longer references 0.6
    times the F1 of the words; else 0. A final number is the last `\\boxed{}` or `####`, else the
    last number.
    """
    marked = _BOXED.findall(wanted)
    goal = ((marked[-1][0] or marked[-1][1]) if marked else wanted).strip()
    if _same(text, goal):
        return Part("reference", 1.0, weight, False, "the same as the reference")
    if number := _ALONE.fullmatch(goal):
        value, reason = _numeric(text, _value(number.group(1)))
    else:
        value, reason = _verbal(text, goal)
    return Part("reference", value, weight, False, reason)


def _same(text: str, goal: str) -> bool:
    return _bare(text) == _bare(goal)


def _bare(text: str) -> str:
    return " ".join(text.lower().split()).strip(" .!?\"'`*")


def _value(number: str) -> float:
    return float(number.replace(",", ""))


def _numeric(text: str, goal: float) -> tuple[float, str]:
    marked = _BOXED.findall(text)
    final = _NUMBER.findall((marked[-1][0] or marked[-1][1]) if marked else text)
    if not final:
        return 0.0, f"no number, {goal:g} expected"
    if math.isclose(_value(final[-1]), goal, rel_tol=1e-6, abs_tol=1e-9):
        return 1.0, f"ends with {goal:g}"
    if any(math.isclose(_value(found), goal, rel_tol=1e-6) for found in _NUMBER.findall(text)):
        return 0.25, f"names {goal:g}, ends with {_value(final[-1]):g}"
    return 0.0, f"ends with {_value(final[-1]):g}, {goal:g} expected"


def _verbal(text: str, goal: str) -> tuple[float, str]:
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
