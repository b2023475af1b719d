"""A group in the list: phase, verdict, columns, one row.

A `Line` is text in pieces, each with a tone: a style such as `bold $winner` over the theme's
variables, or nothing. Widgets paint lines without interpreting markup; all text from users and
models is sanitized here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ajet_swarm.common.text import one_line
from console.session.group_facts import best_of, best_reward, spread_of, unconfirmed, verdict
from console.text.format import UNKNOWN, clock, countdown, difference, duration, elapsed, number
from console.text.lines import Line, fit
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
class Column:
    """One column of the list; `since` is the width of the list from which it is shown."""

    key: str
    title: str
    width: int
    """Cells; 0 takes what is left."""
    since: int = 0
    right: bool = False


COLUMNS = (
    Column("time", "time", 8, since=70),
    Column("phase", "phase", 13),
    Column("server", "server", 10, since=90),
    Column("step", "step", 4, since=86, right=True),
    Column("turns", "turn", 4, since=98, right=True),
    Column("query", "request", 0),
    Column("answered", "ans", 5, right=True),
    Column("best", "best", 5, right=True),
    Column("spread", "sprd", 5, since=86, right=True),
    Column("flag", "", 1),
    Column("winner", "win", 3, right=True),
    Column("returned", "ret", 3, right=True),
    Column("waited", "waited", 6, right=True),
    Column("took", "took", 6, since=104, right=True),
    Column("mark", "", 1),
)


@lru_cache(maxsize=32)
def columns_for(width: int, several_servers: bool) -> tuple[Column, ...]:
    """Return the columns that fit a list `width` cells wide; the query column takes the rest."""
    shown = [
        column
        for column in COLUMNS
        if width >= column.since and (several_servers or column.key != "server")
    ]
    used = sum(column.width for column in shown) + len(shown) + 1
    left = max(8, width - used)
    return tuple(
        column if column.width else Column(column.key, column.title, left) for column in shown
    )


def header_line(columns: Sequence[Column], sorted_by: str = "", sign: str = "▾") -> Line:
    """Return the titles of the columns; the sort column has the sign."""
    pieces: list[tuple[str, str]] = [(" ", "$muted")]
    for column in columns:
        here = column.key == sorted_by
        title = (
            f"{column.title}{sign}"
            if here and column.width > len(column.title)
            else (f"{column.title[: column.width - 1]}{sign}" if here else column.title)
        )
        tone = "bold $accent" if here else "$muted"
        pieces += [(fit(title, column.width, column.right), tone), (" ", "$muted")]
    return tuple(pieces)


def row_line(
    group: Group, columns: Sequence[Column], now: float, server_tone: str = "$muted"
) -> Line:
    """Return one row of the list."""
    pieces: list[tuple[str, str]] = [(" ", "")]
    for column in columns:
        text, tone = _cell(group, column.key, now)
        tone = server_tone if column.key == "server" else tone
        pieces.append((fit(text, column.width, column.right), tone))
        pieces.append((" ", ""))
    return tuple(pieces)


def _cell(group: Group, key: str, now: float) -> tuple[str, str]:
    match key:
        case "time":
            return clock(group.opened_at), "$muted"
        case "phase":
            return _phase_cell(group, now)
        case "server":
            return one_line(group.server, 20), "$muted"
        case "step":
            return (UNKNOWN if group.step is None else str(group.step)), "$muted"
        case "turns":
            return (str(group.turns) if group.turns else UNKNOWN), "$muted"
        case "query":
            cut = f"{CUT} " if group.prompt_cut else ""
            return cut + (
                one_line(group.query, 300) or "(no text)"
            ), "" if group.query else "$muted"
        case "flag":
            return _flag(group)
        case "mark":
            return ("★", "bold $winner") if group.marked else ("", "")
        case _:
            return _figure(group, key, now)


def _figure(group: Group, key: str, now: float) -> tuple[str, str]:
    match key:
        case "answered":
            count = len(group.answered)
            return f"{count}/{group.n}", "" if count else "$muted"
        case "best":
            best = best_reward(group)
            return number(best), "$muted" if best is None else "bold"
        case "spread":
            return difference(spread_of(group)), "$muted"
        case "took":
            return took_text(group, now), "$muted"
        case "winner":
            best = best_of(group)
            return (UNKNOWN, "$muted") if best is None else (f"#{best + 1}", "$winner")
        case "returned":
            returned = group.returned
            return (UNKNOWN, "$muted") if returned is None else (f"#{returned + 1}", "$returned")
        case _:
            return waited_text(group, now), "" if group.waited is None and group.open else "$muted"


def _phase_cell(group: Group, now: float) -> tuple[str, str]:
    style = phase_style(group)
    if group.phase == "AWAITING_RATING" and group.until is not None:
        word = "rated" if group.is_rated else "skip" if group.is_skipped else "rate"
        if group.user_waits and group.rating is None:
            return f"{style.sign} waits {user_wait(group, now)}", style.tone
        return f"{style.sign} {word} {countdown(group.until - now)}", style.tone
    return f"{style.sign} {style.word}", style.tone


def _flag(group: Group) -> tuple[str, str]:
    if group.abstained and group.sealed_at is None:
        return "?", "bold $warning"
    verdict_now = verdict(group)
    if verdict_now.kind == "dead":
        return ("=" if "equal" in verdict_now.text else "○"), "$dead"
    if verdict_now.kind == "lost":
        return verdict_now.sign, verdict_now.tone
    return ("✓", "$accent") if group.rating is not None else ("", "")


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
