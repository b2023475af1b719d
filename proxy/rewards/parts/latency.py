"""Scores the time that an answer took."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proxy.rewards.part import PartInput, PartKind, PartValue, Setting, SettingError


class Latency:
    """1 up to `good` seconds, 0 from `bad` seconds on, linear between."""

    def __init__(self, good: float, bad: float) -> None:
        self._good, self._bad = good, bad

    def of(self, seconds: float) -> PartValue:
        """Return the value of one duration."""
        value = (self._bad - seconds) / (self._bad - self._good)
        return PartValue(min(1.0, max(0.0, value)), f"{seconds:.1f} s")

    def score(self, group: PartInput) -> list[PartValue]:
        """Return one value for each answer."""
        return [self.of(answer.seconds) for answer in group.context.answers]


def make(name: str, settings: Mapping[str, Any], where: Path) -> Latency:
    """Return the part.

    Raises:
        SettingError: `bad` is not above `good`.
    """
    good, bad = settings["good"], settings["bad"]
    if good >= bad:
        raise SettingError("bad", f"`bad` {bad:g} is not above `good` {good:g}")
    return Latency(good, bad)


KIND = PartKind(
    make,
    "1 for an answer within `good` seconds, 0 from `bad` seconds on",
    {
        "good": Setting("number", 2.0, "seconds up to which the value is 1", 0),
        "bad": Setting("number", 30.0, "seconds from which the value is 0", 0),
    },
    relative="it depends on the load of the server",
)
