"""Kinds that compare an answer with the dataset's reference: in any form, exactly, by number."""

from collections.abc import Container
from decimal import Decimal

from proxy.rewards.part import PartInput, PartKind, PartValue, Setting
from proxy.rewards.parts.compare import (
    PHRASE,
    TOLERANCE,
    bare,
    final,
    goal_of,
    number_in,
    numbers_of,
    numeric,
    verbal,
)
from proxy.rewards.parts.expected_answer import value_of_sum
from proxy.rewards.text import READ_LIMIT, words_of

ELSEWHERE = 0.25
"""Value of the right number in another place than at the end."""
RIGHT = 0.9
"""Lowest value of an answer that ends with the right number or contains the right words."""
FIRST = 0.75
"""Value of the right number before all others that the query does not contain."""


def agreement(text: str, reference: str, query_numbers: Container[Decimal] = ()) -> PartValue:
    """Return how well `text` agrees with `reference`.

    1 for the same text or the same final number; 0.9 for a short reference that the answer
    contains; 0.75 for the right number as the first that the query does not contain, 0.25 in
    another place than at the end; for longer references 0.6 times the F1 of words; else 0. The
    final number is in the last `\\boxed{}` or `####`, or else the last number, in digits or in
    English words.

    Args:
        text: The answer.
        reference: The dataset's reference.
        query_numbers: Numbers of the query.
    """
    goal = goal_of(reference)
    if bare(text) == bare(goal):
        return PartValue(1.0, "the same as the reference")
    number = number_in(goal)
    if number is not None:
        return PartValue(*numeric(text, number, ELSEWHERE, TOLERANCE, FIRST, query_numbers))
    return PartValue(*verbal(text, goal))


def is_right(text: str, reference: str) -> bool | None:
    """Return whether an answer agrees with a reference; None for one that only words describe."""
    goal = goal_of(reference)
    if number_in(goal) is None and len(words_of(goal)) > PHRASE:
        return None
    return agreement(text, reference).value >= RIGHT


class Reference:
    """`agreement` of each answer; does not apply to a row without a reference.

    Args:
        sums: Whether the value of a query that is plain arithmetic replaces a missing reference;
            not where tools are offered, because a call may come before the number.
    """

    def __init__(self, sums: bool = False) -> None:
        self._sums = sums

    def score(self, group: PartInput) -> list[PartValue] | None:
        reference, query = group.context.reference, group.context.query
        if reference is not None:
            query_numbers = numbers_of(query[:READ_LIMIT])
            return [agreement(reading.text, reference, query_numbers) for reading in group.readings]
        value = value_of_sum(query) if self._sums and not group.context.tools else None
        if value is None:
            return None
        query_numbers = numbers_of(query)
        return [_computed(reading.text, value, query_numbers) for reading in group.readings]


def _computed(text: str, value: Decimal, query_numbers: Container[Decimal]) -> PartValue:
    share, reason = numeric(text, value, ELSEWHERE, TOLERANCE, FIRST, query_numbers)
    return PartValue(share, f"{reason}, computed from the query")


class Exact:
    """1 for the same text, else 0; does not apply to a row without a reference."""

    def __init__(self, strict: bool, marked: bool) -> None:
        self._strict, self._marked = strict, marked

    def score(self, group: PartInput) -> list[PartValue] | None:
        reference = group.context.reference
        if reference is None:
            return None
        goal = self._plain(goal_of(reference) if self._marked else reference)
        return [self._of(reading.text, goal) for reading in group.readings]

    def _plain(self, text: str) -> str:
        return text.strip() if self._strict else bare(text)

    def _of(self, text: str, goal: str) -> PartValue:
        marked = final(text) if self._marked else None
        if self._plain(text if marked is None else marked) == goal:
            return PartValue(1.0, "the same as the reference")
        return PartValue(0.0, f"not {goal[:40]!r}")


class Numeric:
    """1 for the right final number; does not apply where the reference is not a number."""

    def __init__(self, tolerance: float, elsewhere: float) -> None:
        self._tolerance, self._elsewhere = tolerance, elsewhere

    def score(self, group: PartInput) -> list[PartValue] | None:
        reference = group.context.reference
        goal = None if reference is None else number_in(goal_of(reference))
        if goal is None:
            return None
        return [
            PartValue(*numeric(reading.text, goal, self._elsewhere, self._tolerance))
            for reading in group.readings
        ]


REFERENCE = PartKind(
    lambda name, settings, where: Reference(settings["sums"]),
    "Agreement with the dataset's reference: text, number, phrase or word F1, in this order",
    {"sums": Setting("flag", False, "without a reference: use the result of a sum in the query")},
)
EXACT = PartKind(
    lambda name, settings, where: Exact(settings["strict"], settings["marked"]),
    "1 if the answer equals the dataset's reference, else 0",
    {
        "strict": Setting("flag", False, "compare case, spaces and surrounding punctuation too"),
        "marked": Setting("flag", True, "compare only the last `\\boxed{}` or `####`, if any"),
    },
)
NUMERIC = PartKind(
    lambda name, settings, where: Numeric(settings["tolerance"], settings["elsewhere"]),
    "1 if the answer ends with the number of the dataset's reference",
    {
        "tolerance": Setting(
            "number",
            TOLERANCE,
            "relative difference that counts as equal; by default whole numbers are exact",
            0,
            1,
        ),
        "elsewhere": Setting("number", 0.0, "value of the number if it is not at the end", 0, 1),
    },
)
