"""Gates: factors that pull the whole reward down when an answer is broken."""

import re

from proxy.rewards.base import Part
from proxy.rewards.text import Reading, grams_of

REPEATS_FROM, REPEATS_TO = 0.2, 0.7
"""Share of repeated 4-grams where the gate starts to close, and where it is shut."""

_RUN = re.compile(r"([^\s\-=_*#~.|+/\\])\1{29,}")
"""One character thirty times over; those that draw rules and tables are left alone."""

_THRICE = re.compile(r"(.)\1\1", re.DOTALL)

_FINISHED = {"length": (0.5, "cut off by the length limit"), "content_filter": (0.0, "filtered")}


_NOT_ONE = Part("degeneration", 1.0, gate=True, reason="0% of the phrases are repeats")


def degeneration(reading: Reading) -> Part:
    """0 for an empty answer or a loop, 1 for ordinary text, between them by repeated 4-grams."""
    if not reading.words and not reading.text.strip() and not reading.tool_calls:
        return Part("degeneration", 0.0, gate=True, reason="empty answer")
    if (run := _run_in(reading.ends)) is not None:
        return Part("degeneration", 0.0, gate=True, reason=f"{run!r} over and over")
    words = reading.words
    if len(words) < 11:
        return Part("degeneration", 1.0, gate=True, reason="no repetition")
    repeated = 0.0
    if len(reading.grams) < len(words) - 2:  # else no trigram comes twice, so nothing longer does
        grams = list(grams_of(words, 4))
        repeated = 1.0 - len(set(grams)) / len(grams)
    if not repeated:
        return _NOT_ONE
    value = (REPEATS_TO - repeated) / (REPEATS_TO - REPEATS_FROM)
    reason = f"{repeated:.0%} of the phrases are repeats"
    return Part("degeneration", min(1.0, max(0.0, value)), gate=True, reason=reason)


def _run_in(text: str) -> str | None:
    """The character that comes thirty times over; None when there is none."""
    if _THRICE.search(text[::10]) is None:  # of such a run every tenth character is three alike
        return None
    found = _RUN.search(text)
    return found.group(1) if found else None


def finished(reason: str) -> Part:
    """1 for an answer that came to its end, 0.5 when it was cut off, 0 when it was filtered."""
    value, text = _FINISHED.get(reason, (1.0, reason))
    return Part("finished", value, gate=True, reason=text)
