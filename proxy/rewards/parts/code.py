"""Checks whether an answer contains the code that its query requests."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proxy.rewards.part import PartInput, PartKind, PartValue
from proxy.rewards.parts.expected_answer import expected_answer

_BLOCK = PartValue(1.0, "a code block")
_OPEN = PartValue(0.6, "a code block that does not end")
_INLINE = PartValue(0.8, "code within the text")
_NONE = PartValue(0.0, "no code, though it is asked for")


class Code:
    """1 for a code block; applies only to queries that request code, without tools."""

    def score(self, group: PartInput) -> list[PartValue] | None:
        """Return one value for each answer; None when the query requests no code."""
        if group.context.tools or not expected_answer(group.context.query).code:
            return None
        return [_of(reading.text) for reading in group.readings]


def _of(text: str) -> PartValue:
    fences = text.count("```")
    if fences:
        return _OPEN if fences % 2 else _BLOCK
    inline = max((len(one) for one in text.split("`")[1:-1:2]), default=0)
    return _INLINE if inline >= 12 else _NONE


def make(name: str, settings: Mapping[str, Any], where: Path) -> Code:
    return Code()


KIND = PartKind(make, "1 for an answer with a code block if the query asks for code")
