"""What a command would do now, by the state that this console has: for keys, lists and dialogs."""

from typing import Any

from ajet_swarm.common.errors import AjetError
from console.session.app_state import Session
from core.commands import plan as plans
from core.state import Group

_RESTARTED = {"proxy.restart": "proxy", "engine.restart_process": "engine"}
"""Command -> the process that it restarts."""


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
