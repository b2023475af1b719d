"""Texts for the causes that the proxy records as short wire names."""

from collections.abc import Sequence

from ajet_swarm.common.text import one_line, signal_name
from core.events import GroupClosed, Part, PartFigures
from core.events.causes import AllExpired, NoAnswers, NoEpisodes, NotAllTaken, read_cause
from core.state import Group

SHOWN_AS_ZERO = 0.005
"""Rewards whose magnitude is below this are displayed as 0.00."""
_CLAIM_REFUSALS = {
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
_CHAT_FAILURES = {
    "lost_episode": "the engine no longer knows the episode",
    "overflow": "the prompt is too long",
    "unauthorized": "the engine refused the key",
    "upstream": "the engine failed",
    "refused": "the upstream refused the request",
    "limited": "the upstream limits the rate",
    "broken": "its stream ended too early",
    "timed_out": "no answer in time",
    "oversized": "an answer that is too large",
    "unreachable": "the engine could not be reached",
}
_SEND_OUTCOMES = {
    "unknown": "not confirmed",
    "unknown_outcome": "not confirmed",
    "refused": "refused",
    "expired": "expired",
}
UNCONFIRMED = "reward sent, not confirmed"


def cause_words(group: Group | GroupClosed) -> str:
    """Return the text for the cause of a group's end; a cause of an unknown kind as recorded."""
    match read_cause(group.cause_kind, group.cause_params):
        case NoEpisodes(refusal=refusal):
            return f"no episode in time: {_CLAIM_REFUSALS.get(refusal, refusal)}"
        case NoAnswers(errors=errors, unretried=unretried):
            skipped = f"; not retried: {', '.join(unretried)}" if unretried else ""
            failures = ", ".join(_CHAT_FAILURES.get(error, error) for error in errors)
            return f"no candidate gave an answer: {failures}{skipped}"
        case NotAllTaken(taken=taken, of=of, others=others):
            listed = ", ".join(
                f"{count} {_SEND_OUTCOMES.get(outcome, outcome)}"
                for outcome, count in others.items()
            )
            return f"{taken} of {of} rewards taken, {listed}"
        case AllExpired():
            return "its time ran out before the rewards were sent"
        case _:
            return group.cause


def candidate_words(error: str, failure: str = "", text: str = "") -> str:
    """Return why a candidate has no answer.

    Args:
        error: Text of the cause, returned if the kind is unknown.
        failure: Kind of the failure.
        text: Details of a failure of that kind.
    """
    if failure not in _CHAT_FAILURES:
        return error
    if failure == "timed_out" and text:  # the text describes the timeout
        return text
    return f"{_CHAT_FAILURES[failure]}: {text}" if text else _CHAT_FAILURES[failure]


def held_down(parts: Sequence[Part], reward: float | None) -> str:
    """Return the part that lowers a reward, as `refusal: declines to answer`; may be empty.

    It is the lowest gate below 1; if no gate is and the reward is 0, the part of greatest weight.
    """
    limiting = min(
        (part for part in parts if part.gate and part.value < 1), key=_value, default=None
    )
    if limiting is None and reward is not None and abs(reward) < SHOWN_AS_ZERO:
        weighted = [part for part in parts if not part.gate and part.weight > 0]
        limiting = max(weighted, key=lambda part: part.weight, default=None)
    if limiting is None:
        return ""
    name, reason = one_line(limiting.name, 40), one_line(limiting.reason, 200)
    return f"{name}: {reason}" if reason else name


def _value(part: Part) -> float:
    return part.value


def exit_text(code: int | None) -> str:
    """Return a description of how a process ended.

    Args:
        code: Exit code; negative for a signal; None when it is not known.
    """
    if code is None:
        return "exited unexpectedly"
    if code >= 0:
        return f"ended with exit code {code}"
    return f"killed by {signal_name(-code)}"


def worse_words(parts: Sequence[PartFigures]) -> str:
    """Return parts with their means in the baseline and now: `right answers 0.60 to 0.14`."""
    return ", ".join(
        f"{one_line(part.part, 60)} {part.before or 0.0:.2f} to {part.mean:.2f}" for part in parts
    )


def pause_words(server: str, reason: str) -> str:
    """Return that training on a server is paused, and why."""
    by = reason.removeprefix("paused ")
    how = f" {by}" if by != reason else f": {reason}" if reason else ""
    return one_line(f"training on {server} is paused{how}", 300)
