"""Swarm servers as lines: the table, everything about one, its episodes; the lines of a job."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len

from ajet_swarm.common.text import one_line, plural
from console.models.job_fields import PRESETS, Field
from console.text.format import (
    UNKNOWN,
    address_of,
    clock,
    duration,
    elapsed,
    is_starting,
    numbers,
    progress,
    rule,
    state_for,
    state_style,
    state_text,
)
from console.text.lines import EMPTY, Line, fit
from console.text.wrap import wrapped
from console.ui.table import Cell, Column, Table
from console.views.timeline import stays
from core.control_payloads import EpisodeDetails, JobInfo, ServerDetails
from core.events.server import PoolChanged
from core.state import Group, Server

if TYPE_CHECKING:  # it loads the protocol's package
    from console.models.job_form import Change, Notice

MAX_SPANS = 12
"""Most state spans of the history in the list."""
LATE = 0.8
"""Share of the idle limit from which an episode is marked."""
_TIGHT = 72
"""Below this width the state is abbreviated and the number of clients is left out."""


@dataclass(frozen=True, slots=True)
class _ServerRow:
    server: Server
    place: int
    now: float

    def old(self, text: str) -> Cell:
        """Return a figure; muted if the server does not answer."""
        return text, "$muted" if self.server.lost else ""


def _state(row: _ServerRow, room: int) -> Cell:
    shape, shown = state_style(row.server.state, row.server.raw), state_text(row.server, row.now)
    forms = shown.forms
    if not row.server.lost:  # without the time, which has a column of its own
        forms = (f"{shape.sign} {shape.word}", f"{shape.sign} {shape.short}")
    word = next((form for form in forms if cell_len(form) + 2 <= room), forms[-1])
    return f" {word} ", f"bold $pill-text on {shown.color}"


def _since(row: _ServerRow) -> Cell:
    known = _known_at(row.server, row.now)
    return row.old(elapsed(state_for(row.server, known)))


def _pool(row: _ServerRow) -> Cell:
    done = progress(row.server.pool)
    return row.old(done.text() if done is not None else UNKNOWN)


def _name(row: _ServerRow) -> Cell:
    return one_line(row.server.name, 40), f"bold $server-{row.place % 4 + 1}"


def _step(row: _ServerRow) -> Cell:
    return row.old(UNKNOWN if row.server.step is None else str(row.server.step))


_STATE, _SHORT = 19, 11
"""Cells of a state, and of an abbreviated one."""
_COLUMNS: tuple[Column[_ServerRow], ...] = (
    Column("server", 6, _name, most=24),
    Column(" state", _STATE, lambda row: _state(row, _STATE)),
    Column(" state ", _SHORT, lambda row: _state(row, _SHORT)),
    Column("for", 6, _since, right=True),
    Column("step", 4, _step, right=True),
    Column("pool", 7, _pool, most=26),
    Column("held/free", 9, lambda row: row.old(_held(row.server)), right=True),
    Column("clients", 7, lambda row: row.old(_count(row.server)), right=True),
    Column("age", 5, lambda row: _age(row.server, row.now), "$muted", right=True),
)
_TABLE = Table(_COLUMNS, start="  ")


def _without(width: int) -> tuple[str, ...]:
    return (" state", "clients") if width < _TIGHT else (" state ",)


def table_head(width: int) -> Line:
    """Return the titles of the table."""
    return _TABLE.head(width, _without(width))


def table_row(server: Server, place: int, now: float, width: int) -> Line:
    """Return the line of one server: a dash for unknown figures, an age for old ones."""
    return _TABLE.row(_ServerRow(server, place, now), width, _without(width))


def _known_at(server: Server, now: float) -> float:
    """Return the time up to which the state of the server is known."""
    return (server.seen_at or server.since) if server.lost else now


def _held(server: Server) -> str:
    if server.slots is not None:
        return f"{server.slots.claimed}/{server.slots.free}"
    return f"{server.pool.running}/{UNKNOWN}" if server.pool is not None else UNKNOWN


def _count(server: Server) -> str:
    if server.slots is not None:
        return str(len(server.slots.clients) + server.slots.more)
    if server.pool is None:
        return UNKNOWN
    ours = server.pool.running > server.pool.running_others
    return str(len(server.pool.other_clients) + ours)


def _age(server: Server, now: float) -> str | Cell:
    """Return the age of the figures."""
    if not server.lost:
        return "live"
    return elapsed(now - server.seen_at) if server.seen_at else "never", "$engine-lost"


# --- one server ------------------------------------------------------------------------------


def detail(
    server: Server, details: ServerDetails | None, trouble: str, now: float, width: int, ours: str
) -> list[Line]:
    """Return all facts about one server.

    Args:
        server: The server in the state.
        details: The newest reading of the server; None before the first.
        trouble: Why there is no newer reading; may be empty.
        now: Unix seconds up to which the state is known.
        width: Width in cells.
        ours: Client id of this proxy.
    """
    lines: list[Line] = list(_facts(server, details, now, width))
    lines += [((line, "$engine-lost"),) for line in wrapped(trouble, width)] if trouble else []
    lines += _bars(server.pool, width)
    lines += _history(server, _known_at(server, now))
    if details is None:
        return lines
    lines += _clients(details, ours, width)
    if details.episodes:
        lines += _title("RUNNING EPISODES", str(len(details.episodes)), "longest idle first")
        lines.append(EPISODES.head(width))
        held = (Held(episode, None, ours) for episode in details.episodes)
        lines += [EPISODES.row(episode, width) for episode in held]
    lines += _tasks(details, width)
    lines += _call(details, width)
    lines += _log(details, width)
    if details.missing:
        lines += _title("NOT REPORTED")
        lines += [((f"  {one_line(text, width)}", "$muted"),) for text in details.missing]
    return lines


def _title(text: str, *more: str) -> list[Line]:
    notes = "  ".join(text for text in more if text)
    return [(), ((text, "bold $heading"), (f"  {notes}" if notes else "", "$muted"))]


def _facts(server: Server, details: ServerDetails | None, now: float, width: int) -> Iterator[Line]:
    def fact(label: str, text: str, tone: str = "") -> Line:
        return ((f"{label:<9}", "$muted"), (one_line(text, max(8, width - 9)), tone))

    address = one_line(address_of(server), 120) or UNKNOWN
    yield ((one_line(server.name, 40), "bold"), (f"  {address}", "$muted"))
    if is_starting(server, now):
        yield fact("starts", "waiting for its first answer", "$engine-booting")
    elif server.lost:
        yield fact("lost", one_line(server.lost, 160), "$engine-lost")
    if server.lost:
        seen = "it has not answered yet"
        if server.seen_at:
            seen = f"last answered {elapsed(now - server.seen_at)} ago; all below is from then"
        yield fact("", seen, "$muted")
    if server.detail:
        yield fact("detail", server.detail)
    if server.pool is not None:
        yield fact("model", server.pool.model or UNKNOWN)
        yield fact("until", f"{rule(server.pool.method)}, {server.pool.repeats or UNKNOWN} a task")
    if details is not None and details.folder:
        yield fact("folder", details.folder)
    if details is not None and details.booting_since:
        yield fact("booting", f"since {clock(details.booting_since)}")


def _bars(pool: PoolChanged | None, width: int) -> list[Line]:
    """Return the progress bars of the batch: episodes, tasks, tasks with signal."""
    if pool is None:
        return [*_title("POOL"), (("  the server reports none now", "$muted"),)]
    room, lines = max(10, min(40, width - 32)), _title("POOL")
    for label, done, target in (
        ("episodes", pool.completed_episodes, pool.episode_target),
        ("tasks", pool.completed_tasks, pool.task_target),
        ("with signal", pool.non_dummy_tasks, pool.task_target),
    ):
        full = round(min(1.0, done / target) * room) if target else 0
        bar = ("█" * full, "$engine-rolling"), ("░" * (room - full if target else 0), "$faint")
        figures = f" {done}/{target}" if target else str(done)
        lines.append(((f"  {label:<12}", "$muted"), *bar, (figures, "bold")))
    return lines


def _history(server: Server, now: float) -> list[Line]:
    """Return the newest state spans with their durations, newest first."""
    spans = stays(server.spans, now)
    lines = _title("STATES", plural(len(spans), "state change"))
    newest = [*zip(server.spans, spans, strict=True)][: -MAX_SPANS - 1 : -1]
    for place, (span, stay) in enumerate(newest):
        shape, last = state_style(stay.state), place == 0
        notes = f"step {stay.step}" if stay.step is not None and stay.state == "ROLLING" else ""
        if last:
            notes += "  when it was last seen" if server.lost else "  now"
        spent = elapsed(stay.seconds) if last else duration(stay.seconds)
        lines.append(
            (
                (f"  {clock(span.since)}  ", "$muted"),
                (fit(f"{shape.sign} {shape.word}", 18), shape.color),
                (fit(spent, 7, right=True), "bold" if last else ""),
                (f"  {notes}", "$muted"),
            )
        )
    return lines


def _clients(details: ServerDetails, ours: str, width: int) -> list[Line]:
    room = 38 if width >= 100 else 24
    slots = f"{details.claimed} held, {details.free} free" if details.free is not None else ""
    lines = _title("CLIENTS", plural(len(details.clients), "client"), slots)
    for client in details.clients:
        marks = (
            "this program" if client.name == ours else "",
            "active" if client.active else "",
            "agreed to sync" if client.agreed else "",
        )
        name = f"  {fit(one_line(client.name, 40), room)} "
        lines.append(
            (
                (name, "bold" if client.name == ours else ""),
                (fit(plural(client.running, "episode"), 12), ""),
                (f"  {', '.join(filter(None, marks))}", "$muted"),
            )
        )
    return lines


def _tasks(details: ServerDetails, width: int) -> list[Line]:
    if not details.tasks:
        return []
    lines = _title("TASKS OF THIS BATCH", str(len(details.tasks)))
    room = max(12, min(48, width - 34))
    for task in details.tasks:
        known = [value for value in task.rewards if value is not None]
        equal = "  all equal" if len(known) > 1 and min(known) == max(known) else ""
        lines.append(
            (
                (f"  {fit(one_line(task.task, 80), room)} ", ""),
                (fit(plural(task.episodes, "episode"), 12), "bold"),
                (f"  {numbers(known[:8])}", "$reward-up"),
                (equal, "$dead"),
            )
        )
    return lines


def _call(details: ServerDetails, width: int) -> list[Line]:
    if not (details.asked or details.answered):
        return []
    lines = _title("NEWEST CALL", "of any client")
    for label, text in (("asked", details.asked), ("answered", details.answered)):
        for row, line in enumerate(wrapped(text, width - 12)[:4]):
            lines.append(((f"  {label if not row else '':<10}", "$muted"), (line, "")))
    return lines


def _log(details: ServerDetails, width: int) -> list[Line]:
    if not details.log:
        return []
    lines = _title("SERVER LOG", "last 30 s")
    for line in details.log[-15:]:
        at = clock(line.at) if line.at is not None else UNKNOWN
        text = one_line(f"{line.tag} {line.text}", max(10, width - 12))
        lines.append(((f"  {at}  ", "$muted"), (text, "")))
    return lines


# --- episodes --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Held:
    """A claimed episode with its open group, if it is one of ours."""

    episode: EpisodeDetails
    group: Group | None
    ours: str


def _idle(held: Held) -> Cell:
    idle, limit = held.episode.idle, held.episode.limit
    late = idle is not None and limit is not None and idle > LATE * limit
    return f"{duration(idle)} / {duration(limit)}", "bold $warning" if late else ""


def _holder(held: Held) -> Cell:
    if held.group is not None:
        return f"us {held.group.group_id[:10]}", ""
    client = held.episode.client
    return ("us", "") if client == held.ours else (one_line(client or UNKNOWN, 40), "$warning")


def _about(held: Held) -> str:
    kind = "eval  " if held.episode.kind == "eval" else ""
    return kind + one_line(held.group.query if held.group is not None else held.episode.task, 200)


def _calls(held: Held) -> str:
    return UNKNOWN if held.episode.calls is None else str(held.episode.calls)


EPISODES: Table[Held] = Table(
    (
        Column("episode", 8, lambda held: one_line(held.episode.uuid, 40), most=36),
        Column("idle / limit", 14, _idle),
        Column("calls", 6, _calls, "$muted", right=True),
        Column(" held by", 18, lambda held: (f" {_holder(held)[0]}", _holder(held)[1]), most=37),
        Column("task", 4, _about, "$muted", most=999),
    ),
    start=" ",
)


def held_text(details: ServerDetails | None) -> str:
    """Return how many episodes are claimed, of how many."""
    if details is None:
        return "reading…"
    if details.claimed is None:
        return "it does not report its episodes"
    free = ", free ones unknown" if details.free is None else f", {details.free} free"
    slots = details.claimed + (details.free or 0)
    return f"{plural(details.claimed, 'episode')} claimed of {slots} slots{free}"


def episode_loss(episode: EpisodeDetails, group: Group | None, ours: str, state: str) -> str:
    """Return the cost of aborting an episode, and who bears it."""
    if group is not None:
        whose = f"It is a candidate of your group {group.group_id}: “{one_line(group.query, 50)}”"
    elif episode.client == ours:
        whose = "It is yours; no open group holds it any more."
    else:
        whose = f"Client {one_line(episode.client or UNKNOWN, 40)} holds it and is not consulted."
    calls = "" if episode.calls is None else f", {plural(episode.calls, 'call')}"
    idle = f"Idle {elapsed(episode.idle)} of {elapsed(episode.limit)}{calls}."
    fates = {
        "ROLLING": "It goes back to the pool.",
        "ROLLING_POST": "It is deleted: the update continues without it.",
    }
    return "\n".join([whose, idle, fates.get(state, "Its fate depends on the engine.")])


# --- a job -----------------------------------------------------------------------------------


def source_lines(sheet: JobInfo, width: int) -> list[Line]:
    """Return where the job on screen and the running one come from."""
    if sheet.saved:
        saved = f"saved {clock(sheet.saved_at)} in {one_line(sheet.path, 300)}"
    elif sheet.last:
        saved = "not saved: a start keeps the server's job, which another client sent"
    else:
        saved = f"not saved: a start uses the {'job last sent' if sheet.sent else 'default job'}"
    return [((" ", ""), (fit(saved, width - 2), "$muted"))]


def help_lines(field: Field, width: int, *, whole: bool) -> list[Line]:
    """Return the help of a field; its values and its path in the job where there is room."""
    words = [f"{field.label}: {field.about}", *([field.range, field.path] if whole else [])]
    parts = [part for word in words if word for part in wrapped(word, width - 2)]
    return [((f" {part}", "$muted"),) for part in parts] + [EMPTY] * whole


def preset_lines(width: int) -> list[Line]:
    """Return a line for each preset: its key, its name, what it is good for."""
    lines: list[Line] = []
    for preset in PRESETS.values():
        first, *more = wrapped(preset.about, width - 13)
        name = (fit(preset.name, 8), "bold")
        lines.append(((f" {preset.key} ", "bold $accent"), name, (first, "$muted")))
        lines += [((f"{'':11}{part}", "$muted"),) for part in more]
    return lines


def diff_lines(changes: "Sequence[Change]", sheet: JobInfo, width: int) -> list[Line]:
    """Return the changes of the job against the one of the server."""
    from console.models.job_form import change_words

    lines: list[Line] = [(("CHANGES", "bold $heading"), ("  against its current job", "$muted"))]
    if not sheet.running:
        unknown = ((fit("The job of the server is not known yet.", width), "$muted"),)
        return [*lines, EMPTY, unknown]
    lines += [((text, "$muted"),) for text in wrapped(sheet.source, width)]
    if sheet.differs:
        note = f"differs from the job last sent from here in {plural(len(sheet.differs), 'value')}"
        lines += [((text, "$warning"),) for text in wrapped(f"{note}: another was sent", width)]
    lines.append(EMPTY)
    if not changes:
        lines.append((("✓ ", "$engine-rolling"), ("no difference", "")))
    room = max(10, min(26, width // 3))
    rest = max(8, min(32, (width - room - 5) // 2))
    for change in changes:
        name, before, after = change_words(change)
        was = f"{fit(before, rest):>{min(rest, 14)}} → "
        lines.append(
            (
                ("~ ", "$warning"),
                (f"{fit(name, room)} ", ""),
                (was, "$muted"),
                (fit(after, rest), "bold"),
            )
        )
    return lines


def notice_lines(notices: "Sequence[Notice]", width: int) -> list[Line]:
    """Return warnings about a job that can be sent."""
    if not notices:
        return []
    lines: list[Line] = []
    for notice in notices[:12]:
        where = f"line {notice.line}: " if notice.line else ""
        for place, text in enumerate(wrapped(f"{where}{one_line(notice.text, 300)}", width - 2)):
            lines.append((("! " if not place else "  ", "$warning"), (text, "")))
    if len(notices) > 12:
        lines.append(((f"  and {len(notices) - 12} more", "$muted"),))
    return [*lines, EMPTY]
