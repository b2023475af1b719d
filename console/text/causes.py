"""Causes in words: the proxy notes some of them by the short names of the wire."""

import contextlib
import re
import signal
from collections.abc import Sequence

from ajet_swarm.common.text import one_line
from core.events import Part

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


def cause_words(cause: str) -> str:
    """The cause of a group's end; one nobody knows stays as it is."""
    head, colon, tail = cause.partition(": ")
    if head == "no episodes in time" and colon:
        return f"no episode in time: {_CLAIM.get(tail, tail)}"
    if head == "no candidate gave an answer" and colon:
        errors, mark, more = tail.partition("; ")
        return f"{head}: {', '.join(_CHAT.get(one, one) for one in errors.split(', '))}{mark}{more}"
    if " rewards taken, " in cause:
        return re.sub(r"(?<=\d )\w+$|(?<=\d )\w+(?=,)", _sent_word, cause)
    return "its time ran out before the rewards were sent" if cause == "expired" else cause


def _sent_word(found: re.Match[str]) -> str:
    return _SENT.get(found[0], found[0])


def candidate_words(error: str) -> str:
    """Why a candidate has no answer."""
    head, colon, tail = error.partition(": ")
    if head == "timed_out" and tail.startswith("no answer"):  # it says so itself
        return tail
    if head in _CHAT:
        return f"{_CHAT[head]}{colon}{tail}"
    return cause_words(error)


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
