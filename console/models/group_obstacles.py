"""Why an action on a group is unavailable now."""

from console.session.app_state import Session
from console.session.command_plans import refusal
from core.state import Group

_VOTES = dict.fromkeys(("vote", "tie", "bad", "digit", "scores", "skip", "commit"), "group.rate")
_VERBS = ("accept", "unrate", "abort", "rescore", "refill", "rerun", "pin", "mark", "note")
_COMMANDS = {**_VOTES, **{verb: f"group.{verb}" for verb in _VERBS}}
"""Action -> the command that it sends."""
_READS = frozenset({"reveal", "zoom", "copy", "raw", "curl", "diff", "conversation"})


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
    if action == "copy" and not any(one.text or one.tool_calls for one in group.candidates):
        return "There is no answer to copy yet"
    return None
