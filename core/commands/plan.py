"""What a command would do now: whether it may run, why not, and what would be lost.

`plan` is a pure function of the state. The console asks it on its own state for keys, footer,
palette and dialogs, also in a replay; the proxy begins each command with it, on the newest state,
and answers `POST /control/plan` for `--dry-run` and MCP. What only the running group or engine
knows is checked by the proxy afterwards.

    plan(state, "group.abort", {"group_id": "g12"}, now).loses
    refusal(state, "group.accept", {"group_id": "g12"}, now)   # None, or why it is refused
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import known_names, one_line
from core.commands import COMMANDS, CommandError, validate
from core.commands import plan_engines as engines
from core.commands import plan_groups as groups
from core.commands.refusal import NoChange, NotNow
from core.roles import OWNER, Identity, require
from core.state import Group, Server, State

IN_WATCH_ONLY = frozenset(
    {"alert.dismiss", "journal.prune", "proxy.restart", "run.name", "run.note", "run.pin"}
)
"""The commands that a watch-only proxy still accepts."""
WATCH_ONLY_TODO: Final = "It is watch-only: start one without --watch-only to do that"
_OF_OPERATORS = ("override", "take", "newest")
"""Flags that affect other raters."""
_MOCK_ENDED = frozenset({"finished", "stopped", "failed"})


class Plan(msgspec.Struct, frozen=True):
    """What a command would do."""

    command: str
    args: dict[str, Any]
    """The validated arguments; ids are complete."""
    message: str
    done: bool = False
    """It would succeed and change nothing; `message` says why."""
    consequences: tuple[str, ...] = ()
    """What it would destroy, in sentences without any text of a user or a model."""
    targets: tuple[str, ...] = ()
    """The state of what it changes: a plan is out of date once this differs."""
    confirm: bool = False
    """It reads what the caller chose outside the home."""

    @property
    def loses(self) -> str:
        """What it would destroy, on one line."""
        return " ".join(filter(None, self.consequences))


def plan(
    state: State,
    name: str,
    args: Mapping[str, Any],
    now: float,
    identity: Identity = OWNER,
    stored: Group | None = None,
) -> Plan:
    """Return what a command would do in a state.

    Args:
        state: The state of the proxy.
        name: Name of a command of `core.commands`.
        args: Its arguments.
        now: Unix seconds.
        identity: Name and role of the client.
        stored: The group of the arguments, if it has left the state and is in the journal.

    Raises:
        NotPermitted: The role does not suffice.
        CommandError: The arguments are invalid.
        NotNow: It is refused in this state.
    """
    checked, group, server = _resolve(state, name, args, identity, stored)
    targets = (state.run_id, *_targets(state, name, checked, group, server))
    try:
        _check(state, name, checked, now, identity, group, server)
    except NoChange as none:
        return Plan(name, checked, str(none), done=True, targets=targets)
    values = {key: value for key, value in shown_args(checked).items() if value not in ("", ())}
    with_args = ", ".join(f"{key}={one_line(str(value), 40)}" for key, value in values.items())
    message = f"would execute “{COMMANDS[name].title}”" + (
        f" with {with_args}" if with_args else ""
    )
    lost = _consequences(state, name, checked, now, group, server)
    return Plan(name, checked, message, consequences=lost, targets=targets)


def refusal(
    state: State,
    name: str,
    args: Mapping[str, Any],
    now: float,
    identity: Identity = OWNER,
    stored: Group | None = None,
) -> AjetError | None:
    """Return why a command is refused or would change nothing; None if it would change something.

    As `plan`, without its consequences: for keys and lists.
    """
    try:
        checked, group, server = _resolve(state, name, args, identity, stored)
        _check(state, name, checked, now, identity, group, server)
    except AjetError as error:
        return error
    return None


def permitted(state: State, name: str, identity: Identity) -> bool:
    """Return whether a client may send a command at all, whatever its arguments are."""
    try:
        require(identity, COMMANDS[name].role, f"`{name}`")
        _require_service(state, name)
    except AjetError:
        return False
    return True


def shown_args(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments for an output: a job, which can contain secrets, only with its size."""
    return {
        name: f"({len(value)} characters)" if name == "job" else value
        for name, value in args.items()
    }


def admitted(
    state: State, name: str, args: Mapping[str, Any], identity: Identity
) -> dict[str, Any]:
    """Return the checked arguments of a command; a named client votes under the name of its token.

    Raises:
        NotPermitted: The role does not suffice.
        CommandError: The arguments are invalid.
        NotNow: The proxy only watches.
    """
    if name in COMMANDS:  # before anything is said of the arguments
        require(identity, COMMANDS[name].role, f"`{name}`")
    checked = validate(name, args)
    if identity.name and any(arg.name == "rater" for arg in COMMANDS[name].args):
        checked["rater"] = identity.name
    _require_service(state, name)
    for flag in _OF_OPERATORS:
        if checked.get(flag):
            require(identity, "operator", f"`{name}` with `{flag}`")
    return checked


