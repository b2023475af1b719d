"""Rules of the commands on engines: when each is refused, and what is lost."""

from collections.abc import Callable, Mapping
from typing import Any

from ajet_swarm.common.text import ago, known_names, one_line, plural
from core.commands import CommandError
from core.commands.spec import NoChange, NotNow
from core.events.server import PoolChanged
from core.state import Server, State

Args = Mapping[str, Any]
BASE = "base"
"""Name of the weights a policy starts with."""
LONGEST_PROMPT = 200_000
"""Maximum characters of a prompt to try."""
FILLING = frozenset({"ROLLING", "ROLLING_POST"})
"""States in which a server fills the pool of its next update."""


def find_server(state: State, name: str | None, *, trained: bool = False) -> Server:
    """Return the server of that name; the first one for None.

    Args:
        state: The state of the proxy.
        name: The name.
        trained: Only a server that is trained, so none in observe mode.

    Raises:
        CommandError: There is none of that name.
        NotNow: There is none at all.
    """
    servers = state.servers
    if trained:
        servers = {
            known: server for known, server in servers.items() if server.state != "OBSERVING"
        }
    if name and name not in servers:
        what = f"there is no server `{one_line(name, 60)}`{' that is trained' * trained}"
        raise CommandError(what, todo=known_names(name, servers))
    if not servers:
        raise NotNow(f"the proxy knows no swarm server{' that is trained' * trained}")
    return servers[name] if name else next(iter(servers.values()))


def require_not_negative(args: Args) -> None:
    """Refuse numbers below 0.

    Raises:
        CommandError: There is one.
    """
    for name, value in args.items():
        if isinstance(value, int | float) and value < 0:
            raise CommandError(f"`{name}` cannot be {value}", todo="Give 0 or more")


# --- rules ---------------------------------------------------------------------------------------


def _busy(server: Server) -> str:
    """Return the title of the operation that runs on a server; empty without one."""
    return server.work.work if server.work is not None and not server.work.over else ""


def require_answer(server: Server) -> None:
    """Refuse a server that does not answer.

    Raises:
        NotNow: It does not.
    """
    if server.lost:
        raise NotNow(f"the server does not answer: {one_line(server.lost, 200)}", server.name)


def _require_idle(server: Server) -> None:
    if title := _busy(server):
        todo = "Wait for it, or cancel it: the `Engine: Cancel` entry, `engine cancel`"
        raise NotNow(f"`{title}` runs on {server.name}", todo=todo)


def _require_engine(server: Server) -> None:
    if server.state == "OBSERVING":
        raise NotNow("there is no engine: in observe mode nothing is trained", server.name)


def _require_checkpoints(server: Server) -> None:
    require_answer(server)
    if server.checkpoints is None:
        todo = "An AgentJet server saves by its own job: see save_freq there"
        raise NotNow("this server has no checkpoints", server.name, todo)


def _start(state: State, server: Server, args: Args) -> None:
    _require_engine(server)
    off = server.state in ("OFFLINE", "CANNOT_CONNECT")
    if not (args.get("job") or args.get("preset")):
        if _busy(server) in ("Start", "Resume"):
            raise NoChange(f"{server.name} is starting already")
        if not (_busy(server) or server.lost or off):
            raise NoChange(f"{server.name} is {server.state} already, with the job it has")
    _require_idle(server)
    require_answer(server)
    if not off:
        todo = "Stop it first, or apply the job, which does that"
        raise NotNow(f"the engine of {server.name} is {server.state}, not OFFLINE", todo=todo)


def _stop(state: State, server: Server, args: Args) -> None:
    _require_engine(server)
    if server.state == "OFFLINE" and not (server.lost or _busy(server)):
        raise NoChange(f"{server.name} is OFFLINE already")


def _apply(state: State, server: Server, args: Args) -> None:
    _require_engine(server)
    _require_idle(server)
    require_answer(server)


def _save_job(state: State, server: Server, args: Args) -> None:
    if args.get("job") is None and args.get("preset") is None:
        raise CommandError("the command has no job", todo="Give a job, or a preset")


def _cancel(state: State, server: Server, args: Args) -> None:
    if not _busy(server):
        raise NoChange(f"nothing runs on {server.name} that could be cancelled")


def _resume(state: State, server: Server, args: Args) -> None:
    _require_checkpoints(server)
    _start(state, server, {})


