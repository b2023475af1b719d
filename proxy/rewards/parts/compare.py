"""Comparison of a text with the dataset's reference, shared by the kinds that use it."""

import math
import re
from collections import Counter
from collections.abc import Container, Sequence

from proxy.rewards.text import words_of

_NUMBER = re.compile(
    r"(?:(?<![\w)])[-+])?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?(?:/\d+(?![\d/.]))?|\.\d+)"
)
_DIGIT = re.compile(r"\d")
_FRACTION = re.compile(r"\\[dt]?frac\{(\d+)\}\{(\d+)\}")
_UNIT = r"(?:\s*[%°€$£]|\s*°?[^\W\d]{1,12}(?:/[^\W\d]{1,8}|\s+per\s+\w{1,12})?[²³]?)?"
_ALONE = re.compile(rf"[^\w+\-.]*({_NUMBER.pattern}){_UNIT}[^\w]*")
_CONCLUDES = re.compile(
    rf"[^\n,=]*(?:=|\b(?:is|are|equals|makes|gives|to))\s*[$€£*]*({_NUMBER.pattern}){_UNIT}[.!*\s]*"
)
"""A short sentence or one equation that ends with its number."""
_NUMBER_WORDS = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
    "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14,
    "fifteen": 15, "sixteen": 16, "seventeen": 17, "eighteen": 18, "nineteen": 19, "twenty": 20,
    "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80,
    "ninety": 90, "hundred": 100, "thousand": 1_000, "million": 1_000_000,
}  # fmt: skip
_SPELLED_WITHIN = 300
"""Characters at the end of a text that are searched for a spelled number."""
_BOXED = re.compile(r"\\boxed\{([^{}]*)\}|####\s*([^\n]+)")

PHRASE = 12
"""Longest reference, in words, that an answer may contain verbatim."""
TOLERANCE = 1e-6
"""Relative difference up to which two numbers count as equal."""


def final(text: str) -> str | None:
    """Return the last `\\boxed{}` or `####` of a text; None without one."""
    if "####" not in text and "\\boxed{" not in text:
        return None
    marked = _BOXED.findall(text)
    return str(marked[-1][0] or marked[-1][1]).strip() if marked else None


def goal_of(reference: str) -> str:
    """Return the goal that a reference states: its marked end, or else its whole text."""
    marked = final(reference)
    return reference.strip() if marked is None else marked


def bare(text: str) -> str:
    """Return `text` in lower case, with single spaces and without punctuation around it."""
    return " ".join(text.lower().split()).strip(" .!?\"'`*")


def plain(text: str) -> str:
    """Return `text` with ASCII signs and with fractions on one line."""
    if "−" in text:
        text = text.replace("−", "-")
    return _FRACTION.sub(r"\1/\2", text) if "frac{" in text else text


def number_in(goal: str) -> float | None:
    """Return the number of a goal: alone, with a unit, or at the end of a short sentence.

    None for any other goal.
    """
    goal = plain(goal)
    match = _ALONE.fullmatch(goal)
    if match is None and len(goal) <= 120:
        match = _CONCLUDES.fullmatch(goal)
    return None if match is None else value_of(match.group(1))


def value_of(number: str) -> float:
    """Return the value of digits, which may be a fraction of two whole numbers."""
    numerator, slash, denominator = number.replace(",", "").partition("/")
    if not slash:
        return float(numerator)
    return float(numerator) / float(denominator) if float(denominator) else math.nan


def numbers_of(text: str) -> frozenset[float]:
    """Return the numbers that a text contains as digits."""
    if _DIGIT.search(text) is None:
        return frozenset()
    return frozenset(map(value_of, _NUMBER.findall(plain(text))))


