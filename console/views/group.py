"""Words for a group that several screens show: its phase, its times, its user."""

import math
from dataclasses import dataclass

from ajet_swarm.common.text import one_line
from console.session.group_facts import unconfirmed
from console.text.format import UNKNOWN, countdown, duration, elapsed
from core.scoring.advantage import ALMOST_EQUAL
from core.state import Group

CUT = "✂"
"""Marks a prompt whose middle the engine dropped."""


@dataclass(frozen=True, slots=True)
class PhaseStyle:
    """How a phase is shown: sign, word, tone."""

    sign: str
    word: str
    tone: str


PHASES: dict[str, PhaseStyle] = {
    "QUEUED": PhaseStyle("·", "queued", "$muted"),
    "CLAIMING": PhaseStyle("◌", "claiming", "$claiming"),
    "GENERATING": PhaseStyle("◔", "generating", "$engine-syncing"),
    "SCORING": PhaseStyle("◑", "scoring", "$engine-post"),
    "AWAITING_RATING": PhaseStyle("◈", "awaiting", "bold $winner"),
    "SUBMITTING": PhaseStyle("↑", "submitting", "$engine-exporting"),
    "DONE": PhaseStyle("●", "finished", "$reward-up"),
    "ABORTED": PhaseStyle("×", "aborted", "$muted"),
    "FAILED": PhaseStyle("!", "failed", "$reward-down"),
}
_DEAD = PhaseStyle("○", "dead", "$dead")
_UNRATED = PhaseStyle("●", "unrated", "$muted")
_LOST = PhaseStyle("×", "lost", "$reward-down")
_UNSURE = PhaseStyle("≈", "unconfirmed", "bold $warning")


def phase_style(group: Group) -> PhaseStyle:
    """Return the style of a group's phase; an unknown phase keeps its name."""
    if group.discarded:
        return _LOST
    if group.phase == "DONE" and unconfirmed(group):
        return _UNSURE
    if group.phase == "DONE" and group.unrated:
        return _UNRATED
    if group.phase == "DONE" and group.dead and group.dead != ALMOST_EQUAL:
        return _DEAD
    return PHASES.get(group.phase) or PhaseStyle("?", one_line(group.phase, 12), "$engine-unknown")


def phase_now(group: Group, now: float) -> tuple[str, str]:
    """Return sign and word of a group's phase, with the time that is left or passes, and a tone."""
    style = phase_style(group)
    word = style.word
    if group.phase == "AWAITING_RATING" and group.until is not None:
        if group.user_waits and group.rating is None:
            word = f"waits {user_wait(group, now)}"
        else:
            word = "rated" if group.is_rated else "skip" if group.is_skipped else "rate"
            word += f" {countdown(group.until - now)}"
    return f"{style.sign} {word}", style.tone


def user_wait(group: Group, now: float) -> str:
    """Return how long the user of a held group has been waiting: 0:14."""
    return countdown(math.floor(max(0.0, now - group.opened_at)))


def waited_text(group: Group, now: float) -> str:
    """Return how long the user waited, or has been waiting; a dash if unknown."""
    if group.waited is not None:
        return duration(group.waited)
    return elapsed(now - group.opened_at) if group.open else UNKNOWN


def took_text(group: Group, now: float) -> str:
    """Return the time from the request to the last reward; to now while it is open."""
    if group.closed_at is not None:
        return duration(max(0.0, group.closed_at - group.opened_at))
    return elapsed(now - group.opened_at) if group.open else UNKNOWN


def user_fate(group: Group) -> str:
    """Return a sentence about the answer of the user so far."""
    if group.returned is not None:
        return f"The user has been answered, with candidate {group.returned + 1}."
    if group.waited is not None:
        return "The user has already got an error."
    return "The user still waits."
