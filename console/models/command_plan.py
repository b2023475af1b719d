"""What a command would do now: its checks and its cost, without sending it.

The checks are those that the state allows. The proxy repeats them, and has further ones.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import known_names, one_line
from console.models.consequences import apply_loss, prune_loss, stop_loss
from console.models.group_obstacles import obstacle
from console.session.group_facts import find_group, missing_votes
from console.text.format import plural
from core.commands import COMMANDS, validate
from core.roles import OWNER, Identity
from core.state import Group, Server, State

_OBSTACLES = {
    "group.rate": "vote",
    "group.unrate": "unrate",
    "group.accept": "accept",
    "group.abort": "abort",
    "group.rescore": "rescore",
    "group.refill": "refill",
    "group.rerun": "rerun",
}
"""Command -> its action in `group_obstacles`."""
_MOCK_ENDED = frozenset({"finished", "stopped", "failed"})


@dataclass(frozen=True, slots=True)
class CommandPlan:
    """What a command would do."""

    command: str
    args: Mapping[str, Any]
    """The validated arguments; ids are complete."""
    message: str
    loses: str = ""
    """What it would destroy, in words without any text of a user or a model; may be empty."""
    targets: tuple[str, ...] = field(default=())
    """The state of what it changes: a plan is out of date once this differs."""
    confirm: bool = False
    """It reads what the caller chose outside the home."""


def require_role(identity: Identity, name: str) -> None:
    """Refuse a command for which the role does not suffice; an unknown one needs none.

    Raises:
        AjetError: The role does not suffice.
    """
    role = COMMANDS[name].role if name in COMMANDS else "viewer"
    if not identity.permits(role):
        what = f"`{name}` needs the role {role}; {identity.name} is a {identity.role}"
        raise AjetError(what, todo="Ask an operator")


def plan(
    state: State, name: str, args: Mapping[str, Any], now: float, identity: Identity = OWNER
) -> CommandPlan:
    """Return what a command would do in a state.

    Args:
        state: The present state of the proxy.
        name: Name of a command of `core.commands`.
        args: Its arguments.
        now: Unix seconds.
        identity: Name and role of the client's token.

    Raises:
        AjetError: the command would be refused; gives the reason.
    """
    require_role(identity, name)
    checked = validate(name, args)
    area = name.partition(".")[0]
    group = server = None
    if "group_id" in checked:
        group = find_group(state, checked["group_id"])
        if group is None:
            what = f"there is no group `{one_line(checked['group_id'], 60)}`"
            raise AjetError(what, todo=known_names(checked["group_id"], state.groups))
        checked["group_id"] = group.group_id
        _check_group(name, group, checked, state, now)
        if name == "group.accept" and not checked.get("override") and missing_votes(state, group):
            todo = "Wait for the others, or accept it with `override`"
            raise AjetError(f"it has {missing_votes(state, group)}", group.group_id, todo)
        if name == "group.repeat" and group.repeated:
            raise AjetError("it has had its second vote", group.group_id)
    if area in ("engine", "progress", "rating") and name != "rating.mode":
        server = _server(state, checked.get("server"))
    if check := _CHECKS.get(name):
        check(state, checked)
    with_args = ", ".join(_shown(checked))
    return CommandPlan(
        name,
        checked,
        f"would execute “{COMMANDS[name].title}”" + (f" with {with_args}" if with_args else ""),
        _loses(state, name, checked, group, server),
        _targets(state, name, checked, group, server),
    )


def shown_args(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments for an output: a job, which can contain secrets, only with its size."""
    return {
        name: f"({len(value)} characters)" if name == "job" else value
        for name, value in args.items()
    }


def _shown(args: Mapping[str, Any]) -> list[str]:
    """Return the arguments in words; texts are shortened."""
    values = {name: value for name, value in shown_args(args).items() if value not in ("", ())}
    return [f"{name}={one_line(str(value), 40)}" for name, value in values.items()]


# --- checks --------------------------------------------------------------------------------------


def _check_group(
    name: str, group: Group, args: Mapping[str, Any], state: State, now: float
) -> None:
    action = None if _has_effect_already(name, group) else _OBSTACLES.get(name)
    if action is not None and (why := obstacle(action, group, state, now)):
        raise AjetError(why, group.group_id)
    if name not in ("group.rate", "group.repeat", "group.settle"):
        return
    order = args.get("order", ())
    kind = args["rating"]
    if (kind == "best" and len(order) != 1) or (kind == "ranking" and not order):
        raise UsageError(f"a rating `{kind}` needs `order`", todo="Give candidate indices, from 0")
    if any(not 0 <= index < group.n for index in order) or len(set(order)) < len(order):
        todo = f"Its candidates have the indices 0 to {group.n - 1}, each once"
        raise UsageError("a candidate's index is impossible", group.group_id, todo)
    if kind == "scores" and len(args.get("scores", ())) != group.n:
        raise UsageError("`scores` needs one number per candidate", group.group_id)


def _has_effect_already(name: str, group: Group) -> bool:
    """Return whether the command would succeed without a change."""
    if name == "group.abort":
        return group.phase == "ABORTED"
    if name == "group.accept":
        return group.phase == "DONE"
    return name == "group.unrate" and group.rating is None and group.rateable


def _server(state: State, name: str | None) -> Server | None:
    servers = state.servers
    if name and name not in servers:
        raise UsageError(
            f"there is no server `{one_line(name, 60)}`", todo=known_names(name, servers)
        )
    if not servers:
        raise AjetError("the proxy knows no swarm server")
    return servers[name] if name else next(iter(servers.values()))


