"""Checks whether an answer equals the dataset's reference."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proxy.rewards.part import PartInput, PartKind, PartValue, Setting
from proxy.rewards.parts.compare import bare, final, goal_of

_SAME = PartValue(1.0, "the same as the reference")


class Exact:
    """1 for the same text, else 0; does not apply to a row without a reference."""

    def __init__(self, strict: bool = False, marked: bool = True) -> None:
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
            return _SAME
        return PartValue(0.0, f"not {goal[:40]!r}")


def make(name: str, settings: Mapping[str, Any], where: Path) -> Exact:
    return Exact(settings["strict"], settings["marked"])


KIND = PartKind(
    make,
    "1 if the answer equals the dataset's reference, else 0",
    {
        "strict": Setting("flag", False, "compare case, spaces and surrounding punctuation too"),
        "marked": Setting("flag", True, "compare only the last `\\boxed{}` or `####`, if any"),
    },
)