def _save(state: State, server: Server, args: Args) -> None:
    _require_checkpoints(server)
    if server.state == "BOOTING" or (server.state == "OFFLINE" and not server.checkpoints):
        raise NotNow(f"the engine is {server.state}: it has no policy yet", server.name)


def _reset(state: State, server: Server, args: Args) -> None:
    _require_checkpoints(server)
    _require_idle(server)


def _restore(state: State, server: Server, args: Args) -> None:
    _reset(state, server, args)
    name = args["name"].strip()
    saved = {checkpoint.name: checkpoint for checkpoint in server.checkpoints or ()}
    if name in saved and saved[name].damaged:
        what = f"the checkpoint {one_line(name, 80)} is damaged"
        raise NotNow(what, server.name, "Choose another")
    if name not in {*saved, BASE} and not server.checkpoints_more:
        what = f"there is no checkpoint `{one_line(name, 80)}`"
        raise NotNow(what, server.name, known_names(name, [*saved, BASE]))


def _prune(state: State, server: Server, args: Args) -> None:
    require_not_negative(args)
    _require_checkpoints(server)


def _try(state: State, server: Server, args: Args) -> None:
    if not args["prompt"].strip():
        raise CommandError("there is nothing to try", todo="Give a prompt")
    if len(args["prompt"]) > LONGEST_PROMPT:
        raise CommandError(f"a prompt to try has at most {LONGEST_PROMPT} characters")
    if any(known.try_id == args.get("try_id") for known in state.tries):
        what = f"there is a try `{one_line(args['try_id'], 40)}` already"
        raise CommandError(what, todo="Leave the id out")
    require_answer(server)


RULES: Mapping[str, Callable[[State, Server, Args], None]] = {
    "engine.start": _start,
    "engine.stop": _stop,
    "engine.apply": _apply,
    "engine.job": _save_job,
    "engine.cancel": _cancel,
    "engine.resume": _resume,
    "engine.save": _save,
    "engine.restore": _restore,
    "engine.reset": _reset,
    "engine.prune": _prune,
    "engine.try": _try,
}
"""Command -> its rule: state, server, arguments."""


# --- what is lost --------------------------------------------------------------------------------


def consequences(state: State, name: str, args: Args, server: Server, now: float) -> list[str]:
    """Return the cost of a command on an engine; an empty line begins a paragraph."""
    progress = state.progress.get(server.name)
    best = progress.best if progress is not None else None
    if name == "engine.stop" and server.state != "OFFLINE":
        return stop_loss(state, server)
    if name == "engine.prune":
        return prune_loss(server, args["keep"])
    if name == "engine.restore":
        return restore_loss(state, server, args["name"].strip(), now)
    if name == "engine.reset":
        return restore_loss(state, server, BASE, now)
    if name == "progress.rewind" and best is not None and best.checkpoint:
        return restore_loss(state, server, best.checkpoint, now)
    if name in ("engine.apply", "progress.rewind"):
        return apply_loss(state, server)
    if name == "engine.abort_episode":
        return ["The client that holds it loses it, with its answers."]
    return []


def stop_loss(state: State, server: Server) -> list[str]:
    """Return what stopping an engine costs everyone who uses it."""
    return [*_stop_costs(state, server), "What was trained up to the last update is kept."]


def apply_loss(state: State, server: Server) -> list[str]:
    """Return what applying a job costs everyone who uses the engine."""
    if server.state == "OFFLINE" and not server.lost:
        return ["The engine is OFFLINE: it starts with the job, nothing is lost."]
    sent = "Once the engine is OFFLINE, the job is sent and the engine started."
    return [*stop_loss(state, server), "", sent]


def _stop_costs(state: State, server: Server) -> list[str]:
    """Return the episodes, groups and pool that are lost when an engine stops."""
    ours = [group for group in state.open_groups() if group.server == server.name]
    unrated = sum(1 for group in ours if group.phase == "AWAITING_RATING" and group.rating is None)
    lines = []
    pool = server.pool
    if pool is not None:
        mine = max(0, pool.running - pool.running_others)
        lines.append(f"{plural(mine, 'claimed episode')} of yours {are(mine)} lost.")
        lines += pool_costs(state, server, pool)
    else:
        lines.append("The server does not report claimed episodes: all of them are lost.")
    if ours:
        lines.append(
            f"{plural(len(ours), 'open group')} of yours {are(len(ours))} given up, "
            f"{unrated} of them unrated."
        )
    return lines


