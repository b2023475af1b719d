"""Strict parser of a judge's replies: a complete result, or a fault that can be sent back to it."""

import contextlib
import re
from typing import TypeVar

import msgspec

from ajet_swarm.common.secrets import redact
from ajet_swarm.common.text import one_line
from core.openai.thoughts import THOUGHT_END

REPLY_LIMIT = 64 << 10
"""Maximum length of a reply in characters."""
REASON_LIMIT = 300

T = TypeVar("T")

_FENCE = re.compile(r"```(?:json)?\s*\n(.*)```", re.DOTALL | re.IGNORECASE)


class BadReply(Exception):
    """A reply is unusable; the text gives the reason and is also sent to the judge."""


class Verdict(msgspec.Struct, frozen=True):
    """The judge's score for one answer."""

    score: float
    """On the scale of the judge's settings."""
    reason: str


class Choice(msgspec.Struct, frozen=True):
    """The judge's choice between two answers."""

    winner: int
    """0 for the first, 1 for the second, -1 for neither."""
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
    """Return a verdict for each of `count` answers, in the order of their indexes.

    Raises:
        BadReply: an index is missing, repeated or unknown, a score is not a number or out of range,
            or the reply is not the requested object.
    """
    verdicts: dict[int, Verdict] = {}
    for scored in _read(reply, _Scores).scores:
        if not 1 <= scored.index <= count:
            raise BadReply(f"there is no answer with index {scored.index}, only 1 to {count}")
        if scored.index in verdicts:
            raise BadReply(f"index {scored.index} came twice")
        if not low <= scored.score <= high:
            raise BadReply(f"the score {scored.score:g} is not between {low:g} and {high:g}")
        verdicts[scored.index] = Verdict(scored.score, _reason(scored.reason))
    if missing := [str(index) for index in range(1, count + 1) if index not in verdicts]:
        raise BadReply(
            f"{len(verdicts)} scores for {count} answers, none for index {', '.join(missing)}"
        )
    return [verdicts[index] for index in range(1, count + 1)]


def winner(reply: str) -> Choice:
    """Return which of two answers is better.

    Raises:
        BadReply: the reply does not name a winner.
    """
    choice = _read(reply, _Winner)
    number = {"1": 0, "2": 1, "tie": -1}.get(choice.winner)
    if number is None:
        raise BadReply(f'the winner is {one_line(choice.winner, 40)!r}, not "1", "2" or "tie"')
    return Choice(number, _reason(choice.reason))


def _read(reply: str, kind: type[T]) -> T:
    """Return the one object of a reply, alone or after the end of a thought, perhaps in a fence.

    What precedes the end of a thought never counts, with or without its beginning. The first end
    that only an object follows is the right one, so that a reason can quote such an end.
    """
    if len(reply) > REPLY_LIMIT:
        raise BadReply(f"it has {len(reply)} characters")
    *earlier, last = [0, *(end.end() for end in THOUGHT_END.finditer(reply))]
    for start in earlier:
        with contextlib.suppress(BadReply):
            return _decode(reply[start:], kind)
    return _decode(reply[last:], kind)


def _decode(text: str, kind: type[T]) -> T:
    text = text.strip().removeprefix("\ufeff").strip()
    if fenced := _FENCE.fullmatch(text):
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
        raise BadReply("it contains characters that are not valid text") from error
    except RecursionError:
        raise BadReply("it is nested too deeply") from None


def _reason(text: str) -> str:
    return one_line(redact(text), REASON_LIMIT)
