"""The rating queue: current group, ballot, votes in transit, second votes."""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ajet_swarm.common.text import one_line
from console.models.ballot import Ballot, Vote
from console.models.rating.progress import RatingProgress
from core.state import Group, Rating, State

CONFIRM_SECONDS = 5.0
"""Seconds for which a vote counts without confirmation; then its group waits again."""
MESSAGE_SECONDS = 8.0
"""Seconds for which the last line shows a message."""
SETTLE_SECONDS = 0.7
"""Seconds in which votes are ignored after the group on screen was replaced."""
DIGIT_SECONDS = 5.0
"""Seconds after the last group left the screen in which digits do not switch screens."""
REPEAT_MARGIN = 60.0
"""A second vote is requested only if the shortest clock has more seconds left."""
WITHDRAW_MARGIN = 20.0
"""With fewer seconds left the second vote is withdrawn."""
VOTES_BETWEEN = 5
"""Votes of the rater between his first and second vote on a group."""
_FINAL_PHASES = frozenset({"ended", "recorded"})


@dataclass(frozen=True, slots=True)
class SentVote:
    """A vote that was sent."""

    group_id: str
    words: str
    at: float
    shown: tuple[int, ...] = ()
    """Candidate index at each place: the digits its rater typed."""


UNSURE = 0.1
"""Largest difference of the two highest automatic rewards of an unsure group."""


