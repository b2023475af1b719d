"""The gate against incomplete answers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proxy.rewards.part import PartInput, PartKind, PartValue, Setting

CUT = 0.5
"""Value of an answer that was cut off by the length limit."""


class Finished:
    """1 for a complete answer, less for one that was cut off, 0 for one that was filtered."""

    def __init__(self, cut: float = CUT) -> None:
        self._values = {
            "stop": PartValue(1.0, "stop"),
            "tool_calls": PartValue(1.0, "tool_calls"),
            "length": PartValue(cut, "cut off by the length limit"),
            "content_filter": PartValue(0.0, "filtered"),
        }

    def of(self, reason: str) -> PartValue:
        """Return the value of one finish reason; an unknown one counts as complete."""
        return self._values.get(reason) or PartValue(1.0, reason)

    def score(self, group: PartInput) -> list[PartValue]:
        """Return one value for each answer."""
        of = self.of
        return [of(reading.finish_reason) for reading in group.readings]


def make(name: str, settings: Mapping[str, Any], where: Path) -> Finished:
    return Finished(settings["cut"])


KIND = PartKind(
    make,
    "1 for a complete answer, less if cut off by the length limit, 0 if filtered",
    {"cut": Setting("number", CUT, "value of an answer that was cut off", 0, 1)},
    gate=True,
)
