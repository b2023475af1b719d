"""The word lists of the corpus, read from the package's data."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

_DATA = Path(__file__).parent.parent / "data"


@dataclass(frozen=True, slots=True)
class FactEntry:
    """One thing the policy knows."""

    questions: tuple[str, ...]
    """Phrasings; the first is the plainest."""
    full: str
    """Answer as a sentence with a full stop."""
    short: str
    """Answer in a few words with a full stop."""


def _lines(name: str) -> list[str]:
    text = (_DATA / name).read_text(encoding="utf-8")
    return [line for line in text.split("\n") if line and not line.startswith("#")]


@cache
def facts() -> tuple[FactEntry, ...]:
    """Facts, advice and small talk."""
    made = []
    for line in _lines("facts.txt"):
        questions, full, short = line.split(" => ")
        made.append(FactEntry(tuple(questions.split(" ; ")), full, short))
    return tuple(made)


@cache
def capitals() -> tuple[tuple[str, str], ...]:
    """Pairs (country, capital)."""
    pairs = (line.split(": ") for line in _lines("capitals.txt"))
    return tuple((country, capital) for country, capital in pairs)


@cache
def unanswerable() -> tuple[str, ...]:
    """Questions that have no honest answer here."""
    return tuple(_lines("odd.txt"))


@cache
def nouns() -> tuple[str, ...]:
    """Plural or mass nouns."""
    return tuple(dict.fromkeys(" ".join(_lines("nouns.txt")).split()))


@cache
def tasks() -> tuple[str, ...]:
    """Things to do, as infinitives."""
    return tuple(part.strip() for line in _lines("tasks.txt") for part in line.split(";"))


@cache
def names() -> tuple[str, ...]:
    """First names."""
    return tuple(" ".join(_lines("names.txt")).split())
