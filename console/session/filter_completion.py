"""What can stand at the cursor of a filter line."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ajet_swarm.common.text import one_line
from console.session.filters import FIELDS, FLAGS, NUMBERS, STATES

MOST = 24
"""Options that are offered at once."""


@dataclass(frozen=True, slots=True)
class Completion:
    """What may replace the word that the cursor stands in."""

    start: int
    """Where the part begins that an option replaces."""
    end: int
    options: tuple[str, ...] = ()
    hint: str = ""
    """What is wanted where nothing can be listed."""


def complete(text: str, cursor: int, known: Mapping[str, Iterable[str]]) -> Completion:
    """Look at the word that ends at the cursor.

    Args:
        text: The filter line.
        cursor: Character, from 0.
        known: Values there are, by field: names of servers and models.
    """
    start = _word_start(text, cursor)
    word = text[start:cursor]
    if word.startswith("-"):
        start, word = start + 1, word[1:]
    if word.startswith('"'):
        return Completion(start, cursor)
    at = next((place for place, sign in enumerate(word) if sign in ":~<>="), None)
    if at is None:
        found = [_begun(name) for name in FIELDS if name.startswith(word.lower())]
        return Completion(start, cursor, tuple(found))
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


def _begun(name: str) -> str:
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
        names = sorted({one_line(one, 60) for one in known[name] if one})
        options = [f'"{one}"' if " " in one else one for one in names]
    elif name in FIELDS:
        hint = "part of its text"
    wanted = typed.lower()
    found = [one for one in options if one.lower().startswith(wanted) and one.lower() != wanted]
    return Completion(start, cursor, tuple(found[:MOST]), hint)