class RateQueue:
    """The groups that wait for the operator: waiting users first, then the shortest clock.

    Attributes:
        current: Id of the group on screen; it stays there until it is rated or closed.
        next_id: Id of the group to show as soon as it waits for a vote from here.
        second: Whether the group on screen was sent before and waits for a second vote.
        last: The newest vote, for undo.
        message: Result of the last key that was not a vote; shown in the line of the last vote
            until the next key of a ballot, or for a few seconds.
        hint: Whether `message` concerns the group on screen only.
        holder: Name of this console in leases.
        rater: Name of the rater; his votes are checked by second ones.
        share: Share of his votes that get a second one, 0 to 1.
        only_unsure: Hide groups with a clear automatic winner.
        bounds: The rewards that the lowest and the highest score stand for.
        progress: Votes of this session, with their pace.
    """

    def __init__(self) -> None:
        self.current: str | None = None
        self.second = False
        self.last: SentVote | None = None
        self.message = ""
        self.hint = False
        self._message_at: float | None = None
        self.holder = ""
        self.rater = ""
        self.share = 0.0
        self.only_unsure = False
        self.bounds = (0.0, 1.0)
        self.progress = RatingProgress()
        self._ballots: dict[str, Ballot] = {}
        self._sent: dict[str, SentVote] = {}
        self._repeated: set[str] = set()
        self._replaced_at = float("-inf")
        self._emptied_at = float("-inf")
        self.next_id: str | None = None

    @property
    def ballot(self) -> Ballot | None:
        """The ballot of the current group."""
        return self._ballots.get(self.current) if self.current is not None else None

    def waiting(self, state: State, now: float) -> list[Group]:
        """Return groups without a vote or another console's lease, in the order of `State.waiting`.

        With `only_unsure`, groups without an automatic reward come first.
        """
        groups = [group for group in self.open(state, now) if self._free(group, now)]
        if not self.only_unsure:
            return groups
        unsure = [group for group in groups if is_unsure(group)]
        return sorted(unsure, key=lambda group: not group.abstained)

    def open(self, state: State, now: float) -> list[Group]:
        """Return all groups without a vote, in the order of `State.waiting`."""
        return [
            group
            for group in state.waiting()
            if group.rateable
            and group.needs_vote_of(self.rater, self.holder)
            and not self._in_transit(group.group_id, now)
        ]

    def leased_by_others(self, state: State, now: float) -> list[Group]:
        """Return groups that another console has leased."""
        return [group for group in self.open(state, now) if not self._free(group, now)]

    def held(self, state: State, now: float) -> list[Group]:
        """Return groups whose vote is this rater's and can still be undone, newest vote first."""
        votes = [
            (vote.at, group)
            for group in state.waiting()
            if (vote := self._own_vote(group)) is not None
            and (group.until is None or now < group.until)
        ]
        return [group for _, group in sorted(votes, key=lambda one: one[0], reverse=True)]

    def _own_vote(self, group: Group) -> Rating | None:
        """Return the vote of this rater or console on a group; None if there is none."""
        if group.overlap > 1:
            return group.vote_of(self.rater, self.holder)
        rating = group.rating
        is_own = rating is not None and rating.rater == self.rater
        return rating if is_own or group.group_id in self._sent else None

    def vote_of(self, group_id: str) -> SentVote | None:
        """Return the vote that this console sent for a group; None when it sent none."""
        return self._sent.get(group_id)

    def _free(self, group: Group, now: float) -> bool:
        return group.is_free(self.holder, now)

    def _in_transit(self, group_id: str, now: float) -> bool:
        sent = self._sent.get(group_id)
        return sent is not None and now - sent.at < CONFIRM_SECONDS

    def update(self, waiting: list[Group], state: State, now: float) -> bool:
        """Show the next group when the current one is done; return whether it has changed."""
        for gone in [key for key in self._ballots if key not in state.groups]:
            del self._ballots[gone]
        for gone in [key for key in self._sent if key not in state.groups]:
            del self._sent[gone]
        by_id = {group.group_id: group for group in waiting}
        if self.second and self.next_id not in by_id:
            if self.current in state.groups and not _is_urgent(waiting, now):
                return False
            self._replaced_at = now
        if self.next_id in by_id:
            self.show(by_id[self.next_id], now)
            self.next_id = None
            return True
        if self.current in by_id:
            if self.current not in self._ballots:
                self.show(by_id[self.current], now)
            return False
        before = self.current
        self._advance(waiting, state, now)
        return before != self.current

    def _advance(self, waiting: list[Group], state: State, now: float) -> None:
        """Show the next group, or one for a second vote."""
        rated = self.current in self._sent
        if taken := self._taken_by(state, now):
            self.set_message(f"{taken} is rating the group that was here")
        elif (gone := state.groups.get(self.current or "")) is not None and gone.unrated:
            self.set_message("The group that was here was sent unrated")
        if self.current is not None and not rated and not self.second:
            self._replaced_at = now
        back = None
        if (rated or not waiting) and not _is_urgent(waiting, now, REPEAT_MARGIN):
            back = due_repeat(state, self.rater, self.share, self._repeated)
        if back is not None:
            self._repeated.add(back.group_id)
            self.show(back, now, second=True)
        else:
            self.show(waiting[0] if waiting else None, now)

    def _taken_by(self, state: State, now: float) -> str:
        """Return who else has leased the group on screen; "" for no one."""
        group = state.groups.get(self.current or "")
        if group is None or not group.rateable:
            return ""
        if not group.needs_vote_of(self.rater, self.holder):
            return ""
        return "" if self._free(group, now) else lease_name(group)

    def show(self, group: Group | None, now: float = 0.0, second: bool = False) -> None:
        """Put a group on screen; keep its unsent ballot."""
        before, self.current = self.current, group.group_id if group is not None else None
        if before is not None and group is None:
            self._emptied_at = now
        if before != self.current and self.hint:
            self.set_message("")
        self.second = second
        if group is not None:
            known = self._ballots.get(group.group_id)
            if known is None or known.empty or known.second != second:
                self._ballots[group.group_id] = Ballot(
                    group,
                    second=second,
                    bounds=self.bounds,
                    now=now,
                    rater=self.rater or self.holder,
                )

    def just_replaced(self, now: float) -> bool:
        """Return whether this group has just replaced one whose clock ran out.

        A key meant for the previous group must not rate this one.
        """
        return now - self._replaced_at < SETTLE_SECONDS

    def just_emptied(self, now: float) -> bool:
        """Return whether a group was on screen a moment ago, so that a digit may be a late vote."""
        return now - self._emptied_at < DIGIT_SECONDS

    def set_message(self, message: str, hint: bool = False) -> None:
        """Set the message of the last line; a hint belongs to the group on screen."""
        self.message, self.hint, self._message_at = message, hint, None

    def current_message(self, now: float) -> str:
        """Return the message until it expires; its time starts with the first call."""
        if self._message_at is None:
            self._message_at = now
        elif now - self._message_at > MESSAGE_SECONDS:
            self.set_message("")
        return self.message

    def record_sent(self, ballot: Ballot, vote: Vote, now: float) -> None:
        """Record a vote that is being sent; a second vote cannot be undone."""
        self.set_message("")
        group_id = ballot.group_id
        text = vote_text(vote.rating, vote.order, ballot.shown)
        self._sent[group_id] = SentVote(group_id, text, now, ballot.shown)
        if not ballot.second:
            self.last = self._sent[group_id]
            if vote.rating == "skip":
                self.progress.skipped(group_id)
            else:
                self.progress.voted(group_id, now)
        elif self.current == group_id:
            self.second = False

    def confirm(self, group_id: str, done: bool) -> None:
        """Record whether the proxy accepted the vote; after a refusal the group waits again."""
        ballot = self._ballots.get(group_id)
        if not done:
            if ballot is None or not ballot.second:  # a second vote is requested only once
                self._sent.pop(group_id, None)
                self.progress.undone(group_id)
            if self.last is not None and self.last.group_id == group_id:
                self.last = None
        self._ballots.pop(group_id, None)

    def show_when_waiting(self, group_id: str) -> None:
        """Put a group on screen as soon as it waits for a vote from here."""
        self.next_id = group_id

    def undo(self, group: Group) -> None:
        """Undo the vote on `group`; show the group as soon as it waits again."""
        if self.last is not None and self.last.group_id == group.group_id:
            self.last = None
        self.next_id = group.group_id
        self._sent.pop(group.group_id, None)
        self.progress.undone(group.group_id)
        rater = self.rater or self.holder
        self._ballots[group.group_id] = Ballot(group, bounds=self.bounds, rater=rater)


