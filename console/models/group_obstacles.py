"""Why an action on a group is unavailable now."""

from ajet_swarm.common.text import one_line
from ajet_swarm.protocol.schemas import EngineState
from console.session.group_facts import answered
from core.state import Group, State


def undo_left(group: Group, now: float) -> bool:
    """Return whether a rating can still be undone."""
    return group.rateable and (group.until is None or now < group.until)


def vote_refusal(group: Group) -> str:
    """Return why a vote would have no effect; empty when it would have one."""
    if group.episode_type == "eval":
        return "This request is not trained on; there is nothing to rate"
    if group.phase in ("ABORTED", "FAILED"):
        phase = "lost" if group.discarded else group.phase.lower()
        return f"Already {phase}: a vote has no effect"
    if not group.rateable:
        return "Already finished: its rewards are fixed"
    if group.phase not in ("SCORING", "AWAITING_RATING"):
        return "Its candidates are not complete yet"
    return ""


_VOTES = frozenset(
    {"accept", "vote", "tie", "bad", "digit", "scores", "skip", "commit", "reveal", "zoom"}
)


_ABOUT_ONE = _VOTES | {
    "unrate", "abort", "mark", "note", "copy", "raw", "rescore", "refill", "rerun", "curl", "diff",
    "conversation",
}  # fmt: skip


def obstacle(action: str, group: Group | None, state: State, now: float) -> str | None:
    """Return why an action is unavailable for `group` of `state`; None when it is available.

    The text may be empty: with no group there is nothing to explain.
    """
    if action not in _ABOUT_ONE:
        return None
    if group is None:
        return ""
    if action in ("reveal", "zoom", "raw", "conversation"):
        return None
    if action in _VOTES:
        return _vote_obstacle(action, group)
    if action == "unrate":
        return _undo_obstacle(group, now)
    if action == "abort" and (not group.open or group.phase == "SUBMITTING"):
        return "It is finished: there is nothing left to abort"
    if action == "rescore":
        return _rescore_obstacle(group)
    if action == "refill":
        return _refill_obstacle(group) or _no_fresh_episodes(group, state)
    if action in ("rerun", "curl"):
        return None if group.request_id else "Its request is no longer stored"
    if action == "diff" and len(answered(group)) < 2:
        return "There are fewer than two answers to compare"
    if action == "copy" and not any(one.text or one.tool_calls for one in group.candidates):
        return "There is no answer to copy yet"
    return None


def _vote_obstacle(action: str, group: Group) -> str | None:
    if why := vote_refusal(group):
        return why
    if not answered(group):
        return "There is no answer to rate"
    if action == "accept" and group.rating is None and group.abstained:
        return "There is no automatic reward to accept; rate it by hand"
    return None


def _rescore_obstacle(group: Group) -> str | None:
    if group.episode_type == "eval":
        return "This request is not trained on; it is not scored again"
    if not group.rateable:
        return "Already finished: its rewards are fixed"
    if group.phase not in ("SCORING", "AWAITING_RATING"):
        return "Its candidates are not complete yet"
    return None


def _refill_obstacle(group: Group) -> str | None:
    if group.episode_type == "eval":
        return "This request is not trained on; it needs no more candidates"
    if not group.rateable:
        return "It is closed: it cannot be refilled; A sends it again as a new group"
    if group.phase != "AWAITING_RATING":
        return "Only a group that waits for you can be refilled"
    if len(answered(group)) >= group.n:
        return f"It is complete: all {group.n} candidates answered"
    if any(one.phase == "claimed" for one in group.candidates):
        return "New candidates are already requested"
    is_rated = group.rating is not None or group.votes
    return "It is rated: undo it with u, then refill it with R" if is_rated else None


def _no_fresh_episodes(group: Group, state: State) -> str | None:
    server = state.servers.get(group.server)
    if server is None or server.state == EngineState.ROLLING:
        return None
    return f"{one_line(server.name, 24)} is {server.state}: it gives no fresh episodes"


def _undo_obstacle(group: Group, now: float) -> str | None:
    if why := vote_refusal(group):
        return why
    if group.rating is None and not group.votes:
        return "There is no vote to undo"
    return None if undo_left(group, now) else "It is being sent: too late to undo it"
