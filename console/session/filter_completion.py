"""Completion of the word at the cursor of a filter line."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ajet_swarm.common.text import one_line
from console.session.filters import FIELDS, FLAGS, NUMBERS, STATES

MOST = 24
"""Largest number of options offered at once."""


@dataclass(frozen=True, slots=True)
class Completion:
    """The options that may replace the word at the cursor."""

    start: int
    """Index at which the replaced part begins."""
    end: int
    options: tuple[str, ...] = ()
    hint: str = ""
    """Describes the expected value when there are no options to list."""


def complete(text: str, cursor: int, known: Mapping[str, Iterable[str]]) -> Completion:
    """Return the completions of the word that ends at the cursor.

    Args:
        text: The filter line.
        cursor: Index of the character, from 0.
        known: Existing values by field: names of servers and models.
    """
    start = _word_start(text, cursor)
    word = text[start:cursor]
    if word.startswith("-"):
        start, word = start + 1, word[1:]
    if word.startswith('"'):
        return Completion(start, cursor)
    at = next((place for place, sign in enumerate(word) if sign in ":~<>="), None)
    if at is None:
        options = [_with_operator(name) for name in FIELDS if name.startswith(word.lower())]
        return Completion(start, cursor, tuple(options))
    end = at + 1
    while end < len(word) and word[end] in "<>=":
        end += 1
    return _values(word[:at].lower(), word[end:], start + end, cursor, known)


def _word_start(text: str, cursor: int) -> int:
    quoted, start = False, 0
    for place, sign in enumerate(text[:cursor]):
        if sign == '"':
            quoted = not quoted
        elif sign.isspace() and not quoted:
            start = place + 1
    return start


def _with_operator(name: str) -> str:
    if name in ("state", "ids") or name in FLAGS:
        return f"{name}:"
    return f"{name}<" if name in NUMBERS else f"{name}~"


def _values(
    name: str, typed: str, start: int, cursor: int, known: Mapping[str, Iterable[str]]
) -> Completion:
    options: Sequence[str] = ()
    hint = ""
    if name in ("state", "phase"):
        options = STATES
    elif name in FLAGS:
        options = ("yes", "no")
    elif name == "ids":
        hint = "group ids in full, with commas"
    elif name in NUMBERS:
        hint = "a number"
    elif name in known:
        names = sorted({one_line(value, 60) for value in known[name] if value})
        options = [f'"{name}"' if " " in name else name for name in names]
    elif name in FIELDS:
        hint = "part of its text"
    prefix = typed.lower()
    matches = [
        option
        for option in options
        if option.lower().startswith(prefix) and option.lower() != prefix
    ]
    return Completion(start, cursor, tuple(matches[:MOST]), hint)