def _resolve(
    state: State, name: str, args: Mapping[str, Any], identity: Identity, stored: Group | None
) -> tuple[dict[str, Any], Group | None, Server | None]:
    """Return the checked arguments, and the group and the server that they name."""
    checked = admitted(state, name, args, identity)
    group = server = None
    if "group_id" in checked:
        group = stored or groups.find_group(state, checked["group_id"])
        checked["group_id"] = group.group_id
    if name.partition(".")[0] in ("engine", "progress", "rating") and "server" in {
        arg.name for arg in COMMANDS[name].args
    }:
        server = engines.find_server(state, checked.get("server"))
    return checked, group, server


def _check(
    state: State,
    name: str,
    args: Mapping[str, Any],
    now: float,
    identity: Identity,
    group: Group | None,
    server: Server | None,
) -> None:
    """Refuse a command that cannot run in this state."""
    if group is not None:
        if identity.name and not identity.permits("operator"):
            groups.require_own(identity.name, name, args.get("holder"), group, now)
        if rule := groups.RULES.get(name):
            rule(state, group, args, now)
    elif server is not None and (engine_rule := engines.RULES.get(name)):
        engine_rule(server, args)
    elif other := _RULES.get(name):
        other(state, args)


def _require_service(state: State, name: str) -> None:
    if state.watch_only and name not in IN_WATCH_ONLY:
        raise NotNow(f"{COMMANDS[name].title}: this proxy only watches", todo=WATCH_ONLY_TODO)


# --- commands about neither a group nor an engine ------------------------------------------------


def _known_run(state: State, args: Mapping[str, Any]) -> None:
    if state.engine_runs.numbered(args["number"]) is None:
        what = f"there is no run {args['number']}"
        raise CommandError(what, todo="`ajet-console runs` lists them")


def _known_part(state: State, args: Mapping[str, Any]) -> None:
    names = [part.name for part in state.rewards.parts]
    if args["part"] not in names:
        what = f"the rewards have no part `{one_line(args['part'], 60)}`"
        raise NotNow(what, todo=known_names(args["part"], names))


def _mock(state: State, goal: str) -> None:
    """Refuse a mock command that does not lead to another phase."""
    phase = state.mock.phase if state.mock is not None else "finished"
    if phase in _MOCK_ENDED:
        if goal == "stopping":
            raise NoChange("no mock user is running")
        raise NotNow("no mock user is running", todo="Start one with `ajet-console mock`")
    if phase == goal:
        raise NoChange(f"the mock user is {goal} already")
    if phase == "stopping":
        raise NotNow("the mock user is stopping")


_RULES: Mapping[str, Callable[[State, Mapping[str, Any]], None]] = {
    "journal.prune": lambda _, args: engines.require_not_negative(args),
    "run.name": _known_run,
    "run.note": _known_run,
    "run.pin": _known_run,
    "rewards.weight": _known_part,
    "rewards.gate": _known_part,
    "rewards.enable": _known_part,
    "mock.pause": lambda state, _: _mock(state, "paused"),
    "mock.resume": lambda state, _: _mock(state, "running"),
    "mock.stop": lambda state, _: _mock(state, "stopping"),
}


# --- cost ----------------------------------------------------------------------------------------


def _consequences(
    state: State,
    name: str,
    args: Mapping[str, Any],
    now: float,
    group: Group | None,
    server: Server | None,
) -> tuple[str, ...]:
    if name == "group.abort" and group is not None:
        return tuple(groups.abort_consequences(state, [group]))
    if name == "rating.abort_all":
        return tuple(groups.abort_all_consequences(state, [args.get("server")]))
    if name == "journal.prune":
        return ("History that cannot be restored.",)
    if name in ("proxy.restart", "engine.restart_process"):
        return tuple(engines.restart_loss(state, "proxy" if name == "proxy.restart" else "engine"))
    if server is None:
        return ()
    return tuple(engines.consequences(state, name, args, server, now))


def _targets(
    state: State, name: str, args: Mapping[str, Any], group: Group | None, server: Server | None
) -> tuple[str, ...]:
    """Return what identifies the state of the command's target."""
    if group is not None:
        return (group.group_id, group.phase, "rated" if group.rating is not None else "")
    if name == "rating.abort_all":
        return tuple(group.group_id for group in groups.unrated(state, args.get("server")))
    if server is None:
        return ()
    saved: list[str] = []
    if name in ("engine.prune", "engine.restore"):
        saved = [f"{checkpoint.name} {checkpoint.at}" for checkpoint in server.checkpoints or ()]
    return (server.name, server.state, str(server.engine_run), *saved)