def lease_name(group: Group) -> str:
    """Return who has leased a group, in words."""
    lease = group.lease
    return one_line(lease.rater, 16) if lease is not None and lease.rater else "another console"


def _is_urgent(waiting: list[Group], now: float, room: float = WITHDRAW_MARGIN) -> bool:
    """Return whether a waiting group has less than `room` seconds left."""
    return any(group.until is not None and group.until - now < room for group in waiting)


def vote_text(rating: str, order: Sequence[int], shown: Sequence[int]) -> str:
    """Return `best 2`, `ranking 2 1 4 3`, `all bad`; with the digits that the rater saw."""
    name = "all bad" if rating == "bad" else rating
    if rating not in ("best", "ranking") or not order:
        return name
    return f"{name} {' '.join(digit(index, shown) for index in order)}"


def digit(index: int, shown: Sequence[int]) -> str:
    """Return the digit of a candidate; its own number, as `#4`, when it had none."""
    return str(shown.index(index) + 1) if index in shown else f"#{index + 1}"


def is_unsure(group: Group) -> bool:
    """Return whether there is no automatic reward, or the two highest are close together."""
    rewards = sorted(one.auto_reward for one in group.candidates if one.auto_reward is not None)
    return bool(group.abstained) or len(rewards) < 2 or rewards[-1] - rewards[-2] <= UNSURE + 1e-9


def is_picked(group_id: str, share: float) -> bool:
    """Return whether a group belongs to the share with a second vote, by a hash of its id."""
    digest = hashlib.sha256(f"{group_id}:second".encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:4], "big") < share * 2**32


def due_repeat(
    state: State, rater: str, share: float, excluded: Collection[str] = ()
) -> Group | None:
    """Return the oldest group, not in `excluded`, that is due for a second vote."""
    if share <= 0:
        return None
    mine = [
        group
        for group in state.groups.values()
        if group.rating is not None and group.rating.rater == rater and group.source == "human"
    ]
    mine.sort(key=lambda group: group.rating.at if group.rating is not None else 0.0)
    able = (one for one in mine[:-VOTES_BETWEEN] if one.group_id not in excluded)
    return next((group for group in able if _should_repeat(group, share)), None)


def _should_repeat(group: Group, share: float) -> bool:
    rating = group.rating
    if rating is None or not rating.blind or group.repeated or not is_picked(group.group_id, share):
        return False
    rewarded = [one for one in group.candidates if one.reward is not None]
    return len(rewarded) > 1 and all(one.phase in _FINAL_PHASES for one in rewarded)
