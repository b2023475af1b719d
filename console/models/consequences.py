"""Consequences of a command in numbers, for its confirmation dialog."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ajet_swarm.common.text import one_line, plural
from console.models.progress.standing import rewind_words
from console.session.app_state import Session
from console.text.format import ago, elapsed
from core.commands.plan_engines import (
    apply_loss,
    are,
    pool_costs,
    prune_loss,
    stop_costs,
    stop_loss,
)
from core.commands.plan_groups import abort_consequences
from core.state import Group, Server, State

BASE = "base"
"""Name of the weights a policy starts with."""
BOOT_SUSPECT_AFTER = 60.0
"""Seconds after which a boot seems to have failed."""


def abort_loss(state: State, group: Group) -> str:
    """Return the cost of aborting one group."""
    return "\n".join([f"“{one_line(group.query, 60)}”", *abort_consequences(state, [group])])


def stop_words(state: State, server: Server) -> str:
    """Return what stopping an engine costs everyone who uses it."""
    return "\n".join(stop_loss(state, server))


def apply_words(state: State, server: Server) -> str:
    """Return what applying a job costs everyone who uses the engine."""
    *lost, then = apply_loss(state, server)
    return "\n".join([*lost, "", then] if lost else [then])


def quit_loss(session: Session) -> str:
    """Return what stopping the home's own engine after its proxy costs; empty for nothing."""
    lines = []
    for server in session.state.servers.values():
        pool = server.pool
        if server.own and pool is not None and (pool.completed_tasks or pool.other_clients):
            lines += pool_costs(session.state, server, pool)
    return " ".join(lines)


def unsent(state: State) -> list[str]:
    """Return which finished groups are not sent yet, and what a stop means for their rewards."""
    counts = Counter(group.server for group in state.open_groups() if group.phase == "SUBMITTING")
    lines = []
    for name, number in counts.items():
        server = state.servers.get(name)
        fate = "the next start sends them if the server still holds their episodes"
        if server is not None and server.own:
            fate = "they are lost if its engine is stopped before it takes them"
        rewards = f"The rewards of {plural(number, 'finished group')}"
        lines.append(f"{rewards} are not on {one_line(name, 24)} yet: {fate}.")
    return lines


def restore_loss(session: Session, server: Server, name: str) -> str:
    """Return the cost of restoring a checkpoint, or `base`."""
    saved = {one.name: one for one in server.checkpoints or ()}
    target, latest = saved.get(name), saved.get("latest")
    lines = []
    if name == BASE:
        lines.append("Base weights, step 0, a fresh optimizer.")
    elif target is not None:
        age = ago(session.now() - target.at)
        lines.append(f"{one_line(name, 64)}: saved {age}, after update {target.step}.")
    if name == BASE or target is not None:
        now = latest.step if latest is not None else 0
        lines += _distance(now - (target.step if target is not None else 0))
    backup = "before-reset" if name == BASE else "before-restore"
    lines.append(f"The present policy is kept as {backup}; an older {backup} is replaced.")
    if server.state == "OFFLINE":
        lines.append("The engine stays OFFLINE: resume it to continue from there.")
    else:
        lines += ["", "The engine is stopped for it and continues from there:"]
        lines += stop_costs(session.state, server)
    return "\n".join(lines)


def _rewind_loss(session: Session, server: Server | None) -> str:
    """Return the step that a rewind restores, and its cost."""
    progress = session.state.progress.get(server.name) if server is not None else None
    if server is None or progress is None or progress.best is None:
        return ""
    cost = restore_loss(session, server, progress.best.checkpoint)
    return f"{rewind_words(progress)}\n\n{cost}"


def _distance(given_up: int) -> list[str]:
    if given_up > 0:
        return [f"{plural(given_up, 'update')} since then {are(given_up)} given up."]
    if given_up < 0:
        return [f"That is {plural(-given_up, 'update')} ahead of the present policy."]
    return []


def waiting_loss(state: State) -> list[str]:
    """Return what an orderly stop of the proxy costs groups that wait for a rating."""
    waits = [
        group for group in state.waiting() if group.rating is None and group.awaiting != "window"
    ]
    accepted = [group for group in waits if group.fallback == "accept"]
    lines = []
    if accepted:
        waiting = _waiting(len(accepted))
        lines.append(f"{waiting}: after 10 s the automatic rewards are sent for unrated groups")
    if gone := len(waits) - len(accepted):
        lines.append(f"{_waiting(gone)}: after 10 s unrated groups are given up, nothing is sent")
    return lines


def _waiting(count: int) -> str:
    return f"{plural(count, 'group')} {'waits' if count == 1 else 'wait'} for your rating"


def _process_loss(session: Session, role: str) -> str:
    child = session.children.get(role)
    open_groups = len(session.state.open_groups())
    lines = []
    if child is not None and child.pid is not None:
        lines.append(f"pid {child.pid} is stopped and started again.")
    if role == "proxy":
        lines.append(
            "New requests are refused until it is back; those in flight are finished first."
        )
        lines.append(f"{plural(open_groups, 'open group')} at the moment.")
        lines += [f"{one}." for one in waiting_loss(session.state)]
    else:
        lines.append("It continues from its last update; episodes claimed in this step are lost.")
        lines.append(f"{plural(open_groups, 'open group')} of yours {are(open_groups)} given up.")
    return "\n".join(lines)


def loss(session: Session, name: str, args: Mapping[str, Any]) -> str:
    """Return the body of the confirmation of command `name`; empty when unknown."""
    state = session.state
    if name == "group.abort":
        group = state.groups.get(str(args.get("group_id", "")))
        return abort_loss(state, group) if group is not None else ""
    if name in ("engine.stop", "engine.apply"):
        server = server_of(session, args.get("server"))
        if server is None:
            return ""
        return stop_words(state, server) if name == "engine.stop" else apply_words(state, server)
    if name == "engine.abort_episode":
        return "The client that holds it loses it, with its answers."
    if name in ("engine.restore", "engine.reset", "engine.prune"):
        server = server_of(session, args.get("server"))
        if server is None:
            return ""
        if name == "engine.prune":
            return "\n".join(prune_loss(server, args.get("keep")))
        checkpoint = BASE if name == "engine.reset" else str(args.get("name", "")).strip()
        return restore_loss(session, server, checkpoint)
    if name == "progress.rewind":
        return _rewind_loss(session, server_of(session, args.get("server")))
    if name == "proxy.restart":
        return _process_loss(session, "proxy")
    if name == "engine.restart_process":
        return _process_loss(session, "engine")
    return ""


def server_of(session: Session, name: object) -> Server | None:
    """Return the server of that name; the first one for None."""
    servers = session.state.servers
    if name is None:
        return next(iter(servers.values()), None)
    return servers.get(str(name))


def boot_trouble(server: Server, now: float, *, read_only: bool = False) -> str:
    """Return why a boot seems to have failed, and what to do; empty while it does not."""
    if server.state != "BOOTING" or not server.since or now - server.since < BOOT_SUSPECT_AFTER:
        return ""
    advice = "Stop the engine (k), look at its log (F7), then start it again (s)"
    return f"BOOTING for {elapsed(now - server.since)}: the start has probably failed. " + (
        "Its log (F7) shows why" if read_only else advice
    )
