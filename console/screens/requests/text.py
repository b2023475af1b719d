"""Lines of the list of requests: title, columns, a row, an empty list; those of its filter."""

import datetime as dt
from dataclasses import dataclass

from rich.cells import cell_len

from ajet_swarm.common.text import one_line
from console.models.advice import context_of
from console.screens.requests.model import Completion, RowModel
from console.session.app_state import Session
from console.session.filters import FilterError
from console.session.group_facts import (
    Verdict,
    advantages,
    best_of,
    best_reward,
    spread_of,
    verdict,
)
from console.text.format import UNKNOWN, clock, difference, number
from console.text.lines import Line, fit, line_width
from console.text.wrap import safe, wrapped
from console.ui.table import Cell, Column, Table
from console.views.group import CUT, phase_now, took_text, waited_text
from core.state import Group

PROMPT = "/ "
"""Text before the filter."""


# --- the list ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group with what its line in the list shows."""

    group: Group
    now: float
    """Unix seconds."""
    server_tone: str = "$muted"
    verdict: Verdict | None = None
    """Its verdict by the state; None for that of the group alone."""


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


def _taught(row: GroupRow) -> Cell:
    """Return whether the group teaches, with its largest advantage."""
    outcome = row.verdict or verdict(row.group)
    sizes = [abs(value) for value in advantages(row.group) if value is not None]
    figure = f" {number(max(sizes))}" if sizes and outcome.kind in ("train", "dead") else ""
    sign = "=" if outcome.kind == "dead" and "equal" in outcome.text else outcome.sign
    return f"{sign}{figure}", outcome.tone


TABLE: Table[GroupRow] = Table(
    (
        Column("time", 8, lambda row: clock(row.group.opened_at), "$muted", rank=1),
        Column("phase", 13, lambda row: phase_now(row.group, row.now)),
        Column("server", 10, lambda row: (one_line(row.group.server, 20), row.server_tone), rank=4),
        Column("taught", 6, _taught),
        Column("request", 17, _query, most=999),
        Column("ans", 5, _answered, right=True),
        Column("best", 5, _best, right=True),
        Column(
            "sprd", 5, lambda row: difference(spread_of(row.group)), "$muted", rank=3, right=True
        ),
        Column("", 1, lambda row: "✓" if row.group.rating is not None else "", "$accent"),
        Column("win", 3, lambda row: _candidate(best_of(row.group), "$winner"), right=True),
        Column(
            "ret", 3, lambda row: _candidate(row.group.returned, "$returned"), rank=2, right=True
        ),
        Column("waited", 6, _waited, right=True),
        Column("took", 6, lambda row: took_text(row.group, row.now), "$muted", rank=6, right=True),
        Column("", 1, lambda row: "★" if row.group.marked else "", "bold $winner"),
    ),
    start=" ",
)


def columns_line(model: RowModel, width: int, several: bool) -> Line:
    """Return the titles of the columns; that of the order has a sign."""
    chosen = "" if model.newest_first else model.order.column
    pieces: list[Cell] = []
    for column, size in TABLE.fitted(width - 1, _without(several)):
        title, tone = column.title, "$muted"
        if title and title == chosen:
            title, tone = f"{title[: size - 1]}{_way(model)}", "bold $accent"
        pieces += [(" ", "$muted"), (fit(title, size, column.right), tone)]
    return tuple(pieces)


def row_line(row: GroupRow, width: int, several: bool) -> Line:
    """Return one row of a list `width` cells wide, of one or several servers."""
    return (*TABLE.row(row, width - 1, _without(several)), (" ", ""))


def _without(several: bool) -> tuple[str, ...]:
    return () if several else ("server",)


def _way(model: RowModel) -> str:
    return "▴" if model.upward else "▾"


def title_line(model: RowModel, follow: bool, marked: int, width: int) -> Line:
    """Return the title: filter, order and number of groups; the last part only where it fits."""
    shown, search = model.count, model.search
    pieces: list[tuple[str, str]] = [(" Requests ", "bold $heading")]
    if model.filter:
        pieces.append((f" {shown} of {model.total} ", "bold"))
        pieces.append((f" {one_line(model.filter.text, 60)} ", "$accent"))
        if search is not None and not search.finished:
            back = f"back to {clock(search.oldest_at)}" if search.oldest_at else "newest"
            more = "End searches further" if search.paused else "searching …"
            pieces.append((f" {back}, {more} ", "$muted"))
    else:
        pieces.append((f" {model.total} ", "$muted"))
    if model.history.since and (search is None or search.finished):
        began = dt.datetime.fromtimestamp(model.history.since).astimezone()
        pieces.append((f" history starts {began:%Y-%m-%d %H:%M} ", "$muted"))
    if not model.newest_first:
        newest = "" if shown >= model.total or model.filter else f" of the newest {shown}"
        pieces.append((f" by {model.order.title} {_way(model)}{newest} ", "$accent"))
    else:
        pieces.append(("  ↑ following the newest" if follow else "  f follows", "$muted"))
    if marked:
        pieces += [(f"   ★ {marked}", "$winner"), ("  ; for all of them", "$muted")]
    return tuple(pieces if line_width(tuple(pieces)) <= width else pieces[:-1])


def empty_lines(model: RowModel, session: Session) -> list[str]:
    """Return the text of an empty list: its first line says why, the others what to do."""
    if model.total:
        search = model.search
        if search is not None and not search.finished:
            more = "End searches further back." if search.paused else "Searching further back …"
            return ["None of the newest matches the filter.", more]
        return ["No request matches the filter.", "Esc clears it."]
    if not session.seen:
        return ["No connection to the proxy yet."]
    url = session.state.proxy_url
    if not url or session.state.watch_only:
        return ["No requests yet.", "This console is view only: it serves no requests."]
    lines = ["No requests yet.", f"Point your application at {one_line(url, 100)}/v1"]
    if not session.read_only:
        key = context_of(session).keys["mock.start"]
        lines.append(f"or press F4 and then {key}: the mock user sends a dataset's questions.")
    return lines


# --- the filter line -----------------------------------------------------------------------------


def hint_line(completion: Completion, chosen: int | None, width: int) -> Line:
    """Return the completions that fit on one line; the chosen one stays visible."""
    if not completion.options:
        return (("  ", ""), (fit(completion.hint, width - 2), "$muted"))
    pieces: list[tuple[str, str]] = [("⇥ ", "$faint")]
    first = 0
    if chosen is not None:
        while cell_len("  ".join(completion.options[first : chosen + 1])) > width - 4:
            first += 1
    for place, option in enumerate(completion.options[first:], first):
        pieces.append((safe(option), "bold $accent" if place == chosen else "$muted"))
        pieces.append(("  ", ""))
    return tuple(pieces)


def error_lines(error: FilterError, width: int) -> list[Line]:
    """Return the error above the line: what is valid, then a mark over the invalid character."""
    lines: list[Line] = [((f"  {text}", "$muted"),) for text in wrapped(error.todo, width - 4)]
    text, place = f"▾ {safe(error.what)}", len(PROMPT) + error.position
    if place + cell_len(text) <= width:
        text = " " * place + text
    else:
        text = f"character {error.position + 1}: {safe(error.what)}"
    return [*lines, ((fit(text, width), "$reward-down"),)]