def spelled(text: str) -> float | None:
    """Return the last number that the end of a text spells in English words; None without one.

    "one" counts only if it is the whole text: otherwise it is seldom a number.
    """
    words = words_of(text[-_SPELLED_WITHIN:])
    if _NUMBER_WORDS.keys().isdisjoint(words):
        return None
    end = len(words)
    while end:
        if words[end - 1] not in _NUMBER_WORDS:
            end -= 1
            continue
        start = end
        while start and (words[start - 1] in _NUMBER_WORDS or _joins(words, start - 1)):
            start -= 1
        if words[start:end] != ["one"] or len(words) == 1:
            sign = -1.0 if start and words[start - 1] in ("minus", "negative") else 1.0
            return sign * _number_of_words(words[start:end])
        end = start
    return None


def _joins(words: Sequence[str], place: int) -> bool:
    """Return whether a word is the "and" within a number: `one thousand and two`."""
    return words[place] == "and" and place > 0 and words[place - 1] in ("hundred", "thousand")


def _number_of_words(words: Sequence[str]) -> float:
    whole = part = 0
    for word in words:
        value = _NUMBER_WORDS.get(word, 0)
        if value >= 1_000:
            whole, part = whole + max(part, 1) * value, 0
        elif value == 100:
            part = max(part, 1) * 100
        else:
            part += value
    return float(whole + part)


def numeric(
    text: str,
    goal: float,
    elsewhere: float,
    tolerance: float,
    first: float | None = None,
    query_numbers: Container[float] = (),
) -> tuple[float, str]:
    """Return 1 for a text whose final number is `goal`, `elsewhere` if it only contains it, else 0.

    The final number is in the last `\\boxed{}` or `####`, or else the last number of the text, in
    digits or spelled after them.

    Args:
        text: The answer.
        goal: The expected number.
        elsewhere: Value of a text that names `goal` but ends with another number.
        tolerance: Relative difference up to which numbers count as equal.
        first: Value of a text that names `goal` before any other number of its own.
        query_numbers: Numbers of the query, which are not the text's own.

    Returns:
        The value and its reason.
    """

    def same(value: float) -> bool:
        return math.isclose(value, goal, rel_tol=tolerance, abs_tol=1e-9)

    text = plain(text)
    marked = final(text)
    conclusion = text if marked is None else marked
    matches = list(_NUMBER.finditer(conclusion)) if _DIGIT.search(conclusion) is not None else []
    if matches and same(value_of(matches[-1][0])):
        return 1.0, f"ends with {goal:g}"
    trailing = spelled(conclusion[matches[-1].end() :] if matches else conclusion)
    if trailing is not None and same(trailing):
        return 1.0, f"ends with {goal:g}"
    if not matches:
        return 0.0, f"no number, {goal:g} expected" if trailing is None else _ends(trailing, goal)
    end = value_of(matches[-1][0])
    values = [value_of(one) for one in _NUMBER.findall(text)]
    own = next((value for value in values if same(value) or value not in query_numbers), None)
    if first is not None and own is not None and same(own):
        return first, f"names {goal:g} first, ends with {end:g}"
    if any(map(same, values)):
        return elsewhere, f"names {goal:g}, ends with {end:g}"
    return 0.0, _ends(end, goal)


def _ends(end: float, goal: float) -> str:
    return f"ends with {end:g}, {goal:g} expected"


def verbal(text: str, goal: str) -> tuple[float, str]:
    """Return 0.9 for a text that contains a short goal; for a longer goal 0.6 times the words' F1.

    Returns:
        The value and its reason.
    """
    words, goal_words = words_of(text), words_of(goal)
    if not goal_words:
        return 0.0, "the reference has no words to compare"
    if len(goal_words) <= PHRASE:
        if f" {' '.join(goal_words)} " in f" {' '.join(words)} ":
            return 0.9, "contains the reference"
        if len(goal_words) == 1:
            return 0.0, "the reference is not in it"
    common = (Counter(words) & Counter(goal_words)).total()
    score = 2 * common / (len(words) + len(goal_words))
    return 0.6 * score, f"word F1 with the reference {score:.2f}"
