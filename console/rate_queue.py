"""Which group is rated now, what was typed for it, and which votes are on their way."""

from dataclasses import dataclass

from console.ballot import Ballot, Vote
from core.state import Group, State

ON_ITS_WAY = 5.0
"""Seconds after which a vote that has not arrived is asked for again."""
LOOK_FIRST = 0.7
"""Seconds in which no vote is taken after the group on screen has changed by itself."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A vote that was given."""

    group_id: str
    words: str
    at: float


class RateQueue:
    """The groups that wait for the operator, shortest clock first.

    Attributes:
        current: Id of the group on screen; it stays there until it is rated or closed.
        last: The newest vote, for undo.
        news: What the last key did that was no vote; stands where the last vote does.
    """

    def __init__(self) -> None:
        self.current: str | None = None
        self.last: Sent | None = None
        self.news = ""
        self._ballots: dict[str, Ballot] = {}
        self._sent: dict[str, Sent] = {}
        self._surprised_at = float("-inf")
        self._wanted: str | None = None

    @property
    def ballot(self) -> Ballot | None:
        """The rating in progress of the current group."""
        return self._ballots.get(self.current) if self.current is not None else None

    def waiting(self, state: State, now: float) -> list[Group]:
        """Groups without a vote, shortest clock first."""
        return [
            group
            for group in state.waiting()
            if group.rateable and group.rating is None and not self._travels(group.group_id, now)
        ]

    def _travels(self, group_id: str, now: float) -> bool:
        sent = self._sent.get(group_id)
        return sent is not None and now - sent.at < ON_ITS_WAY

    def keep(self, waiting: list[Group], state: State, now: float) -> bool:
        """Move on when the current group waits no more; returns whether the group is another."""
        for gone in [key for key in self._ballots if key not in state.groups]:
            del self._ballots[gone]
        for gone in [key for key in self._sent if key not in state.groups]:
            del self._sent[gone]
        by_id = {group.group_id: group for group in waiting}
        if self._wanted in by_id:
            self.go(by_id[self._wanted])
            self._wanted = None
            return True
        if self.current in by_id:
            self._ballots.setdefault(by_id[self.current].group_id, Ballot(by_id[self.current]))
            return False
        if self.current is not None and self.current not in self._sent:
            self._surprised_at = now
        before = self.current
        self.go(waiting[0] if waiting else None)
        return before != self.current

    def go(self, group: Group | None) -> None:
        """Put a group on screen; what was typed for it is still there."""
        self.current = group.group_id if group is not None else None
        if group is not None:
            known = self._ballots.get(group.group_id)
            if known is None or known.empty:
                self._ballots[group.group_id] = Ballot(group)

    def surprised(self, now: float) -> bool:
        """Whether another group has just taken the place of one whose clock ran out.

        A key that was meant for the one before must not rate this one.
        """
        return now - self._surprised_at < LOOK_FIRST

    def sent(self, group_id: str, vote: Vote, now: float) -> None:
        """A vote is on its way."""
        self.news = ""
        self.last = self._sent[group_id] = Sent(group_id, words(vote), now)

    def arrived(self, group_id: str, done: bool) -> None:
        """The proxy has taken the vote, or refused it: then the group waits again."""
        if not done:
            self._sent.pop(group_id, None)
            if self.last is not None and self.last.group_id == group_id:
                self.last = None
        self._ballots.pop(group_id, None)

    def take_back(self, group: Group) -> None:
        """The vote on `group` is undone; it comes on screen as soon as it waits again."""
        self.last = None
        self._wanted = group.group_id
        self._sent.pop(group.group_id, None)
        self._ballots[group.group_id] = Ballot(group)


def words(vote: Vote) -> str:
    """`best #2`, `ranking #2 1 4 3`, `all bad`."""
    name = "all bad" if vote.rating == "bad" else vote.rating
    return f"{name} #{' '.join(str(index + 1) for index in vote.order)}" if vote.order else name
