"""The inbox: groups that ended before anybody rated them, and the late votes on them.

A group enters when it ends without a vote although it waited for one. A late vote counts for the
figures of its rater and for exports; the rewards that were sent stay as they are. The votes are the
same events as those on an open group of several raters: `VoteCast`, then `GroupRated` when they are
complete. Answers and conversation stay in the journal (`core.journal.prune`); an item is small.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from core import events
from core.events.causes import AbortedByHand
from core.scoring.agreement import only_top, opposition, top
from core.state.common import record_of
from core.state.rating import Rating, count_votes, forget_time, note_time, part_values
from core.state.server import count_late_score

if TYPE_CHECKING:
    from core.state import Group, State

INBOX_CAP = 500
QUERY_CAP = 120
"""Maximum characters of a question."""
PARTS = 12
"""Maximum number of reward parts that late votes are compared with."""
_WAITED = frozenset({"answer_first", "hold", "abstained"})
"""Reasons of a wait for a vote; in a window of mode off nothing waits."""


class InboxItem(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """One group of the inbox."""

    group_id: str
    server: str
    query: str
    """Beginning of the question."""
    n: int
    opened_at: float
    closed_at: float
    sent: bool = False
    """Its automatic rewards were sent; otherwise nothing was."""
    step: int | None = None
    engine_run: int = 0
    answered: tuple[int, ...] = ()
    """Indices of the candidates with an answer."""
    rewards: tuple[float | None, ...] = ()
    """Automatic reward of each candidate."""
    parts: dict[str, int] = msgspec.field(default_factory=dict)
    """Reward part -> the candidate that it puts first; parts without a single best are left out."""
    opposition: float = 0.0
    """Disagreement of the reward parts, see `core.scoring.agreement.opposition`."""
    overlap: int = 1
    votes: list[Rating] = msgspec.field(default_factory=list)
    """The newest vote of each rater, oldest first, without notes and tags."""
    cast: int = 0
    """Number of votes, replaced and withdrawn ones included."""

    @property
    def complete(self) -> bool:
        """Whether it has the votes of as many raters as an open group needs."""
        return len(self.votes) >= self.overlap

    def vote_of(self, rater: str, holder: str) -> Rating | None:
        """Return the vote of a rater, as `Group.vote_of`."""
        return next((vote for vote in self.votes if vote.by(rater, holder)), None)

    def vote_to_undo(self, rater: str, holder: str) -> Rating | None:
        """Return the vote of a rater; for a caller without name and console the only one."""
        if not (rater or holder) and len(self.votes) == 1:
            return self.votes[0]
        return self.vote_of(rater, holder)


def enter_inbox(state: "State", group: "Group", event: events.GroupClosed) -> None:
    """Add a group that ended unrated although it waited for a vote.

    Beyond the limit the oldest item with all its votes goes, otherwise the oldest one.
    """
    waited = group.awaiting in _WAITED and event.cause_kind != AbortedByHand.kind
    unrated = group.unrated or (waited and not group.source and event.phase != "DONE")
    if not unrated or group.rating is not None or group.votes or not group.answered:
        return
    values = part_values(state, group)
    best = {name: only_top(rewards) for name, rewards in list(values.items())[:PARTS]}
    state.inbox[group.group_id] = record_of(
        InboxItem,
        group,
        query=group.query[:QUERY_CAP],
        closed_at=event.at,
        sent=event.phase == "DONE",
        answered=tuple(group.answered),
        rewards=tuple([candidate.auto_reward for candidate in group.candidates]),
        parts={name: index for name, index in best.items() if index is not None},
        opposition=opposition(list(values.values())),
        votes=[],
    )
    if len(state.inbox) > INBOX_CAP:
        done = (name for name, item in state.inbox.items() if item.complete)
        del state.inbox[next(done, next(iter(state.inbox)))]


def note_late(state: "State", event: events.GroupEvent) -> None:
    """Apply an event to the group's item in the inbox, if it has one."""
    item = state.inbox.get(event.group_id)
    change = _HANDLERS.get(type(event))
    if item is not None and change is not None:
        _count(state, item, -1)
        change(state, item, event)
        _count(state, item, 1)


def _voted(state: "State", item: InboxItem, event: events.VoteCast) -> None:
    earlier = item.vote_of(event.rater, event.holder)
    if earlier is None:
        note_time(state, event.rater, event.at)
    others = [vote for vote in item.votes if vote is not earlier]
    item.votes = [*others, record_of(Rating, event, note="", tags=())]
    item.cast += 1


def _withdrawn(state: "State", item: InboxItem, event: events.VoteWithdrawn) -> None:
    if (vote := item.vote_of(event.rater, event.holder)) is not None:
        forget_time(state, event.rater)
        item.votes = [other for other in item.votes if other is not vote]


def _count(state: "State", item: InboxItem, sign: int) -> None:
    """Count the votes of a complete item for their raters and on the curve, or take them back.

    Args:
        state: The state.
        item: The item.
        sign: 1 counts them, -1 takes them back.
    """
    votes = [
        (vote, dict(zip(item.answered, vote.rewards, strict=True)))
        for vote in item.votes
        if len(vote.rewards) == len(item.answered)
    ]
    if not item.complete or not votes:
        return
    automatic = {index: value for index, value in enumerate(item.rewards) if value is not None}
    count_votes(state, votes, only_top(automatic), item.parts, sign)
    winners = top(automatic)
    server = state.servers.get(item.server)
    if winners and server is not None and item.step is not None:
        scores = [given[index] for _, given in votes for index in winners if index in given]
        if scores:
            count_late_score(server, item.step, item.engine_run, sum(scores) / len(scores), sign)


_HANDLERS: Mapping[type[events.GroupEvent], Callable[["State", InboxItem, Any], None]] = {
    events.VoteCast: _voted,
    events.VoteWithdrawn: _withdrawn,
}
