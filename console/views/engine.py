"""Content of the Engine screen: a panel for each swarm server, and the child processes."""

from collections.abc import Sequence

from textual.content import Content

from ajet_swarm.common.text import one_line, plain, plural
from console.models.advice import context_of
from console.session.app_state import ChildProcess, Session
from console.session.server_facts import as_ended, boot_trouble
from console.text.causes import exit_text
from console.text.contact import address_of, is_starting
from console.text.format import UNKNOWN, bar, elapsed, pill, progress, rule, state_text
from console.text.sections import Room, heading, lines
from console.text.server_color import server_color
from console.views.job import work_lines
from console.views.step_curves import with_curves
from console.views.step_table import step_table
from console.views.timeline import newest, timeline
from core.control_payloads import HardwareFacts
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
            bar(done.share, 20 if width < 100 else 30, "$engine-rolling"),
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
    if is_starting(server, now):
        return [Content.styled("waiting for its first answer", "$engine-booting")]
    if server.lost:
        seen = "it has not answered yet"
        if server.seen_at:
            ago = elapsed(now - server.seen_at)
            seen = f"last answered {ago} ago; the figures above are from then"
        return [
            Content.styled(f"× {one_line(server.lost, 200)}", "$engine-lost"),
            Content.styled(f"  {seen}", "$muted"),
        ]
    if trouble := boot_trouble(server, now, read_only=session.read_only):
        return [Content.styled(f"! {trouble}", "$engine-booting")]
    if server.work is not None and not server.work.over:
        return []
    if server.state == "OFFLINE" and not session.read_only:
        keys, tone = context_of(session).keys, "bold $accent"
        hints = [
            Content.assemble(
                (keys["engine.start"], tone),
                " starts it with its job, ",
                (keys["engine.start_hand"], tone),
                " with the job for rating by hand",
            ),
            Content.assemble(
                (keys["engine.job"], tone), " shows its job: change it, save it, start with it"
            ),
        ]
        if server.checkpoints is not None:
            hints.append(
                Content.assemble((keys["engine.resume"], tone), " resumes it with the job it has")
            )
        return hints
    return []


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
        if child.phase == "exited" and child.exit_code != 0:
            shown += [
                Content.styled(f"    {plain(line)[:400]}", "$muted") for line in child.tail[-5:]
            ]
            action = _RESTART.get(role)
            if action is not None and not session.read_only:
                key = context_of(session).keys[action]
                shown.append(
                    Content.assemble("    ", (key, "bold $accent"), (" restarts it", "$muted"))
                )
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
