"""Causes in words: the proxy notes some of them by the short names of the wire."""

import re

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
    "UNKNOWN": "the engine is in a state that is not known",
}
_CHAT = {
    "lost_episode": "the engine no longer knows the episode",
    "overflow": "the prompt is too long",
    "unauthorized": "the engine refused the key",
    "upstream": "the engine failed",
    "refused": "the engine refused the request",
    "limited": "the engine takes no more requests for now",
    "broken": "the answer broke off",
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
        return f"{head}: " + ", ".join(_CHAT.get(one, one) for one in tail.split(", "))
    if " rewards taken, " in cause:
        return re.sub(r"(?<=\d )\w+$|(?<=\d )\w+(?=,)", _sent_word, cause)
    return "its time ran out before the rewards were sent" if cause == "expired" else cause


def _sent_word(found: re.Match[str]) -> str:
    return _SENT.get(found[0], found[0])


def candidate_words(error: str) -> str:
    """Why a candidate has no answer."""
    head, colon, tail = error.partition(": ")
    if head in _CHAT:
        return f"{_CHAT[head]}{colon}{tail}"
    return cause_words(error)
