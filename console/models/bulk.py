"""Actions on all marked groups at once, and their cost."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ajet_swarm.common.text import plural
from console.models.group_text import copy_text, whole_texts
from console.session.app_state import Session
from console.session.command_plans import obstacle
from core.commands.plan_groups import abort_consequences, missing_votes
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

    def fits(self, groups: Sequence[Group], session: Session) -> list[Group]:
        """Return the groups that it applies to."""
        return [group for group in groups if obstacle(self.action, group, session) is None]


def abort_cost(state: State, groups: Sequence[Group]) -> str:
    """Return the cost of aborting several groups."""
    return "\n".join(abort_consequences(state, groups))


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
    count = sum(group.n - len(group.answered) for group in groups)
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
    indices = group.answered
    index = group.best if group.best is not None else (indices[0] if indices else 0)
    whole = whole_texts(events)[1].get(index)
    return copy_text(group, index, (whole.text or whole.tool_calls) if whole is not None else "")
