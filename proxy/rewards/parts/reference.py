"""How well an answer agrees with the dataset's own, whatever kind that is."""

from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from proxy.rewards.part import PartInput, PartKind, PartValue, Setting
from proxy.rewards.parts.asked import sum_of
from proxy.rewards.parts.compare import (
    TOLERANCE,
    bare,
    goal_of,
    number_in,
    numbers_of,
    numeric,
    verbal,
)
from proxy.rewards.text import READ_LIMIT

ELSEWHERE = 0.25
"""What the right number in another place than the end is worth."""
FIRST = 0.75
"""What it is worth before all other numbers that the query does not have."""


def reference(text: str, wanted: str, asked: Container[float] = ()) -> PartValue:
    """How well `text` agrees with the reference `wanted`.

    1 for the same text or the same final number; 0.9 for a short reference that stands in the
    answer; 0.75 for the right number as the first that the query does not have, 0.25 in another
    place than the end; for longer references 0.6 times the F1 of the words; else 0. A final number
    is the last `\\boxed{}` or `####`, else the last number, in digits or in English words.

    Args:
        asked: Numbers of the query.
    """
    goal = goal_of(wanted)
    if bare(text) == bare(goal):
        return PartValue(1.0, "the same as the reference")
    number = number_in(goal)
    if number is not None:
        return PartValue(*numeric(text, number, ELSEWHERE, TOLERANCE, FIRST, asked))
    return PartValue(*verbal(text, goal))


class Reference:
    """`reference` of each answer; does not apply where the row has none.

    Args:
        sums: Where the row has none, compare with the value of a query that is plain arithmetic;
            not where tools are offered, for then a call may come before the number.
    """

    def __init__(self, sums: bool = False) -> None:
        self._sums = sums

    def score(self, group: PartInput) -> list[PartValue] | None:
        wanted, query = group.context.reference, group.context.query
        if wanted is not None:
            asked = numbers_of(query[:READ_LIMIT])
            return [reference(reading.text, wanted, asked) for reading in group.readings]
        value = sum_of(query) if self._sums and not group.context.tools else None
        if value is None:
            return None
        asked = numbers_of(query)
        return [_computed(reading.text, value, asked) for reading in group.readings]


def _computed(text: str, value: float, asked: Container[float]) -> PartValue:
    share, reason = numeric(text, value, ELSEWHERE, TOLERANCE, FIRST, asked)
    return PartValue(share, f"{reason}, computed from the query")


def make(name: str, settings: Mapping[str, Any], where: Path) -> Reference:
    return Reference(settings["sums"])


KIND = PartKind(
    make,
    "Agreement with the dataset's reference: text, number, phrase or word F1, in this order",
    {"sums": Setting("flag", False, "a row without one: the value of a query that is a sum")},
)
