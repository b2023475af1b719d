"""Strict reading of what a judge says: all of it, or a fault that can be told back to it."""

import re
from typing import TypeVar

import msgspec

from ajet_swarm.common.text import one_line, redact

REPLY_LIMIT = 64 << 10
"""Characters of a reply that are read."""
REASON_LIMIT = 300

T = TypeVar("T")

_FENCE = re.compile(r"\A```(?:json)?[ \t]*\n(.*?)\n?```\Z", re.DOTALL)
_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)


class BadReply(Exception):
    """A reply cannot be used; the text says why, in words that also help the judge."""


class Verdict(msgspec.Struct, frozen=True):
    """What the judge says of one answer."""

    score: float
    """On the scale of the settings."""
    reason: str


class Choice(msgspec.Struct, frozen=True):
    """Which of two answers is better."""

    winner: int
    """0 the first, 1 the second, -1 neither."""
    reason: str


class _Score(msgspec.Struct, forbid_unknown_fields=True):
    index: int
    score: float
    reason: str


class _Scores(msgspec.Struct, forbid_unknown_fields=True):
    scores: list[_Score]


class _Winner(msgspec.Struct, forbid_unknown_fields=True):
    winner: str
    reason: str


def scores(reply: str, count: int, low: float, high: float) -> list[Verdict]:
    """A verdict for each of `count` answers, in the order of their indexes.

    Raises:
        BadReply: an index is missing, double or strange, a score is no number or out of range, or
            it is not the object that was asked for.
    """
    found: dict[int, Verdict] = {}
    for one in _read(reply, _Scores).scores:
        if not 1 <= one.index <= count:
            raise BadReply(f"there is no answer with index {one.index}, only 1 to {count}")
        if one.index in found:
            raise BadReply(f"index {one.index} came twice")
        if not low <= one.score <= high:
            raise BadReply(f"the score {one.score:g} is not between {low:g} and {high:g}")
        found[one.index] = Verdict(one.score, _reason(one.reason))
    if missing := [str(index) for index in range(1, count + 1) if index not in found]:
        raise BadReply(
            f"{len(found)} scores for {count} answers, none for index {', '.join(missing)}"
        )
    return [found[index] for index in range(1, count + 1)]


def winner(reply: str) -> Choice:
    """Which of two answers is better.

    Raises:
        BadReply: it does not say.
    """
    found = _read(reply, _Winner)
    number = {"1": 0, "2": 1, "tie": -1}.get(found.winner)
    if number is None:
        raise BadReply(f'the winner is {one_line(found.winner, 40)!r}, not "1", "2" or "tie"')
    return Choice(number, _reason(found.reason))


def _read(reply: str, kind: type[T]) -> T:
    """The one object of a reply, which may stand in one code fence or behind its thoughts."""
    if len(reply) > REPLY_LIMIT:
        raise BadReply(f"it has {len(reply)} characters")
    text = _THOUGHT.sub("", reply, count=1).strip()
    if fenced := _FENCE.match(text):
        text = fenced[1].strip()
    if not text:
        raise BadReply("it is empty")
    if not text.startswith("{"):
        raise BadReply("it is not one JSON object alone")
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as error:
        raise BadReply(f"it is not the JSON that was asked for: {error}") from error
    except UnicodeEncodeError as error:
        raise BadReply("it holds letters that no text has") from error
    except RecursionError:
        raise BadReply("it is nested too deeply") from None


def _reason(text: str) -> str:
    return one_line(redact(text), REASON_LIMIT)
