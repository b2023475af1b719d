"""Scores the length of an answer."""

import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from proxy.rewards.part import PartInput, PartKind, PartValue, Setting, SettingError
from proxy.rewards.parts.expected_answer import expected_answer

IDEAL = 60.0
"""Words in an answer that is neither short nor long."""
WIDTH = 1.2
"""Tolerance: the value is 0.6 at a third and at three times the ideal."""
OFF_CENTER = 0.1
"""Deduction at either end of the range that a query implies, so that answers of different
lengths within it seldom get the same reward."""

_NONE = PartValue(0.0, "no words")


class Length:
    """1 within a range of words, falling smoothly on both sides with the ratio; 0 for no words.

    It is smooth everywhere, so that two answers of different length seldom get the same reward.
    """

    def __init__(
        self,
        low: float = IDEAL,
        high: float = IDEAL,
        width: float = WIDTH,
        by_query: bool = False,
    ) -> None:
        self._low, self._high, self._width, self._by_query = low, high, width, by_query

    def of(self, count: int, band: "Band | None" = None) -> PartValue:
        """Return the value of `count` words; `band` is the range that the query implies, if any."""
        if count == 0:
            return _NONE
        low, high = (self._low, self._high) if band is None else (band.low, band.high)
        if count < low:
            value = math.exp(-0.5 * (math.log(count / low) / self._width) ** 2)
        elif count > high:
            value = math.exp(-0.5 * (math.log(count / high) / self._width) ** 2)
        else:
            value = 1.0
        words = "1 word" if count == 1 else f"{count} words"
        if band is None:
            return PartValue(value, words)
        distance = abs(math.log(count) - band.middle) / band.half if band.half else 0.0
        if distance > 1.0:
            distance = 1.0
        value *= 1.0 - OFF_CENTER * distance * distance
        return PartValue(value, words + band.reason)

    def score(self, group: PartInput) -> list[PartValue | None]:
        """Return one value for each answer; None for one that calls tools."""
        band = None
        if self._by_query:
            expected = expected_answer(group.context.query)
            band = band_of(expected.least, expected.most)
        of = self.of
        return [
            None if reading.tool_calls else of(reading.count, band) for reading in group.readings
        ]


class Band(NamedTuple):
    """The range of words that a query implies."""

    low: float
    high: float
    middle: float
    """Logarithm of the middle, which is the geometric mean of both ends."""
    half: float
    """Distance of the logarithms of an end and of the middle."""
    reason: str


@lru_cache(maxsize=256)
def band_of(low: float, high: float) -> Band:
    """Return the band of a range of words."""
    middle, half = 0.5 * math.log(low * high), 0.5 * math.log(high / low)
    return Band(low, high, middle, half, f", {low:.0f} to {high:.0f} fit the query")


def make(name: str, settings: Mapping[str, Any], where: Path) -> Length:
    """Return the part.

    Raises:
        SettingError: `least` is above `most`.
    """
    low, high = settings["least"], settings["most"]
    if low is None and high is None:
        low = high = settings["ideal"]
    low, high = (1.0 if low is None else low), (math.inf if high is None else high)
    if low > high:
        raise SettingError("least", f"`least` {low:g} is above `most` {high:g}", "Swap them")
    return Length(low, high, settings["width"], settings["by_query"])


LENGTH = PartKind(
    make,
    "Number of words: 1 within a range, falling smoothly outside",
    {
        "ideal": Setting("number", IDEAL, "best number of words if no range is given", 1),
        "least": Setting("number", None, "lower end of the range in words", 1),
        "most": Setting("number", None, "upper end of the range in words", 1),
        "by_query": Setting("flag", False, "the range depends on the query: a fact, a text"),
        "width": Setting(
            "number", WIDTH, "how slowly it falls: to 0.6 at e^width times the end", 0.01
        ),
    },
)
