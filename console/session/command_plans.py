"""What a command would do now, by the state that this console has: for keys, lists and dialogs."""

from typing import Any

from ajet_swarm.common.errors import AjetError
from console.session.app_state import Session
from core.commands import plan as plans
from core.state import Group


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
