"""Checks whether an answer ends with the number of the dataset's reference."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proxy.rewards.part import PartInput, PartKind, PartValue, Setting
from proxy.rewards.parts.compare import TOLERANCE, goal_of, number_in, numeric


class Numeric:
    """1 for the right final number; does not apply where the reference is not a number."""

    def __init__(self, tolerance: float = TOLERANCE, elsewhere: float = 0.0) -> None:
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


def make(name: str, settings: Mapping[str, Any], where: Path) -> Numeric:
    return Numeric(settings["tolerance"], settings["elsewhere"])


KIND = PartKind(
    make,
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
