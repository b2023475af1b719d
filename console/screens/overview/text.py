"""Lines of the lists: alerts, the newest groups, and what stands there before the first."""

from dataclasses import dataclass

from ajet_swarm.common.text import one_line, plural
from console.models.advice import context_of
from console.models.alerts import action_for
from console.session.app_state import Session
from console.session.group_facts import Verdict, best_reward, known_rewards, verdict_in
from console.text.format import clock, elapsed, number
from console.text.lines import Line, fit
from console.text.wrap import wrapped_within
from console.ui.plot import small_bars
from console.ui.table import Cell, Column, Table
from console.views.group import phase_now
from core.events import AlertRaised
from core.state import Group

_LEVELS = {
    "error": ("✖", "$engine-lost"),
    "warning": ("!", "$engine-booting"),
    "info": ("i", "$engine-syncing"),
}


def alert_lines(session: Session, alert: AlertRaised, width: int, whole: bool) -> tuple[Line, ...]:
    """Return sign, cause and advice of an alert; its age and keys are right-aligned.

    Args:
        session: The session.
        alert: The alert.
        width: Cells.
        whole: Whether there is room for the advice.
    """
    sign, color = _LEVELS.get(alert.level, _LEVELS["warning"])
    age = f"  {elapsed(session.now() - alert.at)}" if alert.at else ""
    action = action_for(alert, context=context_of(session))
    path = action.key_path if action is not None else ""
    keys = f" {'keys' if ' ' in path else 'key'} {path} " if path else ""  # `5 s` reads as a time
    gap = "  " if keys else ""
    room = max(10, width - 2 - len(age + gap + keys))
    first, *more = wrapped_within(one_line(alert.cause, 600), room, 3 if whole else 2) or [""]
    lines: list[Line] = [
        (
            (f"{sign} ", f"bold {color}"),
            (fit(first, room) if keys else first, ""),
            (age + gap, "$muted"),
            (keys, "bold $accent"),
        ),
        *(((f"  {text}", ""),) for text in more),
    ]
    if alert.todo and whole:
        advice = wrapped_within(one_line(f"→ {alert.todo}", 600), width - 4, 2)
        starts = ("  ", "    ")
        lines += [((start + text, "$muted"),) for start, text in zip(starts, advice, strict=False)]
    return tuple(lines)


@dataclass(frozen=True, slots=True)
class NewestRow:
    """A group with what its line shows."""

    group: Group
    now: float
    """Unix seconds."""
    verdict: Verdict
    server_tone: str


def _best(row: NewestRow) -> Cell:
    best = best_reward(row.group)
    return number(best), "bold" if best is not None else "$faint"


def _answer(row: NewestRow) -> str:
    """Return what the user got; the texts of older groups are read by other screens."""
    index = row.group.returned
    text = "" if index is None else one_line(row.group.candidates[index].text, 300)
    return f"→ {text}" if text else ""


def _query(row: NewestRow) -> Cell:
    query = one_line(row.group.query, 300)
    return query or "(no text)", "" if query else "$muted"


_TABLE: Table[NewestRow] = Table(
    (
        Column("time", 8, lambda row: clock(row.group.opened_at), "$muted"),
        Column("phase", 13, lambda row: phase_now(row.group, row.now)),
        Column("best", 5, _best, right=True),
        Column("rewards", 8, lambda row: small_bars(known_rewards(row.group)), "$curve", rank=1),
        Column("sign", 1, lambda row: (row.verdict.sign, row.verdict.tone)),
        Column("verdict", 24, lambda row: (row.verdict.text, row.verdict.tone), rank=2),
        Column("server", 10, lambda row: (one_line(row.group.server, 20), row.server_tone), rank=3),
        Column("request", 24, _query, most=999),
        Column("answer", 24, _answer, "$muted", rank=4, most=999),
    )
)


def group_line(session: Session, group: Group, width: int, tones: dict[str, str]) -> Line:
    """Return the line of a group; `tones` are the colours of several servers."""
    verdict, tone = verdict_in(session.state, group), tones.get(group.server, "$muted")
    row = NewestRow(group, session.now(), verdict, tone)
    return _TABLE.row(row, width, () if tones else ("server",))


def head_line(session: Session, width: int) -> Line:
    """Return the title, with the number of groups; an ellipsis marks what does not fit."""
    title, totals = "NEWEST GROUPS", session.state.totals
    if not session.state.groups:
        return ((title, "bold $heading"),)
    counts = [plural(totals.groups, "group"), f"{totals.done} finished", f"{totals.dead} dead"]
    others = {"lost": totals.lost, "failed": totals.failed, "aborted": totals.aborted}
    counts += [f"{count} {name}" for name, count in others.items() if count]
    text = fit(f"  {' · '.join(counts)}", max(0, width - len(title))).rstrip()
    return ((title, "bold $heading"), (text, "$muted"))


def hint_lines(session: Session, width: int) -> tuple[Line, ...]:
    """Return how the first request is sent."""
    url = one_line(session.state.proxy_url, 200) or "the proxy"
    context = context_of(session)
    digit, key = context.screens["mock"], context.keys["mock.start"]
    hints = (
        f"No request yet. Press {digit} then {key} to start the mock user,",
        f"or send one to {url}/v1",
    )
    if session.state.watch_only:
        hints = ("This console is view only: it serves no requests.", "")
    elif session.read_only:
        hints = (f"No request yet. They go to {url}/v1", "")
    return tuple(((fit(hint, width), "$muted"),) for hint in hints)