def pool_costs(state: State, server: Server, pool: PoolChanged) -> list[str]:
    """Return what a stop of the engine costs other clients, and the pool that it discards."""
    lines = []
    if pool.running_others or pool.other_clients:
        clients = plural(len(pool.other_clients), "other client")
        lost = plural(pool.running_others, "episode")
        lines.append(f"{lost} of {clients} {are(pool.running_others)} lost.")
    by_hand = min(_by_hand(state, server), pool.completed_tasks)
    rated = f", {by_hand} human-rated" if by_hand else ""
    lines.append(
        f"The pool of this step is discarded: {plural(pool.completed_tasks, 'task')}{rated}."
    )
    return lines


def _by_hand(state: State, server: Server) -> int:
    """Return our human-rated groups in the pool."""
    if server.lost or server.state not in FILLING:
        return 0
    began = max((span.since for span in server.spans if span.state not in FILLING), default=0.0)
    return sum(
        group.server == server.name
        and group.step == server.step
        and (group.sealed_at or 0.0) >= began
        and group.phase == "DONE"
        and not group.lost
        and group.source == "human"
        and any(candidate.phase == "ended" for candidate in group.candidates)
        for group in state.groups.values()
    )


def prune_loss(server: Server, keep: int) -> list[str]:
    """Return the cost of deleting all but the newest `keep` named checkpoints."""
    named = [checkpoint.name for checkpoint in server.checkpoints or () if not checkpoint.kept]
    gone = named[max(0, keep) :]
    count = len(gone) + server.checkpoints_more
    if not count:
        return [f"Nothing: there are only {plural(len(named), 'named checkpoint')}."]
    names = ", ".join(one_line(name, 40) for name in gone[:6])
    more = f" and {count - min(6, len(gone))} more" if count > 6 or not gone else ""
    return [
        f"{plural(count, 'checkpoint')} {are(count)} deleted permanently: {names}{more}.",
        "The engine's own checkpoints stay.",
    ]


def restore_loss(state: State, server: Server, name: str, now: float) -> list[str]:
    """Return the cost of restoring a checkpoint, or the weights that the policy began with."""
    saved = {checkpoint.name: checkpoint for checkpoint in server.checkpoints or ()}
    target, latest = saved.get(name), saved.get("latest")
    lines = []
    if name == BASE:
        lines.append("Base weights, step 0, a fresh optimizer.")
    elif target is not None:
        age = ago(now - target.at)
        lines.append(f"{one_line(name, 64)}: saved {age}, after update {target.step}.")
    if name == BASE or target is not None:
        step = latest.step if latest is not None else 0
        lines += _distance(step - (target.step if target is not None else 0))
    backup = "before-reset" if name == BASE else "before-restore"
    lines.append(f"The present policy is kept as {backup}; an older {backup} is replaced.")
    if server.state == "OFFLINE":
        lines.append("The engine stays OFFLINE: resume it to continue from there.")
    else:
        lines += ["", "The engine is stopped for it and continues from there:"]
        lines += _stop_costs(state, server)
    return lines


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
        lines.append(f"{waiting}: after 10 s the automatic rewards are sent for unrated groups.")
    if gone := len(waits) - len(accepted):
        lines.append(f"{_waiting(gone)}: after 10 s unrated groups are given up, nothing is sent.")
    return lines


def _waiting(count: int) -> str:
    return f"{plural(count, 'group')} {'waits' if count == 1 else 'wait'} for your rating"


def restart_loss(state: State, role: str) -> list[str]:
    """Return what a restart of the home's proxy or engine costs."""
    open_groups = len(state.open_groups())
    if role == "engine":
        return [
            "It continues from its last update; episodes claimed in this step are lost.",
            f"{plural(open_groups, 'open group')} of yours {are(open_groups)} given up.",
        ]
    return [
        "New requests are refused until it is back; those in flight are finished first.",
        f"{plural(open_groups, 'open group')} at the moment.",
        *waiting_loss(state),
    ]


def are(count: int) -> str:
    """Return `is` or `are`."""
    return "is" if count == 1 else "are"
