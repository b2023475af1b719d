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

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import known_names, one_line
from core.commands import COMMANDS, CommandError, validate
from core.commands import plan_engines as engines
from core.commands import plan_groups as groups
from core.commands import plan_progress as progress
from core.commands.rewards import WHAT_IF_MOST, weights_of
from core.commands.spec import NoChange, NotNow
from core.commands.table import WHAT_IF_GROUPS
from core.roles import OWNER, Identity, require
from core.state import EngineRun, Group, Progress, Server, State
from core.state.runs import PIN_CAP

IN_WATCH_ONLY = frozenset(
    {"alert.dismiss", "journal.prune", "proxy.restart", "run.name", "run.note", "run.pin"}
)
"""The commands that a watch-only proxy still accepts."""
WATCH_ONLY_TODO: Final = "It is watch-only: start one without --watch-only to do that"
_OF_OPERATORS = ("override", "take", "newest")
"""Flags that affect other raters."""
_RUN_TEXTS = {"name": 80, "note": 2_000}
"""Maximum characters of what is written on a run."""
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
    area = name.partition(".")[0]
    if area in ("engine", "progress", "rating") and "server" in {
        arg.name for arg in COMMANDS[name].args
    }:
        trained = area == "progress"
        server = engines.find_server(state, checked.get("server"), trained=trained)
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
        engine_rule(state, server, args)
    elif server is not None and (progress_rule := progress.RULES.get(name)):
        if name == "progress.rewind":
            engines.require_answer(server)
        progress_rule(server, state.progress.get(server.name) or Progress(), args)
    elif other := _RULES.get(name):
        other(state, args)


def _require_service(state: State, name: str) -> None:
    if state.watch_only and name not in IN_WATCH_ONLY:
        raise NotNow(f"{COMMANDS[name].title}: this proxy only watches", todo=WATCH_ONLY_TODO)


# --- commands about neither a group nor an engine ------------------------------------------------


def _known_run(state: State, args: Mapping[str, Any]) -> EngineRun:
    run = state.engine_runs.numbered(args["number"])
    if run is None:
        what = f"there is no run {args['number']}"
        raise CommandError(what, todo="`ajet-console runs` lists them")
    return run


def _run_text(state: State, args: Mapping[str, Any]) -> None:
    _known_run(state, args)
    for name, most in _RUN_TEXTS.items():
        if (length := len(args.get(name, "").strip())) > most:
            raise CommandError(f"the {name} has {length} characters", todo=f"At most {most}")


def _pin_run(state: State, args: Mapping[str, Any]) -> None:
    run, pinned = _known_run(state, args), sum(run.pinned for run in state.engine_runs.runs)
    if args.get("pinned", True) and not run.pinned and pinned >= PIN_CAP:
        todo = "Unpin another run first"
        raise NotNow(f"{pinned} runs are pinned, the most that can be", todo=todo)


def _known_part(state: State, args: Mapping[str, Any]) -> None:
    names = [part.name for part in state.rewards.parts]
    if args["part"] not in names:
        what = f"the rewards have no part `{one_line(args['part'], 60)}`"
        raise NotNow(what, todo=known_names(args["part"], names))


def _what_if(state: State, args: Mapping[str, Any]) -> None:
    weights_of(args.get("weights", ()))
    if args.get("file") and args.get("hooks"):
        raise UsageError("a file and a hook folder are given", todo="Give one of them")
    last = args.get("last") or WHAT_IF_GROUPS
    if not 1 <= last <= WHAT_IF_MOST:
        raise UsageError(f"{last} groups cannot be tried", todo=f"From 1 to {WHAT_IF_MOST}")


def _what_if_stop(state: State, args: Mapping[str, Any]) -> None:
    if state.what_if is None or state.what_if.over:
        raise NoChange("no what-if runs; nothing was changed")


def _apply_weights(state: State, args: Mapping[str, Any]) -> None:
    if weights_of(args.get("weights", ())):
        return
    tried = state.what_if
    if tried is None or tried.phase != "done":
        todo = "Try some weights first: rewards.whatif"
        raise NotNow("there is no what-if to apply", todo=todo)
    if not tried.weights:
        todo = "Put that file in place of the rewards file: it is loaded when it is saved"
        raise NotNow(f"the what-if tried {tried.what}, not weights", todo=todo)


def _try_stop(state: State, args: Mapping[str, Any]) -> None:
    tries = {known.try_id: known for known in state.tries}
    try_id = args.get("try_id")
    if not try_id:
        if all(known.over for known in state.tries):
            raise NoChange("no try runs")
    elif try_id not in tries:
        raise NotNow("no such try runs", try_id, "It may have been answered meanwhile")
    elif tries[try_id].over:
        raise NoChange(f"try {try_id} has ended")


def _mock(state: State, goal: str) -> None:
    """Refuse a mock command that does not lead to another phase."""
    phase = state.mock.phase if state.mock is not None else "finished"
    if phase in _MOCK_ENDED:
        if goal == "stopping":
            raise NoChange("no mock user is running")
        raise NotNow("no mock user is running", todo="Start one with `ajet-console run mock`")
    if phase == goal:
        raise NoChange(f"the mock user is {goal} already")
    if phase == "stopping":
        raise NotNow("the mock user is stopping")


_RULES: Mapping[str, Callable[[State, Mapping[str, Any]], object]] = {
    "journal.prune": lambda _, args: engines.require_not_negative(args),
    "run.name": _run_text,
    "run.note": _run_text,
    "run.pin": _pin_run,
    "engine.try_stop": _try_stop,
    "rewards.whatif": _what_if,
    "rewards.whatif_stop": _what_if_stop,
    "rewards.apply": _apply_weights,
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
