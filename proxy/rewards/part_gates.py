"""Gates: factors that pull the whole reward down when an answer is broken."""

import re

from proxy.rewards.base import Part
from proxy.rewards.text import Reading, grams_of

REPEATS_FROM, REPEATS_TO = 0.2, 0.7
"""Share of repeated 4-grams where the gate starts to close, and where it is shut."""

_RUN = re.compile(r"([^\s\-=_*#~.|+/\\])\1{29,}")
"""One character thirty times over; those that draw rules and tables are left alone."""

_FINISHED = {"length": (0.5, "cut off by the length limit"), "content_filter": (0.0, "filtered")}


def degeneration(reading: Reading) -> Part:
    """0 for an empty answer or a loop, 1 for ordinary text, between them by repeated 4-grams."""
    if not reading.words and not reading.text.strip() and not reading.tool_calls:
        return Part("degeneration", 0.0, gate=True, reason="empty answer")
    if run := _RUN.search(reading.ends):
        return Part("degeneration", 0.0, gate=True, reason=f"{run.group(1)!r} over and over")
    grams = grams_of(reading.words, 4)
    if len(grams) < 8:
        return Part("degeneration", 1.0, gate=True, reason="no repetition")
    repeated = 1.0 - len(set(grams)) / len(grams)
    value = (REPEATS_TO - repeated) / (REPEATS_TO - REPEATS_FROM)
    reason = f"{repeated:.0%} of the phrases are repeats"
    return Part("degeneration", min(1.0, max(0.0, value)), gate=True, reason=reason)


def finished(reason: str) -> Part:
    """1 for an answer that came to its end, 0.5 when it was cut off, 0 when it was filtered."""
    value, text = _FINISHED.get(reason, (1.0, reason))
    return Part("finished", value, gate=True, reason=text)
