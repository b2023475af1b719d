"""Causes in words: the proxy notes some of them by the short names of the wire."""

import contextlib
import signal
from collections.abc import Sequence

from ajet_swarm.common.text import one_line
from core.events import GroupClosed, Part
from core.events.causes import AllExpired, NoAnswers, NoEpisodes, NotAllTaken, read_cause
from core.state import Group

NOTHING = 0.005
"""Rewards below this are shown as 0.00."""
_CLAIM = {
    "none_available": "every episode of this batch is taken",
    "syncing": "the engine was syncing weights",
    "post_rolling": "the engine was finishing its batch",
    "not_rolling": "the engine was not rolling",
    "unreachable": "the engine could not be reached",
    "unknown": "the engine did not answer",
    "other": "the engine refused",
    "OFFLINE": "the engine is offline",
    "BOOTING": "the engine was booting",
    "ROLLING": "every episode of this batch is taken",
    "ROLLING_POST": "the engine was finishing its batch",
    "WEIGHT_SYNCING": "the engine was syncing weights",
    "WEIGHT_EXPORTING": "the engine was exporting weights",
    "CANNOT_CONNECT": "the engine could not be reached",
    "UNKNOWN": "the engine is in an unknown state",
}
_CHAT = {
    "lost_episode": "the engine no longer knows the episode",
    "overflow": "the prompt is too long",
    "unauthorized": "the engine refused the key",
    "upstream": "the engine failed",
    "refused": "the upstream refused the request",
    "limited": "the upstream limits the rate",
    "broken": "its stream ended too early",
    "timed_out": "no answer in time",
    "unreachable": "the engine could not be reached",
}
_SENT = {
    "unknown": "not confirmed",
    "unknown_outcome": "not confirmed",
    "refused": "refused",
    "expired": "expired",
}
UNCONFIRMED = "reward sent, not confirmed"


def cause_words(group: Group | GroupClosed) -> str:
    """Return the cause of a group's end in words; one of an unknown kind stays as it is."""
    match read_cause(group.cause_kind, group.cause_params):
        case NoEpisodes(refusal=refusal):
            return f"no episode in time: {_CLAIM.get(refusal, refusal)}"
        case NoAnswers(errors=errors, unretried=unretried):
            more = f"; not retried: {', '.join(unretried)}" if unretried else ""
            failures = ", ".join(_CHAT.get(one, one) for one in errors)
            return f"no candidate gave an answer: {failures}{more}"
        case NotAllTaken(taken=taken, of=of, others=others):
            listed = ", ".join(f"{count} {_SENT.get(one, one)}" for one, count in others.items())
            return f"{taken} of {of} rewards taken, {listed}"
        case AllExpired():
            return "its time ran out before the rewards were sent"
        case _:
            return group.cause


def candidate_words(error: str, failure: str = "", text: str = "") -> str:
    """Return why a candidate has no answer.

    Args:
        error: Cause as text, where the failure is of no known kind.
        failure: Kind of the failure.
        text: Text of the failure of that kind.
    """
    if failure not in _CHAT:
        return error
    if failure == "timed_out" and text:  # the text describes the timeout
        return text
    return f"{_CHAT[failure]}: {text}" if text else _CHAT[failure]


def held_down(parts: Sequence[Part], reward: float | None) -> str:
    """What holds a reward down, as `refusal: declines to answer`; empty when nothing does.

    The lowest gate below 1; for a reward of 0 without one, the part with the greatest weight.
    """
    found = min((one for one in parts if one.gate and one.value < 1), key=_value, default=None)
    if found is None and reward is not None and abs(reward) < NOTHING:
        weighted = [one for one in parts if not one.gate and one.weight > 0]
        found = max(weighted, key=lambda one: one.weight, default=None)
    if found is None:
        return ""
    name, reason = one_line(found.name, 40), one_line(found.reason, 200)
    return f"{name}: {reason}" if reason else name


def _value(part: Part) -> float:
    return part.value


def exit_text(code: int | None) -> str:
    """Return how a process ended, for people.

    Args:
        code: Exit code; negative for a signal; None when it is not known.
    """
    if code is None:
        return "exited unexpectedly"
    if code >= 0:
        return f"ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"
