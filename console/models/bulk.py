"""Actions on all marked groups at once, and their cost."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from console.models.group_obstacles import obstacle
from console.models.group_text import copy_text, whole_texts
from console.session.group_facts import answered, missing_votes
from console.text.format import plural
from core.events import Event
from core.state import Group, State


@dataclass(frozen=True, slots=True)
class BulkVerb:
    """An action on several groups."""

    key: str
    action: str
    """Name of the action on one group."""
    title: str
    command: str
    """Name of the command; empty for an action that only reads."""
    args: Mapping[str, Any] = field(default_factory=dict)
    ask: str = ""
    """Name of the text argument to ask for."""
    question: Callable[[State, Sequence[Group]], str] | None = None
    """Returns the loss to confirm; None for an action without a question."""

    def fits(self, groups: Sequence[Group], state: State, now: float) -> list[Group]:
        """Return the groups that it applies to."""
        return [group for group in groups if obstacle(self.action, group, state, now) is None]


def episodes(groups: Sequence[Group]) -> int:
    """Return the number of episodes that these groups hold."""
    return sum(
        1
        for group in groups
        for one in group.candidates
        if one.episode_uuid and one.phase in ("claimed", "answered")
    )


def abort_cost(state: State, groups: Sequence[Group]) -> str:
    """Return the cost of aborting several groups."""
    held = episodes(groups)
    engines = {state.servers[one.server].state for one in groups if one.server in state.servers}
    if engines == {"ROLLING"}:
        fate = "go back to the pool"
    elif "ROLLING_POST" in engines:
        fate = "are deleted where the engine is finishing its step, else they go back to the pool"
    else:
        fate = "are given back"
    count = plural(len(groups), "group")
    lines = [f"{plural(held, 'episode')} of {count}: they {fate}."]
    if not held:
        lines = [f"{count}: no episode is claimed for them now."]
    scored = sum(one.auto_reward is not None for group in groups for one in group.candidates)
    if scored:
        lines.append(f"{plural(scored, 'scored answer')} will not be trained on.")
    if rated := sum(group.is_rated for group in groups):
        lines.append(f"{plural(rated, 'rating')} of yours dropped.")
    waiting = sum(group.returned is None and group.waited is None for group in groups)
    if waiting:
        lines.append(f"{plural(waiting, 'user')} without an answer yet.")
    return "\n".join(lines)


def _accept_cost(state: State, groups: Sequence[Group]) -> str:
    skipped = sum(group.is_skipped for group in groups)
    rated = sum(group.rating is not None or bool(group.votes) for group in groups) - skipped
    lacking = sum(bool(missing_votes(state, group)) for group in groups)
    return (
        f"{plural(len(groups), 'group')} finished now: {rated} with the rating, "
        f"{len(groups) - rated - skipped} with the automatic reward"
        + (f", {skipped} skipped" if skipped else "")
        + ". "
        + (f"Votes are missing on {lacking} of them. " if lacking else "")
        + "This cannot be undone."
    )


def _rescore_cost(state: State, groups: Sequence[Group]) -> str:
    return (
        f"The automatic rewards of {plural(len(groups), 'group')} are computed again with the "
        "current rewards. Ratings stay."
    )


def _refill_cost(state: State, groups: Sequence[Group]) -> str:
    count = sum(group.n - len(answered(group)) for group in groups)
    return f"{plural(count, 'fresh episode')} claimed for {plural(len(groups), 'short group')}."


def _rerun_cost(state: State, groups: Sequence[Group]) -> str:
    count = sum(group.n for group in groups)
    trained = sum(group.episode_type == "train" for group in groups)
    return (
        f"{plural(len(groups), 'request')} sent again: {plural(count, 'episode')} claimed, "
        f"{plural(trained, 'group')} more in training."
    )


def _pin_cost(state: State, groups: Sequence[Group]) -> str:
    return (
        f"{plural(len(groups), 'prompt')} held out of training from now on. The probe set changes, "
        "so a new comparison begins with a new baseline."
    )


BULK = (
    BulkVerb("a", "accept", "Accept", "group.accept", question=_accept_cost),
    BulkVerb("x", "abort", "Abort", "group.abort", question=abort_cost),
    BulkVerb("S", "rescore", "Re-score", "group.rescore", question=_rescore_cost),
    BulkVerb("R", "refill", "Refill", "group.refill", question=_refill_cost),
    BulkVerb("A", "rerun", "Ask again", "group.rerun", question=_rerun_cost),
    BulkVerb("P", "pin", "Add to the probe set", "group.pin", question=_pin_cost),
    BulkVerb("n", "note", "Note", "group.note", ask="note"),
    BulkVerb("c", "copy", "Copy the winners", ""),
    BulkVerb("C", "curl", "Copy as curl", ""),
    BulkVerb("m", "mark", "Clear the marks", "group.mark", {"marked": False}),
)


def verbs(*, read_only: bool) -> tuple[BulkVerb, ...]:
    """Return the available actions; a read-only console only has those that read."""
    return tuple(verb for verb in BULK if not (read_only and verb.command))


def winner_text(group: Group, events: Iterable[Event]) -> str:
    """Return the whole text of a group's winner, or of its first answer; empty without any.

    Args:
        group: The group in state; its texts may be cut.
        events: The events of the group.
    """
    indices = answered(group)
    index = group.best if group.best is not None else (indices[0] if indices else 0)
    whole = whole_texts(events)[1].get(index)
    return copy_text(group, index, (whole.text or whole.tool_calls) if whole is not None else "")
