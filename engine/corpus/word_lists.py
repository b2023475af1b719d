"""Word lists of the corpus, read from the package's data."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

_DATA = Path(__file__).parent.parent / "data"


@dataclass(frozen=True, slots=True)
class FactEntry:
    """A fact that the policy is trained on."""

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
    """Return facts, advice and small talk."""
    entries = []
    for line in _lines("facts.txt"):
        questions, full, short = line.split(" => ")
        entries.append(FactEntry(tuple(questions.split(" ; ")), full, short))
    return tuple(entries)


@cache
def capitals() -> tuple[tuple[str, str], ...]:
    """Return pairs (country, capital)."""
    pairs = (line.split(": ") for line in _lines("capitals.txt"))
    return tuple((country, capital) for country, capital in pairs)


@cache
def unanswerable() -> tuple[str, ...]:
    """Return questions without an honest answer here."""
    return tuple(_lines("odd.txt"))


@cache
def nouns() -> tuple[str, ...]:
    """Return plural or mass nouns."""
    return tuple(dict.fromkeys(" ".join(_lines("nouns.txt")).split()))


@cache
def tasks() -> tuple[str, ...]:
    """Return activities, as infinitives."""
    return tuple(part.strip() for line in _lines("tasks.txt") for part in line.split(";"))


@cache
def names() -> tuple[str, ...]:
    """Return first names."""
    return tuple(" ".join(_lines("names.txt")).split())
