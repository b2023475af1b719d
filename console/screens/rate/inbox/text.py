"""The inbox as lines: title, table, and what a late vote does."""

import time

from ajet_swarm.common.text import one_line
from console.screens.rate.inbox.model import InboxView
from console.session.group_facts import vote_choice
from console.text.format import figure
from console.text.lines import Line, fit, line_width
from console.ui.table import Column, Table
from core.state import Group
from core.state.inbox import InboxItem

_FORMS = (
    "Late vote: the group was {}. It counts for agreement, share of wins and export, and is never "
    "sent.  A asks the prompt again: that vote trains",
    "Late vote: the group was {}. It counts for agreement and export, and is never sent. "
    "A asks again",
    "Late vote ({}): recorded, never sent. A asks again",
    "Late vote: recorded, never sent. A asks again",
)


def title_line(view: InboxView, width: int) -> Line:
    """Return `Inbox  12 to rate  3 rated late  newest first  filter: paris`."""
    inbox, items = view.session.state.inbox, view.items()
    waiting = sum(view.needs_vote(item) for item in items)
    rest = f"  {len(items) - waiting} rated   {view.order} first"
    if view.filter:
        rest += f"   {len(items)} of {len(inbox)}: {one_line(view.filter.text, 60)}"
    head = f" {waiting} to rate "
    return (
        (" Inbox ", "bold $heading"),
        (head, "bold $winner" if waiting else "$muted"),
        (fit(rest, max(0, width - len(head) - 7)), "$muted"),
    )


def header_line(view: InboxView, group: Group | None, width: int) -> Line:
    """Return the line above the question: what a vote on the group does now.

    Args:
        view: The list.
        group: The group on screen; None for none.
        width: Cells.
    """
    waiting = sum(view.needs_vote(item) for item in view.items())
    head = (" Inbox ", "bold $heading"), (f" {waiting} to rate ", "bold $winner")
    if group is None:
        return head
    fate = "sent unrated" if group.phase == "DONE" else "aborted"
    room = max(0, width - line_width(head))
    forms = [f" {form.format(fate)}" for form in _FORMS]
    text = next((form for form in forms if len(form) <= room), forms[-1])
    return (*head, (fit(text, room), "bold $warning"))


def empty_lines(view: InboxView, reading: bool) -> tuple[str, ...]:
    """Return the text shown while there is no group."""
    if reading:
        return ("The answers are being read from the journal.",)
    if view.filter and view.session.state.inbox:
        return ("No group of the inbox matches the filter.", "Esc clears it.")
    return (
        "The inbox has no group without your vote.",
        "Groups that are sent or end before their vote appear here, the newest 500.",
    )


def _state(item: InboxItem) -> tuple[str, str]:
    if item.complete:
        return "✓", "$reward-up"
    return (f"{len(item.votes)}/{item.overlap}", "$winner") if item.votes else ("·", "$muted")


def _choice(view: InboxView, item: InboxItem) -> str:
    own = item.vote_of(view.session.rater, view.session.holder)
    vote = own or next(iter(item.votes), None)
    return vote_choice(view.group_of(item), vote) if vote is not None else ""


def table(view: InboxView) -> Table[InboxItem]:
    """Return the columns of the list."""
    return Table(
        [
            Column("", 3, _state),
            Column("ended", 5, lambda item: time.strftime("%H:%M", time.localtime(item.closed_at))),
            Column("was", 8, lambda item: "sent" if item.sent else "aborted", "$muted", rank=3),
            Column("split", 5, lambda item: figure(item.opposition), rank=2, right=True),
            Column("vote", 7, lambda item: _choice(view, item), "$reward-up", rank=1),
            Column("question", 16, lambda item: one_line(item.query, 200), most=1_000),
        ],
        start=" ",
    )
