"""Kinds by one fact about an answer: complete, quick, with code."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proxy.rewards.part import (
    EachAnswer,
    PartInput,
    PartKind,
    PartValue,
    Setting,
    SettingError,
)
from proxy.rewards.parts.expected_answer import expected_answer


def finished(cut: float) -> EachAnswer:
    """1 for a complete answer, `cut` for one that was cut off, 0 for one that was filtered."""
    values = {
        "stop": PartValue(1.0, "stop"),
        "tool_calls": PartValue(1.0, "tool_calls"),
        "length": PartValue(cut, "cut off by the length limit"),
        "content_filter": PartValue(0.0, "filtered"),
    }
    return EachAnswer(
        lambda reading: values.get(reading.finish_reason) or PartValue(1.0, reading.finish_reason)
    )


class Latency:
    """1 up to `good` seconds, 0 from `bad` seconds on, linear between."""

    def __init__(self, good: float, bad: float) -> None:
        self._good, self._bad = good, bad

    def score(self, group: PartInput) -> list[PartValue]:
        """Return one value for each answer."""
        return [self._of(answer.seconds) for answer in group.context.answers]

    def _of(self, seconds: float) -> PartValue:
        value = (self._bad - seconds) / (self._bad - self._good)
        return PartValue(min(1.0, max(0.0, value)), f"{seconds:.1f} s")


def latency(name: str, settings: Mapping[str, Any], where: Path) -> Latency:
    """Return the part.

    Raises:
        SettingError: `bad` is not above `good`.
    """
    good, bad = settings["good"], settings["bad"]
    if good >= bad:
        raise SettingError("bad", f"`bad` {bad:g} is not above `good` {good:g}")
    return Latency(good, bad)


class Code:
    """1 for a code block; applies only to queries that request code, without tools."""

    def score(self, group: PartInput) -> list[PartValue] | None:
        """Return one value for each answer; None when the query requests no code."""
        if group.context.tools or not expected_answer(group.context.query).code:
            return None
        return [_code_in(reading.text) for reading in group.readings]


def _code_in(text: str) -> PartValue:
    if fences := text.count("```"):
        if fences % 2:
            return PartValue(0.6, "a code block that does not end")
        return PartValue(1.0, "a code block")
    inline = max((len(span) for span in text.split("`")[1:-1:2]), default=0)
    if inline >= 12:
        return PartValue(0.8, "code within the text")
    return PartValue(0.0, "no code, though it is asked for")


FINISHED = PartKind(
    lambda name, settings, where: finished(settings["cut"]),
    "1 for a complete answer, less if cut off by the length limit, 0 if filtered",
    {"cut": Setting("number", 0.5, "value of an answer that was cut off", 0, 1)},
    gate=True,
)
LATENCY = PartKind(
    latency,
    "1 for an answer within `good` seconds, 0 from `bad` seconds on",
    {
        "good": Setting("number", 2.0, "seconds up to which the value is 1", 0),
        "bad": Setting("number", 30.0, "seconds from which the value is 0", 0),
    },
    relative="it depends on the load of the server",
)
CODE = PartKind(
    lambda name, settings, where: Code(),
    "1 for an answer with a code block if the query asks for code",
)
