"""A panel for each swarm server, the operation on its engine, and the child processes."""

from collections.abc import Sequence

from textual.content import Content

from ajet_swarm.common.text import one_line, plain, plural
from console.models.advice import context_of
from console.screens.engine.steps import step_table, with_curves
from console.session.app_state import ChildProcess, Session
from console.session.server_facts import as_ended, boot_trouble
from console.text.causes import exit_text
from console.text.format import (
    UNKNOWN,
    address_of,
    duration,
    elapsed,
    progress,
    rule,
    server_color,
    state_text,
)
from console.text.sections import Room, bar, heading, lines, pill
from console.views.timeline import newest, timeline
from core.control_payloads import HardwareFacts
from core.events import OperationStep, WorkChanged
from core.state import Server

CURVES = 100
"""Minimum width in cells at which a tall terminal also shows the steps as curves."""
_LABEL = 10
_PHASES = {
    "running": ("●", "$engine-rolling"),
    "attached": ("●", "$engine-rolling"),
    "starting": ("◌", "$engine-booting"),
    "stopping": ("◌", "$engine-booting"),
    "stopped": ("○", "$muted"),
    "exited": ("✖", "$engine-lost"),
}

_SIGNS = {
    "waiting": ("·", "$faint"),
    "doing": ("▸", "$primary"),
    "done": ("✓", "$engine-rolling"),
    "skipped": ("–", "$muted"),
    "failed": ("✖", "$engine-lost"),
    "cancelled": ("■", "$warning"),
}
DONE_SECONDS = 120.0
"""Seconds for which a finished operation is shown; a failed one stays."""
_RESTART = {"engine": "engine.restart_process", "proxy": "proxy.restart"}
"""Id of the action that restarts a process, by its role."""


def _is_undone(server: Server) -> bool:
    """Return whether the engine was stopped after its last operation was done."""
    work, stopped = server.work, server.state == "OFFLINE"
    return stopped and work is not None and work.phase == "done" and server.since > work.at + 5.0


def _fact(label: str, *parts: Content | tuple[str, str] | str) -> Content:
    return Content.assemble((f"{label:<{_LABEL}}", "$muted"), *parts)


def server_panel(
    server: Server, session: Session, room: Room, hardware: HardwareFacts | None = None
) -> Content:
    """Return the panel of one server: state, pool, device, advice and its last steps."""
    now, server = session.as_of, as_ended(server, session)
    state = state_text(server, now)
    head = Content.assemble(
        (f"{one_line(server.name, 30)}  ", f"bold {server_color(session.state, server.name)}"),
        pill(state.forms[0], state.color),
        ("  step ", "$muted"),
        (UNKNOWN if server.step is None else str(server.step), "bold"),
    )
    shown = [head]
    spans = newest(server, now, room.width)
    if spans:
        shown.append(timeline(spans, room.width))
    if not _is_undone(server):
        shown += work_lines(server.work, now, room.width)
    facts = _facts(server, session, room.width)
    if hardware is not None and not server.lost:
        facts += _hardware(hardware)
    facts += _advice(server, session, now)
    table = step_table(server, now, room.width, _steps(session, room))
    if room.tall and room.width >= CURVES:
        return lines(*shown, *with_curves(server, facts, table, room.width))
    shown += facts
    if table:
        shown += [Content(""), *(Content.assemble(*line) for line in table)]
    return lines(*shown)


def _steps(session: Session, room: Room) -> int:
    """Return the number of steps to list; a single server may use the spare rows."""
    if not room.tall:
        return 5
    return max(12, min(40, room.rows - 30)) if len(session.state.servers) == 1 else 12


def _facts(server: Server, session: Session, width: int) -> list[Content]:
    shown = [_fact("address", one_line(address_of(server), 200) or UNKNOWN)]
    if server.detail:
        shown.append(_fact("detail", one_line(server.detail, 300)))
    pool = server.pool
    done = progress(pool)
    if pool is None or done is None:
        return [*shown, _fact("pool", UNKNOWN)]
    ours = max(0, pool.running - pool.running_others)
    shown += [
        _fact("model", one_line(pool.model, 120) or UNKNOWN),
        _fact(
            "pool",
            bar(done.share, 20 if width < 140 else 30, "$engine-rolling"),
            " ",
            (done.text(), "bold"),
            (f"  until {rule(pool.method)}", "$muted"),
        ),
        _fact(
            "episodes",
            (str(pool.running), "bold"),
            f" claimed: {ours} ours, {pool.running_others} of others",
            (f"  {pool.repeats or UNKNOWN} a task", "$muted"),
        ),
        _fact("clients", *_clients(pool.other_clients)),
    ]
    return shown


def _hardware(facts: HardwareFacts) -> list[Content]:
    """Return device, memory, speed, that of a look, and last update of the policy, a line each."""
    memory = f"{_gb(facts.memory_used)} of {_gb(facts.memory_total)} GB"
    if facts.memory_estimate is not None:
        memory += f", planned {_gb(facts.memory_estimate)}"
    speed = "" if facts.tokens_per_second is None else f"{facts.tokens_per_second:,.0f} tokens/s, "
    start = "start" if facts.update_seconds is None else "update"
    speed += f"sampling {facts.sampling_seconds:.1f}s since the {start}"
    look = facts.look_tokens_per_second
    times = (("", facts.update_seconds), ("sync ", facts.sync_seconds))
    update = ", ".join(f"{label}{time:.1f}s" for label, time in times if time is not None)
    return [
        _fact("device", one_line(facts.device, 40), (f"  {one_line(facts.dtype, 10)}", "$muted")),
        _fact("memory", memory, (f"  {facts.slots} answers at a time", "$muted")),
        _fact("speed", speed),
        *([_fact("look", f"{look:,.0f} tokens/s")] if look is not None else []),
        *([_fact("update", update)] if update else []),
    ]


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f}"


