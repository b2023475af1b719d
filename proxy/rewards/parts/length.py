"""How long an answer is."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proxy.rewards.part import Kind, Looked, PartValue, Setting, SettingsFault

IDEAL = 60.0
"""Words of an answer that is neither short nor long."""
WIDTH = 1.2
"""How tolerant the length is: 0.6 remains at a third and at three times the ideal."""

_NONE = PartValue(0.0, "no words")


class Length:
    """1 within a band of words, falling smoothly to either side on the scale of the ratio.

    Smooth everywhere, so that two answers of different length seldom get the same reward; 0 for no
    words.
    """

    def __init__(self, low: float = IDEAL, high: float = IDEAL, width: float = WIDTH) -> None:
        self._low, self._high, self._width = low, high, width

    def of(self, count: int) -> PartValue:
        """The value of `count` words."""
        if count == 0:
            return _NONE
        if count < self._low:
            value = math.exp(-0.5 * (math.log(count / self._low) / self._width) ** 2)
        elif count > self._high:
            value = math.exp(-0.5 * (math.log(count / self._high) / self._width) ** 2)
        else:
            value = 1.0
        return PartValue(value, f"{count} words")

    def score(self, group: Looked) -> list[PartValue | None]:
        """None for an answer that calls tools: its text is not what counts."""
        of = self.of
        return [None if one.tool_calls else of(one.count) for one in group.readings]


def make(name: str, settings: Mapping[str, Any], where: Path) -> Length:
    """Raises:
    SettingsFault: the band is upside down.
    """
    low, high = settings["least"], settings["most"]
    if low is None and high is None:
        low = high = settings["ideal"]
    low, high = (1.0 if low is None else low), (math.inf if high is None else high)
    if low > high:
        raise SettingsFault("least", f"`least` {low:g} is above `most` {high:g}", "Swap them")
    return Length(low, high, settings["width"])


KIND = Kind(
    make,
    "Words: 1 within the band, falling smoothly outside",
    {
        "ideal": Setting("number", IDEAL, "words of the best answer, where no band is given", 1),
        "least": Setting("number", None, "words where the band begins", 1),
        "most": Setting("number", None, "words where the band ends", 1),
        "width": Setting("number", WIDTH, "how slowly it falls: 0.6 is left at e^width", 0.01),
    },
)
