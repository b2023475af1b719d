"""The gate against empty answers and loops."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proxy.rewards.part import EachAnswer, PartKind, PartValue, Setting, SettingError
from proxy.rewards.text import Reading, grams_of

CLOSES, SHUT = 0.2, 0.7
"""Share of repeated 4-grams where the value begins to fall, and where it is 0."""

_RUN = re.compile(r"([^\s\-=_*#~.|+/\\])\1{29,}")
"""One character thirty times in a row, except those that draw rules and tables."""

_THREE_EQUAL = re.compile(r"(.)\1\1", re.DOTALL)

_NO_REPEATS = PartValue(1.0, "0% of the phrases are repeats")
_SHORT = PartValue(1.0, "no repetition")
_EMPTY = PartValue(0.0, "empty answer")


class Repetition:
    """0 for an empty answer or a loop, 1 for ordinary text, between them by repeated 4-grams."""

    def __init__(self, closes: float = CLOSES, shut: float = SHUT) -> None:
        self._shut, self._span = shut, shut - closes

    def of(self, reading: Reading) -> PartValue:
        """Return the value of one answer."""
        words = reading.words
        if not words and not reading.text.strip() and not reading.tool_calls:
            return _EMPTY
        if _THREE_EQUAL.search(reading.ends[::10]) is not None and (
            run := _RUN.search(reading.ends)
        ):
            # in such a run, every tenth character gives three equal ones
            return PartValue(0.0, f"{run.group(1)!r} over and over")
        if len(words) < 11:
            return _SHORT
        if len(reading.grams) >= len(words) - 2:  # no trigram is repeated, so no 4-gram is
            return _NO_REPEATS
        grams = list(grams_of(words, 4))
        repeated = 1.0 - len(set(grams)) / len(grams)
        if not repeated:
            return _NO_REPEATS
        value = (self._shut - repeated) / self._span
        reason = f"{repeated:.0%} of the phrases are repeats"
        return PartValue(min(1.0, max(0.0, value)), reason)


def make(name: str, settings: Mapping[str, Any], where: Path) -> EachAnswer:
    """Return the part.

    Raises:
        SettingError: `shut` is not above `closes`.
    """
    closes, shut = settings["closes"], settings["shut"]
    if closes >= shut:
        raise SettingError("shut", f"`shut` {shut:g} is not above `closes` {closes:g}")
    return EachAnswer(Repetition(closes, shut).of)


REPETITION = PartKind(
    make,
    "0 for an empty answer or a loop, by the share of repeated 4-grams",
    {
        "closes": Setting("number", CLOSES, "share of repeats at which it starts to fall", 0, 1),
        "shut": Setting("number", SHUT, "share of repeats at which it reaches 0", 0, 1),
    },
    gate=True,
)