def _clients(others: Sequence[str]) -> list[tuple[str, str]]:
    if not others:
        return [("no other client is active", "$muted")]
    names = ", ".join(one_line(name, 16) for name in others[:4])
    more = f" and {len(others) - 4} more" if len(others) > 4 else ""
    return [(plural(len(others), "other client"), "bold $warning"), (f": {names}{more}", "$muted")]


def _advice(server: Server, session: Session, now: float) -> list[Content]:
    """Return the problem and its remedy, or the possible next steps."""
    if server.is_starting(now):
        return [Content.styled("waiting for its first answer", "$engine-booting")]
    if server.lost:
        seen = "it has not answered yet"
        if server.seen_at:
            ago = elapsed(now - server.seen_at)
            seen = f"last answered {ago} ago; the figures above are from then"
        why = Content.styled(f"× {one_line(server.lost, 200)}", "$engine-lost")
        return [why, Content.styled(f"  {seen}", "$muted")]
    if trouble := boot_trouble(server, now, read_only=session.read_only):
        return [Content.styled(f"! {trouble}", "$engine-booting")]
    if server.state != "OFFLINE" or session.read_only:
        return []
    if server.work is not None and not server.work.over:
        return []
    keys = context_of(session).keys

    def key(action: str) -> tuple[str, str]:
        return keys[action], "bold $accent"

    hand = key("engine.start_hand"), " with the job for rating by hand"
    hints = [
        Content.assemble(key("engine.start"), " starts it with its job, ", *hand),
        Content.assemble(key("engine.job"), " shows its job: change it, save it, start with it"),
    ]
    if server.checkpoints is not None:
        hints.append(Content.assemble(key("engine.resume"), " resumes it with the job it has"))
    return hints


def work_lines(work: WorkChanged | None, now: float, width: int) -> list[Content]:
    """Return the operation on an engine, step by step; nothing some time after a success."""
    if work is None or (work.phase == "done" and now - work.at > DONE_SECONDS):
        return []
    sign, color = _SIGNS.get(work.phase, _SIGNS["doing"])
    lasted = (work.at if work.over else now) - work.began
    head = Content.assemble(
        (f"{sign} {one_line(work.work, 40)}  ", f"bold {color}"),
        (elapsed(lasted), "$muted"),
    )
    if work.phase == "done":
        return [Content.assemble(head, (f"  {one_line(work.said, 300)}", "$muted"))]
    shown = [head]
    if work.steps:
        shown += _rows([_operation_step(step, now) for step in work.steps], width - 2)
    if work.said:
        shown.append(Content.styled(f"  {one_line(work.said, 300)}", color))
    return shown


def _operation_step(step: OperationStep, now: float) -> Content:
    mark, tone = _SIGNS.get(step.phase, _SIGNS["waiting"])
    took = ""
    if step.phase == "doing":
        took = f" {elapsed(now - step.began)}"
    elif step.phase == "done" and step.ended - step.began >= 1:
        took = f" {duration(step.ended - step.began)}"
    style = "bold $foreground" if step.phase == "doing" else "$muted"
    return Content.assemble((f"{mark} ", tone), (f"{step.title}{took}", style))


def _rows(pieces: Sequence[Content], width: int) -> list[Content]:
    """Return the pieces in rows, as many in each as fit."""
    rows: list[list[Content]] = [[]]
    for piece in pieces:
        if rows[-1] and sum(row.cell_length + 3 for row in rows[-1]) + piece.cell_length > width:
            rows.append([])
        rows[-1].append(piece)
    return [Content.assemble("  ", Content("   ").join(row)) for row in rows]


def no_server(session: Session, room: Room) -> Content:
    """Return the text shown instead of a panel while no server is known."""
    text = "A server's state, pool, steps and curves appear here when the proxy runs."
    if "proxy" in session.children and not session.read_only:
        key = context_of(session).keys["proxy.restart"]
        text += f" {key} restarts it, F7 shows its log."
    return lines(heading("SERVERS", "none is known yet"), Content.styled(text, "$muted"))


def processes(session: Session, room: Room) -> Content:
    """Return the child processes, with the last output of each one that failed."""
    children = session.children
    if not children:
        return heading("PROCESSES", "none was started from this console")
    shown = [heading("PROCESSES")]
    for role, child in children.items():
        shown.append(_process(role, child))
        if child.phase != "exited" or child.exit_code == 0:
            continue
        shown += [Content.styled(f"    {plain(line)[:400]}", "$muted") for line in child.tail[-5:]]
        if role in _RESTART and not session.read_only:
            key = (context_of(session).keys[_RESTART[role]], "bold $accent")
            shown.append(Content.assemble("    ", key, (" restarts it", "$muted")))
    return lines(*shown)


def _process(role: str, child: ChildProcess) -> Content:
    sign, color = _PHASES.get(child.phase, ("?", "$muted"))
    text = child.phase
    if child.phase == "exited" and child.exit_code == 0:
        sign, color, text = "·", "$muted", "finished"
    elif child.phase == "exited":
        text = exit_text(child.exit_code)
    pid = f"pid {child.pid}" if child.pid is not None else ""
    return Content.assemble(
        (f"{role:<{_LABEL}}", "bold"),
        (f"{sign} {text:<12} ", color),
        (f"{pid:<12} ", "$muted"),
        (one_line(child.url, 80), "$muted"),
    )
