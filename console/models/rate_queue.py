"""The rating queue: the current group, its ballot, the votes in transit."""

from collections.abc import Sequence
from dataclasses import dataclass

from ajet_swarm.common.text import one_line
from console.models.ballot import Ballot, Vote
from console.models.rate_pick import due, is_unsure
from console.models.rate_progress import RatingProgress
from core.state import Group, State

ON_ITS_WAY = 5.0
"""Seconds after which a vote that has not arrived is requested again."""
NEWS_STAYS = 8.0
"""Seconds for which the last line shows a message."""
LOOK_FIRST = 0.7
"""Seconds without votes after the group on screen has changed by itself."""
STILL_VOTES = 5.0
"""Seconds after the last group has left the screen in which digits do not switch screens."""
ROOM = 60.0
"""Seconds the shortest clock must have left for a second vote to be requested."""
HURRIED = 20.0
"""With fewer the second vote is withdrawn."""


@dataclass(frozen=True, slots=True)
class SentVote:
    """A vote that was sent."""

    group_id: str
    words: str
    at: float
    shown: tuple[int, ...] = ()
    """Candidate index at each place: the digits its rater typed."""


class RateQueue:
    """The groups that wait for the operator: waiting users first, then the shortest clock.

    Attributes:
        current: Id of the group on screen; it stays there until it is rated or closed.
        wanted: Id of the group that comes on screen as soon as it waits for a vote from here.
        second: The group on screen was rated and sent before: it is there for a second vote.
        last: The newest vote, for undo.
        news: What the last key did that was no vote; stands where the last vote does until the
            next key of a ballot, or a few seconds.
        hint: Whether it is about the group on screen, and goes with it.
        holder: Names this console in leases.
        rater: Whose votes come back for a second one.
        share: How many of them.
        only_unsure: Leave out the groups on which the automatic rewards are sure.
        margin: How far apart their two highest are, at most, on a group that is unsure.
        bounds: The rewards that the lowest and the highest score stand for.
        progress: Votes of this session, with their pace and the goal.
    """

    def __init__(self) -> None:
        self.current: str | None = None
        self.second = False
        self.last: SentVote | None = None
        self.news = ""
        self.hint = False
        self._news_at: float | None = None
        self.holder = ""
        self.rater = ""
        self.share = 0.0
        self.only_unsure = False
        self.margin = 0.0
        self.bounds = (0.0, 1.0)
        self.progress = RatingProgress()
        self._ballots: dict[str, Ballot] = {}
        self._sent: dict[str, SentVote] = {}
        self._came_back: set[str] = set()
        self._surprised_at = float("-inf")
        self._emptied_at = float("-inf")
        self.wanted: str | None = None

    @property
    def ballot(self) -> Ballot | None:
        """The ballot of the current group."""
        return self._ballots.get(self.current) if self.current is not None else None

    def waiting(self, state: State, now: float) -> list[Group]:
        """Return groups without a vote that no one else rates, in the order of `State.waiting`.

        Of the unsure ones alone, those without an automatic reward lead.
        """
        groups = [group for group in self.open(state, now) if self._free(group, now)]
        if not self.only_unsure:
            return groups
        unsure = [group for group in groups if is_unsure(group, self.margin)]
        return sorted(unsure, key=lambda group: not group.abstained)

    def open(self, state: State, now: float) -> list[Group]:
        """Return all groups without a vote, in the order of `State.waiting`."""
        return [
            group
            for group in state.waiting()
            if group.rateable and group.rating is None and not self._travels(group.group_id, now)
        ]

    def with_others(self, state: State, now: float) -> list[Group]:
        """Return groups that another console has leased."""
        return [group for group in self.open(state, now) if not self._free(group, now)]

    def held(self, state: State, now: float) -> list[Group]:
        """Return groups whose vote is this rater's and can still be undone, newest vote first."""
        votes = [
            (group.rating.at, group)
            for group in state.waiting()
            if group.rating is not None
            and (group.rating.rater == self.rater or group.group_id in self._sent)
            and (group.until is None or now < group.until)
        ]
        return [group for _, group in sorted(votes, key=lambda one: one[0], reverse=True)]

    def vote_of(self, group_id: str) -> SentVote | None:
        """Return the vote that this console sent for a group; None when it sent none."""
        return self._sent.get(group_id)

    def _free(self, group: Group, now: float) -> bool:
        return group.lease is None or not group.lease.of_another(self.holder, now)

    def _travels(self, group_id: str, now: float) -> bool:
        sent = self._sent.get(group_id)
        return sent is not None and now - sent.at < ON_ITS_WAY

    def keep(self, waiting: list[Group], state: State, now: float) -> bool:
        """Move on when the current group is done; return whether the current group has changed."""
        for gone in [key for key in self._ballots if key not in state.groups]:
            del self._ballots[gone]
        for gone in [key for key in self._sent if key not in state.groups]:
            del self._sent[gone]
        by_id = {group.group_id: group for group in waiting}
        if self.second and self.wanted not in by_id:
            if self.current in state.groups and not _hurried(waiting, now):
                return False
            self._surprised_at = now
        if self.wanted in by_id:
            self.go(by_id[self.wanted], now)
            self.wanted = None
            return True
        if self.current in by_id:
            if self.current not in self._ballots:
                self.go(by_id[self.current], now)
            return False
        before = self.current
        self._move_on(waiting, state, now)
        return before != self.current

    def _move_on(self, waiting: list[Group], state: State, now: float) -> None:
        """Show the next group, or one that comes back."""
        rated = self.current in self._sent
        if taken := self._taken_by(state, now):
            self.tell(f"{taken} is rating the group that was here")
        if self.current is not None and not rated and not self.second:
            self._surprised_at = now
        back = None
        if (rated or not waiting) and not _hurried(waiting, now, ROOM):
            back = due(state, self.rater, self.share, self._came_back)
        if back is not None:
            self._came_back.add(back.group_id)
            self.go(back, now, second=True)
        else:
            self.go(waiting[0] if waiting else None, now)

    def _taken_by(self, state: State, now: float) -> str:
        """Return who has leased the group on screen; empty when no one else has."""
        group = state.groups.get(self.current or "")
        if group is None or not group.rateable or group.rating is not None:
            return ""
        return "" if self._free(group, now) else lease_name(group)

    def go(self, group: Group | None, now: float = 0.0, second: bool = False) -> None:
        """Put a group on screen; its unsent ballot is kept."""
        before, self.current = self.current, group.group_id if group is not None else None
        if before is not None and group is None:
            self._emptied_at = now
        if before != self.current and self.hint:
            self.tell("")
        self.second = second
        if group is not None:
            known = self._ballots.get(group.group_id)
            if known is None or known.empty or known.second != second:
                self._ballots[group.group_id] = Ballot(
                    group, second=second, bounds=self.bounds, now=now
                )

    def surprised(self, now: float) -> bool:
        """Return whether another group has just replaced one whose clock ran out.

        A key that was meant for the one before must not rate this one.
        """
        return now - self._surprised_at < LOOK_FIRST

    def just_emptied(self, now: float) -> bool:
        """Return whether a group was on screen a moment ago: a digit may be meant as a vote."""
        return now - self._emptied_at < STILL_VOTES

    def tell(self, news: str, hint: bool = False) -> None:
        """Set the message of the last line; a hint belongs to the group on screen."""
        self.news, self.hint, self._news_at = news, hint, None

    def fresh_news(self, now: float) -> str:
        """Return the message; its seconds start with the first call."""
        if self._news_at is None:
            self._news_at = now
        elif now - self._news_at > NEWS_STAYS:
            self.tell("")
        return self.news

    def sent(self, ballot: Ballot, vote: Vote, now: float) -> None:
        """Record a vote that is being sent; a second vote cannot be undone."""
        self.tell("")
        group_id = ballot.group_id
        text = words(vote.rating, vote.order, ballot.shown)
        self._sent[group_id] = SentVote(group_id, text, now, ballot.shown)
        if not ballot.second:
            self.last = self._sent[group_id]
            self.progress.voted(group_id, now)
        elif self.current == group_id:
            self.second = False

    def arrived(self, group_id: str, done: bool) -> None:
        """Record whether the proxy accepted the vote; after a refusal the group waits again."""
        ballot = self._ballots.get(group_id)
        if not done:
            if ballot is None or not ballot.second:  # a second vote is not asked for twice
                self._sent.pop(group_id, None)
                self.progress.undone(group_id)
            if self.last is not None and self.last.group_id == group_id:
                self.last = None
        self._ballots.pop(group_id, None)

    def bring(self, group_id: str) -> None:
        """Put a group on screen as soon as it waits for a vote from here."""
        self.wanted = group_id

    def take_back(self, group: Group) -> None:
        """Undo the vote on `group`; it comes on screen as soon as it waits again."""
        if self.last is not None and self.last.group_id == group.group_id:
            self.last = None
        self.wanted = group.group_id
        self._sent.pop(group.group_id, None)
        self.progress.undone(group.group_id)
        self._ballots[group.group_id] = Ballot(group, bounds=self.bounds)


def lease_name(group: Group) -> str:
    """Return who has leased a group, in words."""
    lease = group.lease
    return one_line(lease.rater, 16) if lease is not None and lease.rater else "another console"


def _hurried(waiting: list[Group], now: float, room: float = HURRIED) -> bool:
    """Return whether a clock leaves no time for anything else."""
    return any(group.until is not None and group.until - now < room for group in waiting)


def words(rating: str, order: Sequence[int], shown: Sequence[int]) -> str:
    """Return `best 2`, `ranking 2 1 4 3`, `all bad`; answers by the digits their rater saw."""
    name = "all bad" if rating == "bad" else rating
    if rating not in ("best", "ranking") or not order:
        return name
    return f"{name} {' '.join(digit(index, shown) for index in order)}"


def digit(index: int, shown: Sequence[int]) -> str:
    """Return the digit of a candidate; its own number, as `#4`, when it had none."""
    return str(shown.index(index) + 1) if index in shown else f"#{index + 1}"
