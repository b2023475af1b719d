"""Rules of the commands on engines: when each is refused, and what is lost."""

from collections.abc import Callable, Mapping
from typing import Any

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import known_names, one_line, plural
from core.commands.refusal import NotNow
from core.state import Group, Pool, Server, State

Args = Mapping[str, Any]
FILLING = frozenset({"ROLLING", "ROLLING_POST"})
"""States in which a server fills the pool of its next update."""


def find_server(state: State, name: str | None) -> Server:
    """Return the server of that name; the first one for None.

    Raises:
        UsageError: There is none of that name.
        NotNow: There is none at all.
    """
    servers = state.servers
    if name and name not in servers:
        what = f"there is no server `{one_line(name, 60)}`"
        raise UsageError(what, todo=known_names(name, servers))
    if not servers:
        raise NotNow("the proxy knows no swarm server")
    return servers[name] if name else next(iter(servers.values()))


def require_not_negative(args: Args) -> None:
    """Refuse numbers below 0.

    Raises:
        UsageError: There is one.
    """
    for name, value in args.items():
        if isinstance(value, int | float) and value < 0:
            raise UsageError(f"`{name}` cannot be {value}", todo="Give 0 or more")


# --- rules ---------------------------------------------------------------------------------------


def _answers(state: State, server: Server, args: Args) -> None:
    if server.lost:
        raise NotNow(f"the server does not answer: {one_line(server.lost, 200)}", server.name)


def _start(state: State, server: Server, args: Args) -> None:
    _answers(state, server, args)
    if server.state != "OFFLINE" and any(args.get(key) for key in ("job", "preset")):
        todo = "Stop it first, or apply the job"
        raise NotNow(f"the engine is {server.state}, not OFFLINE", server.name, todo)


def _with_checkpoints(state: State, server: Server, args: Args) -> None:
    _answers(state, server, args)
    if server.checkpoints is None:
        raise NotNow("this server has no checkpoints", server.name)


def _prune(state: State, server: Server, args: Args) -> None:
    _with_checkpoints(state, server, args)
    require_not_negative(args)


def _restore(state: State, server: Server, args: Args) -> None:
    _with_checkpoints(state, server, args)
    names = [*(one.name for one in server.checkpoints or ()), "base"]
    if args["name"].strip() not in names and not server.checkpoints_more:
        what = f"there is no checkpoint `{one_line(args['name'], 80)}`"
        raise NotNow(what, server.name, known_names(args["name"], names))


RULES: Mapping[str, Callable[[State, Server, Args], None]] = {
    "engine.start": _start,
    "engine.stop": _answers,
    "engine.apply": _answers,
    "engine.resume": _answers,
    "engine.save": _with_checkpoints,
    "engine.restore": _restore,
    "engine.reset": _with_checkpoints,
    "engine.prune": _prune,
    "engine.try": _answers,
}
"""Command -> its rule: state, server, arguments."""


# --- what is lost --------------------------------------------------------------------------------


def consequences(state: State, name: str, args: Args, server: Server) -> list[str]:
    """Return the cost of a command on an engine."""
    if name == "engine.stop" and server.state != "OFFLINE":
        return stop_loss(state, server)
    if name == "engine.apply":
        return apply_loss(state, server)
    if name == "engine.prune":
        return prune_loss(server, args["keep"])
    if name in ("engine.restore", "engine.reset", "progress.rewind"):
        loss = ["The present policy; it is kept as a checkpoint."]
        return loss if server.state == "OFFLINE" else [*loss, *stop_loss(state, server)]
    if name == "engine.abort_episode":
        return ["The client that holds the episode loses it, with its answers."]
    return []


def stop_loss(state: State, server: Server) -> list[str]:
    """Return what stopping an engine costs everyone who uses it."""
    return [*stop_costs(state, server), "What was trained up to the last update is kept."]


def apply_loss(state: State, server: Server) -> list[str]:
    """Return what applying a job costs everyone who uses the engine."""
    if server.state == "OFFLINE" and not server.lost:
        return ["The engine is OFFLINE: it starts with the job, nothing is lost."]
    sent = "Once the engine is OFFLINE, the job is sent and the engine started."
    return [*stop_loss(state, server), sent]


def stop_costs(state: State, server: Server) -> list[str]:
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


def pool_costs(state: State, server: Server, pool: Pool) -> list[str]:
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
    began, step = server.since, None
    for span in reversed(server.spans):
        if span.state not in FILLING or _other(step, span.step):
            break
        began, step = span.since, step if span.step is None else span.step
    return sum(_in_pool(group, server.name, began) for group in state.groups.values())


def _other(one: int | None, two: int | None) -> bool:
    return one is not None and two is not None and one != two


def _in_pool(group: Group, server: str, began: float) -> bool:
    """Return whether a group was rated by hand and sent to a server since the pool began."""
    return (
        group.server == server
        and group.phase == "DONE"
        and not group.lost
        and group.source == "human"
        and group.episode_type == "train"
        and (group.sealed_at or 0.0) >= began
        and any(one.phase == "ended" for one in group.candidates)
    )


def prune_loss(server: Server, keep: object) -> list[str]:
    """Return the cost of deleting all but the newest `keep` named checkpoints."""
    named = [one.name for one in server.checkpoints or () if not one.kept]
    try:
        gone = named[max(0, int(str(keep))) :]
    except ValueError:
        return [f"“{one_line(str(keep), 20)}” is not a number."]
    count = len(gone) + server.checkpoints_more
    if not count:
        return [f"Nothing: there are only {plural(len(named), 'named checkpoint')}."]
    names = ", ".join(one_line(name, 40) for name in gone[:6])
    more = f" and {count - min(6, len(gone))} more" if count > 6 or not gone else ""
    return [
        f"{plural(count, 'checkpoint')} {are(count)} deleted permanently: {names}{more}.",
        "The engine's own checkpoints stay.",
    ]


def are(count: int) -> str:
    """Return `is` or `are`."""
    return "is" if count == 1 else "are"
