"""Whether an answer takes up the query."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proxy.rewards.part import Kind, Looked, PartValue, Setting

ENOUGH = 0.5
"""Share of the query's words that is enough: who only repeats the question is not better."""


class Relevance:
    """Share of the query's content words that the answer takes up, by their stems."""

    def __init__(self, enough: float = ENOUGH) -> None:
        self._factor = 1.0 / enough

    def score(self, group: Looked) -> list[PartValue | None] | None:
        """None for a query without such words, and for an answer that calls tools."""
        stems = group.stems
        if not stems:
            return None
        size, factor = len(stems), self._factor
        spaced = [" " + stem for stem in stems]
        values: list[PartValue | None] = []
        for reading in group.readings:
            if reading.tool_calls:
                values.append(None)
                continue
            line, found = reading.line, 0
            for stem in spaced:
                if stem in line:
                    found += 1
            value = factor * found / size
            reason = f"{found} of {size} query words taken up"
            values.append(PartValue(value if value < 1.0 else 1.0, reason))
        return values


def make(name: str, settings: Mapping[str, Any], where: Path) -> Relevance:
    return Relevance(settings["enough"])


KIND = Kind(
    make,
    "Share of the query's content words that the answer takes up",
    {"enough": Setting("number", ENOUGH, "share of them that already gives 1", 0.01, 1)},
)
