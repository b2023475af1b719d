"""A group in the list: phase, verdict, columns, one row.

A `Line` is text in pieces, each with a tone: a style such as `bold $winner` over the theme's
variables, or nothing. Widgets paint lines without interpreting markup; all text from users and
models is sanitized here.
"""

import math
from dataclasses import dataclass

from ajet_swarm.common.text import one_line
from console.session.group_facts import best_of, best_reward, spread_of, unconfirmed, verdict
from console.text.format import UNKNOWN, clock, countdown, difference, duration, elapsed, number
from console.text.lines import Line, fit
from console.ui.table import Cell, Column, Table
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


# --- the list --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group with what its line in the list shows."""

    group: Group
    now: float
    """Unix seconds."""
    server_tone: str = "$muted"


def _or_unknown(value: object | None) -> str:
    return UNKNOWN if value is None else str(value)


def _turn(row: GroupRow) -> str:
    return _or_unknown(row.group.turns or None)


def _query(row: GroupRow) -> Cell:
    group = row.group
    cut = f"{CUT} " if group.prompt_cut else ""
    return cut + (one_line(group.query, 300) or "(no text)"), "" if group.query else "$muted"


def _answered(row: GroupRow) -> Cell:
    count = len(row.group.answered)
    return f"{count}/{row.group.n}", "" if count else "$muted"


def _best(row: GroupRow) -> Cell:
    best = best_reward(row.group)
    return number(best), "$muted" if best is None else "bold"


def _candidate(index: int | None, tone: str) -> Cell:
    return (UNKNOWN, "$muted") if index is None else (f"#{index + 1}", tone)


def _waited(row: GroupRow) -> Cell:
    group = row.group
    return waited_text(group, row.now), "" if group.waited is None and group.open else "$muted"


def header_line(width: int, several: bool, sorted_by: str = "", sign: str = "▾") -> Line:
    """Return the titles of the columns; the sort column has the sign."""
    pieces: list[Cell] = []
    for column, size in _TABLE.fitted(width - 1, _without(several)):
        title, tone = column.title, "$muted"
        if title and title == sorted_by:
            title, tone = f"{title[: size - 1]}{sign}", "bold $accent"
        pieces += [(" ", "$muted"), (fit(title, size, column.right), tone)]
    return (*pieces, (" ", "$muted"))


def row_line(row: GroupRow, width: int, several: bool) -> Line:
    """Return one row of a list `width` cells wide, of one or several servers."""
    return (*_TABLE.row(row, width - 1, _without(several)), (" ", ""))


def _without(several: bool) -> tuple[str, ...]:
    return () if several else ("server",)


def _phase(row: GroupRow) -> Cell:
    group, now = row.group, row.now
    style = phase_style(group)
    if group.phase == "AWAITING_RATING" and group.until is not None:
        word = "rated" if group.is_rated else "skip" if group.is_skipped else "rate"
        if group.user_waits and group.rating is None:
            return f"{style.sign} waits {user_wait(group, now)}", style.tone
        return f"{style.sign} {word} {countdown(group.until - now)}", style.tone
    return f"{style.sign} {style.word}", style.tone


def _flag(row: GroupRow) -> Cell:
    group = row.group
    if group.abstained and group.sealed_at is None:
        return "?", "bold $warning"
    verdict_now = verdict(group)
    if verdict_now.kind == "dead":
        return ("=" if "equal" in verdict_now.text else "○"), "$dead"
    if verdict_now.kind == "lost":
        return verdict_now.sign, verdict_now.tone
    return ("✓", "$accent") if group.rating is not None else ("", "")


_TABLE: Table[GroupRow] = Table(
    (
        Column("time", 8, lambda row: clock(row.group.opened_at), "$muted", rank=1),
        Column("phase", 13, _phase),
        Column("server", 10, lambda row: (one_line(row.group.server, 20), row.server_tone), rank=4),
        Column("step", 4, lambda row: _or_unknown(row.group.step), "$muted", rank=2, right=True),
        Column(
            "turn",
            4,
            lambda row: _or_unknown(row.group.turns or None),
            "$muted",
            rank=5,
            right=True,
        ),
        Column("request", 19, _query, most=999),
        Column("ans", 5, _answered, right=True),
        Column("best", 5, _best, right=True),
        Column(
            "sprd", 5, lambda row: difference(spread_of(row.group)), "$muted", rank=3, right=True
        ),
        Column("", 1, _flag),
        Column("win", 3, lambda row: _candidate(best_of(row.group), "$winner"), right=True),
        Column("ret", 3, lambda row: _candidate(row.group.returned, "$returned"), right=True),
        Column("waited", 6, _waited, right=True),
        Column("took", 6, lambda row: took_text(row.group, row.now), "$muted", rank=6, right=True),
        Column("", 1, lambda row: "★" if row.group.marked else "", "bold $winner"),
    ),
    start=" ",
)


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
