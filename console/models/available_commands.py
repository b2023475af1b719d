"""The commands that are available now, for the palette and the keys of the screens."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ajet_swarm.common.text import one_line
from console.models.advice import context_of
from console.models.alerts import current_alerts, held_up
from console.session.app_state import Session
from console.session.command_plans import arguments, obstacle, refusal
from console.text.alerts import alert_text
from core.commands import COMMANDS, MODES
from core.state import Group, Server

NAMES = 6
"""Most servers that a title or a question names."""


@dataclass(frozen=True, slots=True)
class AvailableCommand:
    """A command that can be sent now."""

    command: str
    title: str
    """`Area: Verb`."""
    help: str
    args: Mapping[str, Any] = field(default_factory=dict)
    ask: str = ""
    """Name of the one text argument to ask for."""
    value: str = ""
    """Present value of that argument."""
    servers: tuple[str, ...] = ()
    """Servers that it is sent to; empty for the one in `args`."""

    @property
    def danger(self) -> bool:
        """Whether it must be confirmed."""
        return COMMANDS[self.command].danger


def available_commands(
    session: Session, group_id: str | None, server: str | None
) -> list[AvailableCommand]:
    """Return the commands that can be sent now.

    Args:
        group_id: The target group of the screen, if any.
        server: The target server of the screen; None for the first one.
    """
    if session.observing:
        return []
    return [
        command for command in _all(session, group_id, server) if session.allows(command.command)
    ]


def _all(session: Session, group_id: str | None, server: str | None) -> list[AvailableCommand]:
    commands: list[AvailableCommand] = []
    group = session.state.groups.get(group_id) if group_id else None
    if group is not None:
        commands += _group(session, group)
    if session.seen:
        for choice in _servers(session, server):
            commands += _engine(session, choice)
            commands += _progress(session, choice)
        commands += _several_servers(session)
        commands += _modes(session)
        commands += _stalls(session)
        commands += _mock(session)
        context = context_of(session)
        for alert in current_alerts(session.state).values():
            cause = one_line(alert_text(alert, context).cause, 40)
            commands.append(_offer("alert.dismiss", f": {cause}", args={"key": alert.key}))
        if session.state.proxy_up:
            commands.append(_offer("proxy.drain"))
    if "proxy" in session.children:
        commands.append(_offer("proxy.restart"))
    if "engine" in session.children:
        commands.append(_offer("engine.restart_process"))
    return commands


def offered(
    session: Session, name: str, server: str | None, *, everywhere: bool = False, **args: Any
) -> AvailableCommand | None:
    """Return a command that can be sent now, to one server or to several; None if it cannot.

    Args:
        session: The session.
        name: Name of the command.
        server: The target server of the screen.
        everywhere: Whether it goes to every server it applies to.
        **args: Further arguments that it must have.
    """
    offers = (
        offer
        for offer in available_commands(session, None, server)
        if offer.command == name and bool(offer.servers) == everywhere
    )
    return next((offer for offer in offers if args.items() <= offer.args.items()), None)


_GROUP_VERBS = (
    "accept", "unrate", "abort", "rescore", "refill", "rerun", "pin", "mark", "note",
)  # fmt: skip
_REASONS = {
    "rating.accept_all": "no open rating causes a stall",
    "rating.abort_all": "no open rating causes a stall",
    "engine.start": "no server is OFFLINE",
    "engine.stop": "no server is running",
    "mock.pause": "no mock user is running",
    "mock.resume": "no mock user is paused",
    "mock.stop": "no mock user is running",
}


def unavailable_commands(session: Session, group_id: str | None) -> Iterator[tuple[str, str]]:
    """Yield title and reason of unavailable commands; none on a read-only console.

    Args:
        group_id: The target group of the screen, if any.
    """
    if session.observing or not session.seen:
        return
    group = session.state.groups.get(group_id) if group_id else None
    offered = {command.command for command in available_commands(session, group_id, None)}
    for verb in _GROUP_VERBS:
        name = f"group.{verb}"
        if name not in offered and session.allows(name):
            nowhere = "no group selected: 2 opens the list"
            why = nowhere if group is None else obstacle(verb, group, session)
            yield COMMANDS[name].title, why or "not available for this group now"
    for name, why in _REASONS.items():
        if name not in offered and session.allows(name):
            yield COMMANDS[name].title, why


def _offer(name: str, more: str = "", help_text: str = "", **rest: Any) -> AvailableCommand:
    command = COMMANDS[name]
    return AvailableCommand(name, command.title + more, help_text or command.help, **rest)


def _group(session: Session, group: Group) -> Iterator[AvailableCommand]:
    about = one_line(group.query, 60)
    for verb in _GROUP_VERBS:
        name = f"group.{verb}"
        if refusal(session, name, group, **arguments(name, group, session)) is not None:
            continue
        args = {"group_id": group.group_id}
        if verb == "mark":
            title = "Group: Clear the mark" if group.marked else COMMANDS[name].title
            yield AvailableCommand(name, title, about, args | {"marked": not group.marked})
        elif verb == "note":
            yield _offer(name, args=args, help_text=about, ask="note", value=group.note)
        else:
            yield _offer(name, args=args, help_text=about)


def _servers(session: Session, name: str | None) -> list[Server]:
    servers = session.state.servers
    return list(servers.values()) if name is None else [servers[name]] if name in servers else []


def _engine(session: Session, server: Server) -> Iterator[AvailableCommand]:
    """Yield the commands on an engine."""
    where = f" {one_line(server.name, 24)}" if len(session.state.servers) > 1 else ""
    args = {"server": server.name}
    if _fits(session, "engine.start", server):
        yield _offer("engine.start", where, args=args)
        yield _offer(
            "engine.start",
            f"{where} for rating by hand",
            help_text="One task per step, a higher learning rate: each rating takes effect soon",
            args={**args, "preset": "hand"},
        )
    for name in ("engine.cancel", "engine.stop", "engine.apply", "engine.resume"):
        if _fits(session, name, server):
            yield _offer(name, where, args=args)
    saved = server.checkpoints or ()
    named = [checkpoint for checkpoint in saved if not checkpoint.kept]
    newest = next(
        (checkpoint.name for checkpoint in (*named, *saved) if not checkpoint.damaged), "base"
    )
    asked = {"engine.save": ("name", save_name(server))}
    if saved:
        asked |= {"engine.restore": ("name", newest), "engine.reset": ("", "")}
    if named:
        asked["engine.prune"] = ("keep", str(len(named)))
    for name, (ask, value) in asked.items():
        if _fits(session, name, server, **({ask: value} if ask else {})):
            yield _offer(name, where, args=args, ask=ask, value=value)


def _fits(session: Session, name: str, server: Server, /, **more: Any) -> bool:
    """Return whether a command has an effect now; an engine that is OFFLINE is started instead of
    replacing its job."""
    if name == "engine.apply" and server.state == "OFFLINE":
        return False
    return refusal(session, name, server=server.name, **more) is None


def _progress(session: Session, server: Server) -> Iterator[AvailableCommand]:
    """Yield the commands about the probe set and the training of a server."""
    known = session.state.progress.get(server.name)
    if known is None or known.probe_set is None:
        return
    where = f" {one_line(server.name, 24)}" if len(session.state.servers) > 1 else ""
    path = {"path": "/"} if server.checkpoints is None else {}  # the operator can name the weights
    for name in ("look", "trust", "rewind", "resume", "pause"):
        command = f"progress.{name}"
        if _fits(session, command, server, **(path if name == "rewind" else {})):
            yield _offer(command, where, args={"server": server.name})


def _several_servers(session: Session) -> Iterator[AvailableCommand]:
    """Yield commands that apply to several servers."""
    servers = session.state.servers
    if len(servers) < 2:
        return
    for name in ("engine.start", "engine.stop", "engine.apply"):
        fit = tuple(server.name for server in servers.values() if _fits(session, name, server))
        if fit:
            yield _offer(name, f" {_servers_text(fit, len(servers))}", servers=fit)


def _servers_text(names: tuple[str, ...], of: int) -> str:
    """Return `all 3 servers`, or their names."""
    if len(names) == of:
        return f"all {of} servers"
    text = ", ".join(one_line(name, 24) for name in names[:NAMES])
    return text + (f" and {len(names) - NAMES} more" if len(names) > NAMES else "")


def save_name(server: Server) -> str:
    """Return a name for a new checkpoint: `hand-000012`."""
    latest = next(
        (checkpoint.step for checkpoint in server.checkpoints or () if checkpoint.name == "latest"),
        None,
    )
    if latest is not None and latest >= 0:
        return f"hand-{latest:06}"
    return f"hand-{max(0, (server.step or 1) - 1):06}"


def _modes(session: Session) -> Iterator[AvailableCommand]:
    words = {
        "off": "automatic rewards; override one until its group is finished",
        "answer_first": "the user gets an answer at once, you rate later",
        "hold": "the user waits for your rating, within the answer budget",
    }
    for mode in MODES:
        if mode != session.state.rating_mode:
            title = f"Rating: Switch to {mode.replace('_', ' ')}"
            yield AvailableCommand("rating.mode", title, words[mode], args={"mode": mode})


def _stalls(session: Session) -> Iterator[AvailableCommand]:
    """Return the commands that end a stall by open ratings."""
    state = session.state
    for name, cause in held_up(state, session.now()).items():
        where = f" on {one_line(name, 24)}" if len(state.servers) > 1 else ""
        about = one_line(cause, 80)
        for command in ("rating.accept_all", "rating.abort_all"):
            yield _offer(command, where, help_text=about, args={"server": name})


def _mock(session: Session) -> Iterator[AvailableCommand]:
    mock = session.state.mock
    if mock is None or not session.mock_running:
        if session.processes is not None:
            yield _offer("mock.start")
        return
    for name in ("mock.pause", "mock.resume", "mock.stop"):
        if refusal(session, name) is None:
            yield _offer(name)
