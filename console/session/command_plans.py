"""What a command would do now, by the state that this console has: for keys, lists and dialogs."""

from typing import Any

from ajet_swarm.common.errors import AjetError
from console.session.app_state import Session
from core.commands import plan as plans
from core.state import Group

_RESTARTED = {"proxy.restart": "proxy", "engine.restart_process": "engine"}
"""Command -> the process that it restarts."""
_VOTES = dict.fromkeys(("vote", "arm"), "group.rate")
_VERBS = ("accept", "unrate", "abort", "rescore", "refill", "rerun", "pin", "mark", "note")
_COMMANDS = {**_VOTES, **{verb: f"group.{verb}" for verb in _VERBS}}
"""Action -> the command that it sends."""
_READS = frozenset({"reveal", "zoom", "copy", "raw", "curl", "diff", "conversation"})


def refusal(
    session: Session, name: str, group: Group | None = None, /, **args: Any
) -> AjetError | None:
    """Return why a command has no effect now; None if it has one.

    Args:
        session: The session.
        name: Name of the command.
        group: The group of the arguments; one of the journal is not in the state.
        **args: Its arguments.
    """
    return plans.refusal(session.state, name, args, session.now(), session.identity, group)


def may_send(session: Session, name: str, /, **args: Any) -> bool:
    """Return whether this console may send a command, and it has an effect now."""
    return session.allows(name) and refusal(session, name, **args) is None


def consequences(session: Session, name: str, /, **args: Any) -> str:
    """Return what a command would destroy, for the question before it; empty for nothing."""
    try:
        planned = plans.plan(session.state, name, args, session.now(), session.identity)
    except AjetError:
        return ""  # the proxy says why when it is sent
    child = session.children.get(_RESTARTED.get(name, ""))
    lines = list(planned.consequences)
    if child is not None and child.pid is not None:
        lines.insert(0, f"pid {child.pid} is stopped and started again.")
    return "\n".join(lines)


def obstacle(action: str, group: Group | None, session: Session) -> str | None:
    """Return why an action is unavailable for a group; None when it is available.

    The text may be empty: with no group there is nothing to explain.
    """
    command = _COMMANDS.get(action)
    if command is None and action not in _READS:
        return None
    if group is None:
        return ""
    if command is None:
        return _unreadable(action, group)
    why = refusal(session, command, group, **arguments(command, group, session))
    return why.what if why is not None else None


def arguments(command: str, group: Group, session: Session) -> dict[str, object]:
    """Return the arguments that decide whether a command on a group has an effect."""
    args: dict[str, object] = {"group_id": group.group_id}
    if command == "group.rate":
        args["rating"] = "tie"
    elif command == "group.note":
        args["note"] = ""
    if command in ("group.rate", "group.accept"):  # an operator is asked, then overrides
        args["override"] = session.identity.permits("operator")
    if command in ("group.rate", "group.unrate"):
        args |= {"rater": session.rater, "holder": session.holder}
    return args


def _unreadable(action: str, group: Group) -> str | None:
    if action == "curl" and not group.request_id:
        return "Its request is no longer stored"
    if action == "diff" and len(group.answered) < 2:
        return "There are fewer than two answers to compare"
    if action == "copy" and not any(
        answer.text or answer.tool_calls for answer in group.candidates
    ):
        return "There is no answer to copy yet"
    return None
