"""Swarm servers as lines: the table, and the details of one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from ajet_swarm.common.text import one_line, plural
from console.text.contact import address_of, is_starting, lost_word
from console.text.format import (
    UNKNOWN,
    clock,
    duration,
    elapsed,
    numbers,
    progress,
    rule,
    state_for,
    state_style,
)
from console.text.lines import Line, fit
from console.text.wrap import wrapped
from console.ui.table import Cell, Column, Table
from console.views.timeline import stays
from core.control_payloads import EpisodeDetails, ServerDetails, TaskDetails
from core.events.server import PoolChanged
from core.state import Server

MAX_SPANS = 12
"""Most state spans of the history in the list."""
_TIGHT = 72
"""Below this width the state is abbreviated and the number of clients is left out."""


def server_tone(place: int) -> str:
    """Return the colour of a server by its place among all."""
    return f"bold $server-{place % 4 + 1}"


@dataclass(frozen=True, slots=True)
class _ServerRow:
    server: Server
    place: int
    now: float

    def old(self, text: str) -> Cell:
        """Return a figure; muted if the server does not answer."""
        return text, "$muted" if self.server.lost else ""


def _state(row: _ServerRow, short: bool) -> Cell:
    server, now = row.server, row.now
    shape = state_style(server.state, server.raw)
    color = "$engine-lost" if server.lost else shape.color
    word = f"{shape.sign} {shape.short if short else shape.word}"
    if server.lost and server.seen_at:
        head = f"× {lost_word(server)} {elapsed(now - server.seen_at)}"
        long = f"{head} ({shape.short})"
        word = head if short or cell_len(long) + 2 > _STATE else long
    elif is_starting(server, now):
        word, color = ("◌ START" if short else "◌ STARTING"), "$engine-booting"
    elif server.lost:
        word = "× NO LINK" if short else "× NOT REACHED"
    return f" {word} ", f"bold $pill-text on {color}"


def _since(row: _ServerRow) -> Cell:
    known = _known_at(row.server, row.now)
    return row.old(elapsed(state_for(row.server, known)))


def _pool(row: _ServerRow) -> Cell:
    done = progress(row.server.pool)
    return row.old(done.text() if done is not None else UNKNOWN)


def _name(row: _ServerRow) -> Cell:
    return one_line(row.server.name, 40), server_tone(row.place)


def _step(row: _ServerRow) -> Cell:
    return row.old(UNKNOWN if row.server.step is None else str(row.server.step))


_STATE, _SHORT = 19, 11
"""Cells of a state, and of an abbreviated one."""
_COLUMNS: tuple[Column[_ServerRow], ...] = (
    Column("server", 6, _name, most=24),
    Column(" state", _STATE, lambda row: _state(row, short=False)),
    Column(" state ", _SHORT, lambda row: _state(row, short=True)),
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
    """Return all facts about one server, for its detail view.

    Args:
        server: The server in the state.
        details: The newest reading of the server; None before the first.
        trouble: Why there is no newer reading; may be empty.
        now: Unix seconds up to which the state is known.
        width: Width in cells.
        ours: Client id of this proxy.
    """
    lines: list[Line] = list(_facts(server, details, now, width))
    if trouble:
        lines += [((line, "$engine-lost"),) for line in wrapped(trouble, width)]
    lines += _bars(server.pool, width)
    lines += _history(server, _known_at(server, now))
    if details is None:
        return lines
    lines += _clients(details, ours, width)
    lines += _episodes(details.episodes, width)
    lines += _tasks(details.tasks, width)
    lines += _call(details, width)
    lines += _log(details, width)
    if details.missing:
        lines += [*_title("NOT REPORTED")]
        lines += [((f"  {one_line(text, width)}", "$muted"),) for text in details.missing]
    return lines


def _title(text: str, *more: str) -> list[Line]:
    notes = "  ".join(text for text in more if text)
    return [(), ((text, "bold $heading"), (f"  {notes}" if notes else "", "$muted"))]


def _lost(server: Server, now: float) -> tuple[str, str, str]:
    """Return label, text and colour of the reason why a server does not answer."""
    if is_starting(server, now):
        return "starts", "waiting for its first answer", "$engine-booting"
    return "lost", one_line(server.lost, 160), "$engine-lost"


def _facts(server: Server, details: ServerDetails | None, now: float, width: int) -> Iterator[Line]:
    def fact(label: str, text: str, tone: str = "") -> Line:
        return ((f"{label:<9}", "$muted"), (one_line(text, max(8, width - 9)), tone))

    address = one_line(address_of(server), 120) or UNKNOWN
    yield ((one_line(server.name, 40), "bold"), (f"  {address}", "$muted"))
    if server.lost:
        seen = "it has not answered yet"
        if server.seen_at:
            seen = f"last answered {elapsed(now - server.seen_at)} ago; all below is from then"
        yield fact(*_lost(server, now))
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
    rows = (
        ("episodes", pool.completed_episodes, pool.episode_target),
        ("tasks", pool.completed_tasks, pool.task_target),
        ("with signal", pool.non_dummy_tasks, pool.task_target),
    )
    room = max(10, min(40, width - 32))
    return [*_title("POOL"), *(_bar(label, done, target, room) for label, done, target in rows)]


def _bar(label: str, done: int, target: int, room: int) -> Line:
    if not target:
        return ((f"  {label:<12}", "$muted"), (str(done), "bold"))
    full = round(min(1.0, done / target) * room)
    return (
        (f"  {label:<12}", "$muted"),
        ("█" * full, "$engine-rolling"),
        ("░" * (room - full), "$faint"),
        (f" {done}/{target}", "bold"),
    )


def _history(server: Server, now: float) -> list[Line]:
    """Return the newest state spans with their durations, newest first."""
    spans = stays(server.spans, now)
    began = [span.since for span in server.spans]
    lines = _title("STATES", plural(len(spans), "state change"))
    ending = "  when it was last seen" if server.lost else "  now"
    for index in range(len(spans) - 1, max(-1, len(spans) - 1 - MAX_SPANS), -1):
        stay, last = spans[index], index == len(spans) - 1
        shape = state_style(stay.state)
        step = f"step {stay.step}" if stay.step is not None and stay.state == "ROLLING" else ""
        spent = elapsed(stay.seconds) if last else duration(stay.seconds)
        lines.append(
            (
                (f"  {clock(began[index])}  ", "$muted"),
                (fit(f"{shape.sign} {shape.word}", 18), shape.color),
                (fit(spent, 7, right=True), "bold" if last else ""),
                (f"  {step}" + ending * last, "$muted"),
            )
        )
    return lines


def _clients(details: ServerDetails, ours: str, width: int) -> list[Line]:
    room = 38 if width >= 100 else 24
    slots = f"{details.claimed} held, {details.free} free" if details.free is not None else ""
    lines = _title("CLIENTS", plural(len(details.clients), "client"), slots)
    for client in details.clients:
        signs = [
            "this program" if client.name == ours else "",
            "active" if client.active else "",
            "agreed to sync" if client.agreed else "",
        ]
        lines.append(
            (
                (
                    f"  {fit(one_line(client.name, 40), room)} ",
                    "bold" if client.name == ours else "",
                ),
                (fit(plural(client.running, "episode"), 12), ""),
                (f"  {', '.join(sign for sign in signs if sign)}", "$muted"),
            )
        )
    return lines


def _episodes(episodes: Sequence[EpisodeDetails], width: int) -> list[Line]:
    if not episodes:
        return []
    lines = _title("RUNNING EPISODES", str(len(episodes)), "longest idle first")
    for episode in episodes:
        late = (
            episode.idle is not None
            and episode.limit is not None
            and episode.idle > 0.8 * episode.limit
        )
        idle = f"{duration(episode.idle)} / {duration(episode.limit)}"
        calls = UNKNOWN if episode.calls is None else plural(episode.calls, "call")
        task = f"  {one_line(episode.task, 40)}" if episode.task else ""
        lines.append(
            (
                (f"  {fit(one_line(episode.uuid, 40), 12 if width < 100 else 36)} ", ""),
                (fit(f"idle {idle}", 20), "bold $engine-lost" if late else ""),
                (fit(calls, 9), "$muted"),
                (fit(one_line(episode.client, 40), 16 if width < 100 else 36), "$muted"),
                (f"  {episode.kind}{task}", "$muted"),
            )
        )
    return lines


def _tasks(tasks: Sequence[TaskDetails], width: int) -> list[Line]:
    if not tasks:
        return []
    lines = _title("TASKS OF THIS BATCH", str(len(tasks)))
    room = max(12, min(48, width - 34))
    for task in tasks:
        known = [value for value in task.rewards if value is not None]
        rewards = numbers(known[:8])
        equal = "  all equal" if len(known) > 1 and min(known) == max(known) else ""
        lines.append(
            (
                (f"  {fit(one_line(task.task, 80), room)} ", ""),
                (fit(plural(task.episodes, "episode"), 12), "bold"),
                (f"  {rewards}", "$reward-up"),
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