def _named(state: State, args: Mapping[str, Any]) -> Server:
    server = _server(state, args.get("server"))
    assert server is not None
    if server.lost:
        raise AjetError(f"the server does not answer: {one_line(server.lost, 200)}", server.name)
    return server


def _startable(state: State, args: Mapping[str, Any]) -> None:
    server = _named(state, args)
    if server.state != "OFFLINE" and any(args.get(key) for key in ("job", "preset")):
        todo = "Stop it first, or apply the job"
        raise AjetError(f"the engine is {server.state}, not OFFLINE", server.name, todo)


def _reached(state: State, args: Mapping[str, Any]) -> None:
    _named(state, args)


def _with_checkpoints(state: State, args: Mapping[str, Any]) -> None:
    server = _named(state, args)
    if server.checkpoints is None:
        raise AjetError("this server has no checkpoints", server.name)


def _prunable(state: State, args: Mapping[str, Any]) -> None:
    _with_checkpoints(state, args)
    _not_negative(state, args)


def _not_negative(state: State, args: Mapping[str, Any]) -> None:
    for name, value in args.items():
        if isinstance(value, int | float) and value < 0:
            raise UsageError(f"`{name}` cannot be {value}", todo="Give 0 or more")


def _restorable(state: State, args: Mapping[str, Any]) -> None:
    _with_checkpoints(state, args)
    server = _named(state, args)
    names = [*(one.name for one in server.checkpoints or ()), "base"]
    if args["name"].strip() not in names and not server.checkpoints_more:
        what = f"there is no checkpoint `{one_line(args['name'], 80)}`"
        raise AjetError(what, server.name, known_names(args["name"], names))


def _known_run(state: State, args: Mapping[str, Any]) -> None:
    if state.engine_runs.numbered(args["number"]) is None:
        what = f"there is no run {args['number']}"
        raise UsageError(what, todo="`ajet-console runs` lists them")


def _known_part(state: State, args: Mapping[str, Any]) -> None:
    names = [part.name for part in state.rewards.parts]
    if args["part"] not in names:
        what = f"the rewards have no part `{one_line(args['part'], 60)}`"
        raise AjetError(what, todo=known_names(args["part"], names))


def _mock(state: State, _: Mapping[str, Any]) -> None:
    if state.mock is None or state.mock.phase in _MOCK_ENDED:
        raise AjetError("no mock user is running", todo="Start one with `ajet-console mock`")


_CHECKS: Mapping[str, Callable[[State, Mapping[str, Any]], None]] = {
    "engine.start": _startable,
    "engine.stop": _reached,
    "engine.apply": _reached,
    "engine.resume": _reached,
    "engine.save": _with_checkpoints,
    "engine.restore": _restorable,
    "engine.reset": _with_checkpoints,
    "engine.prune": _prunable,
    "journal.prune": _not_negative,
    "engine.try": _reached,
    "run.name": _known_run,
    "run.note": _known_run,
    "run.pin": _known_run,
    "rewards.weight": _known_part,
    "rewards.gate": _known_part,
    "rewards.enable": _known_part,
    "mock.pause": _mock,
    "mock.resume": _mock,
}


# --- cost ----------------------------------------------------------------------------------------


def _loses(
    state: State, name: str, args: Mapping[str, Any], group: Group | None, server: Server | None
) -> str:
    if name == "group.abort" and group is not None:
        return _episodes([group])
    if name == "rating.abort_all":
        groups = _open(state, args.get("server"))
        return f"{plural(len(groups), 'group')}; {_episodes(groups)}"
    if name == "engine.stop" and server is not None and server.state != "OFFLINE":
        return stop_loss(state, server)
    if name == "engine.apply" and server is not None:
        return apply_loss(state, server)
    if name == "engine.prune" and server is not None:
        return prune_loss(server, args["keep"])
    if name in ("engine.restore", "engine.reset", "progress.rewind") and server is not None:
        loss = "The present policy; it is kept as a checkpoint."
        return loss if server.state == "OFFLINE" else f"{loss}\n{stop_loss(state, server)}"
    if name == "engine.abort_episode":
        return "The episode, also for the client that claimed it."
    if name == "journal.prune":
        return "History that cannot be restored."
    return ""


def _open(state: State, server: str | None) -> list[Group]:
    return [one for one in state.waiting() if one.rating is None and server in (None, one.server)]


def _episodes(groups: list[Group]) -> str:
    candidates = [one for group in groups for one in group.candidates]
    count = sum(one.phase in ("claimed", "answered") for one in candidates)
    rated = sum(group.is_rated for group in groups)
    return f"{plural(count, 'episode')}, {plural(rated, 'rating')}"


def _targets(
    state: State, name: str, args: Mapping[str, Any], group: Group | None, server: Server | None
) -> tuple[str, ...]:
    """Return what identifies the state of the command's target."""
    run = ("run", state.run_id)
    if group is not None:
        rated = "rated" if group.rating is not None else ""
        return (*run, group.group_id, group.phase, rated)
    if server is None:
        return run
    if name in ("engine.prune", "engine.restore"):
        saved = (f"{one.name} {one.at}" for one in server.checkpoints or ())
        return (*run, server.name, server.state, str(server.engine_run), *saved)
    if name == "rating.abort_all":
        return (*run, *(one.group_id for one in _open(state, args.get("server"))))
    return (*run, server.name, server.state, str(server.engine_run))
