"""The rating queue: group on screen, ballots, votes in transit, second votes, pace, guidelines."""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line, plain
from console.models.alerts import held_up
from console.screens.rate.ballot import Ballot, Vote
from console.screens.rate.inbox.model import InboxGroups
from console.session.app_state import Session
from console.session.command_plans import obstacle
from console.session.mock_facts import rows_done
from core.state import Group, Rating, State

CONFIRM_SECONDS = 5.0
"""Seconds for which a vote counts without confirmation; then its group waits again."""
MESSAGE_SECONDS = 8.0
"""Seconds for which the last line shows a message."""
SETTLE_SECONDS = 0.7
"""Seconds in which votes are ignored after the group on screen was replaced."""
APPEAR_SECONDS = 0.25
"""Seconds after a group was painted in which a digit that votes at once is ignored."""
IGNORED = "✗ "
"""Mark of a message about a key that was ignored."""
REPEAT_MARGIN = 60.0
"""A second vote is requested only if the shortest clock has more seconds left."""
WITHDRAW_MARGIN = 20.0
"""With fewer seconds left the second vote is withdrawn."""
VOTES_BETWEEN = 5
"""Votes of the rater between his first and second vote on a group."""
UNSURE = 0.1
"""Largest difference of the two highest automatic rewards of an unsure group."""
SENT_CAP = 500
"""Most votes of this console that are remembered."""
NEWEST = 20
"""Votes that the pace is computed from."""
PAUSE = 60.0
"""Seconds that count at most between two votes: a longer gap is a break."""
GUIDELINES_CAP = 200_000
"""Most characters of the guidelines that are shown."""
TAG_CAP = 9
"""Most reasons, one for each digit."""
TAG_LETTERS = "BDEFHJKLMOPQVWYZ"
"""Capitals that are the key of nothing else on Rate: a reason is given by one of its letters."""
_FINAL_PHASES = frozenset({"ended", "recorded"})


@dataclass(frozen=True, slots=True)
class SentVote:
    """A vote that was sent."""

    ballot: Ballot
    vote: Vote
    at: float
    args: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of its command; empty for a second vote."""

    @property
    def words(self) -> str:
        """The vote, with the digits that its rater typed."""
        return vote_text(self.vote.rating, self.vote.order, self.ballot.shown)

    @property
    def best(self) -> int | None:
        """Answer whose correction can be written after it; None for a skip."""
        return self.vote.best(self.ballot.shown)


class Painted:
    """The ballot whose group and order of answers the terminal shows."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.ballot: Ballot | None = None
        self._since = float("-inf")

    def record(self, ballot: Ballot | None) -> None:
        """Record what the terminal shows now."""
        if self.ballot is not ballot:
            self.ballot, self._since = ballot, self._session.now()

    def is_read(self, ballot: Ballot | None) -> bool:
        """Return whether the key that is handled now was pressed when a ballot was on screen long
        enough to be read; if not, the key may be meant for the group before."""
        return ballot is self.ballot and self._session.input_at >= self._since + APPEAR_SECONDS


class RateQueue:
    """The groups that wait for the operator: waiting users first, then the shortest clock.

    Attributes:
        session: State, clock, rater and settings of this console.
        late: The groups of the inbox, if late votes on them are cast; None for the open groups.
        current: Id of the group on screen; it stays there until it is rated or closed.
        next_id: Id of the group to show as soon as it waits for a vote from here.
        second: Whether the group on screen was sent before and waits for a second vote.
        only_unsure: Hide groups with a clear automatic winner.
        guidelines: The guidelines as last read; None without any.
        progress: Votes of this session, with their pace.
        goal: Votes that the rater wants to cast in this session; 0 for no number.
        painted: What the terminal shows.
        sent: The votes that this console sent, by group, oldest first.
    """

    def __init__(self, session: Session, late: InboxGroups | None = None) -> None:
        self.session = session
        self.late = late
        self.current: str | None = None
        self.next_id: str | None = None
        self.second = False
        self.only_unsure = False
        self.guidelines: Guidelines | None = None
        self.progress = RatingProgress()
        self.goal = 0
        self._message = ""
        self._is_hint = False
        self._message_until = 0.0
        self._ballots: dict[str, Ballot] = {}
        self.sent: dict[str, SentVote] = {}
        self._repeated: set[str] = set()
        self.painted = Painted(session)
        self._put_back: dict[str, int] = {}
        """Group -> its place among those that were put back, from 1."""
        self._replaced_at = float("-inf")

    @property
    def group(self) -> Group | None:
        """The group on screen."""
        return self.session.group(self.current) if self.current is not None else None

    @property
    def ballot(self) -> Ballot | None:
        """The unsent rating of the group on screen."""
        return self._ballots.get(self.current) if self.current is not None else None

    @property
    def last(self) -> SentVote | None:
        """The newest vote that was not undone, for undo; a second vote is none."""
        return next((vote for vote in reversed(self.sent.values()) if not vote.ballot.second), None)

    @property
    def last_voted(self) -> Group | None:
        """The group of the newest vote."""
        return self.session.group(self.last.ballot.group_id) if self.last is not None else None

    # --- groups ------------------------------------------------------------------------------

    def waiting(self) -> list[Group]:
        """Return groups without a vote or another console's lease, in the order of `State.waiting`,
        those that were put back last.

        With `only_unsure`, groups without an automatic reward come first.
        """
        groups = [group for group in self.open() if is_free(self.session, group)]
        groups.sort(key=lambda group: self._put_back.get(group.group_id, 0))
        if not self.only_unsure:
            return groups
        unsure = [group for group in groups if is_unsure(group)]
        return sorted(unsure, key=lambda group: not group.abstained)

    def open(self) -> list[Group]:
        """Return all groups without a vote, in the order of `State.waiting`, or of the inbox."""
        late, first = self.late, self.next_id or self.current
        since = self.session.now() - CONFIRM_SECONDS
        return [
            group
            for group in (self.session.state.waiting() if late is None else late.groups(first))
            if self._needs_vote(group)
            and not ((sent := self.sent.get(group.group_id)) is not None and sent.at > since)
        ]

    def leased_by_others(self) -> list[Group]:
        """Return groups that another console has leased."""
        return [group for group in self.open() if not is_free(self.session, group)]

    def held(self) -> list[Group]:
        """Return groups whose vote is this rater's and can still be undone, newest vote first."""
        now, waiting = self.session.now(), self.session.state.waiting()
        return [
            group for _, group in self.voted(waiting) if group.until is None or now < group.until
        ]

    def voted(self, groups: Iterable[Group]) -> list[tuple[Rating, Group]]:
        """Return this rater's votes on some groups, the newest first."""
        votes = [(vote, group) for group in groups if (vote := self._own_vote(group))]
        return sorted(votes, key=lambda cast: cast[0].at, reverse=True)

    def _own_vote(self, group: Group) -> Rating | None:
        """Return the vote of this rater or console on a group; None if there is none."""
        if group.overlap > 1:
            return group.vote_of(self.session.rater, self.session.holder)
        rating = group.rating
        is_own = rating is not None and rating.rater == self.session.rater
        return rating if is_own or group.group_id in self.sent else None

    def _needs_vote(self, group: Group) -> bool:
        session = self.session
        if self.late is not None:
            return True
        return group.rateable and group.needs_vote_of(session.rater, session.holder)

    # --- the group on screen -----------------------------------------------------------------

    def advance(self) -> bool:
        """Show the next group when the current one is done; return whether it has changed."""
        groups, waiting, now = self.session.state.groups, self.waiting(), self.session.now()
        if self.late is None:
            self._ballots = {key: ballot for key, ballot in self._ballots.items() if key in groups}
        elif self.late.is_unread(self.next_id):
            return False
        by_id = {group.group_id: group for group in waiting}
        if self.second and self.next_id not in by_id:
            if self.current in groups and not _is_urgent(waiting, now):
                return False
            self._replaced_at = now
        if self.next_id in by_id:
            self.show(by_id[self.next_id])
            self.next_id = None
            return True
        if self.current in by_id:
            ballot = self.ballot
            if ballot is None or not ballot.fits(by_id[self.current]):
                self.show(by_id[self.current])
            return False
        before = self.current
        self._leave(waiting, now)
        return before != self.current

    def _leave(self, waiting: list[Group], now: float) -> None:
        """Show the next group, or one for a second vote, and say what became of this one."""
        rated = self.current in self.sent
        left = self.session.state.groups.get(self.current or "")
        if left is not None and self._needs_vote(left) and not is_free(self.session, left):
            self.set_message(f"{lease_name(left)} is rating the group that was here")
        elif left is not None and left.unrated and self.late is None:
            self.set_message("The group that was here was sent unrated")
        if self.late is not None:
            self.show(waiting[0] if waiting else None)
            return
        if self.current is not None and not rated and not self.second:
            self._replaced_at = now
        back = None
        if (rated or not waiting) and not _is_urgent(waiting, now, REPEAT_MARGIN):
            share = 0.0 if self.session.read_only else self.session.rating.repeats
            back = due_repeat(self.session.state, self.session.rater, share, self._repeated)
        if back is not None:
            self._repeated.add(back.group_id)
            self.show(back, second=True)
        else:
            self.show(waiting[0] if waiting else None)

    def show(self, group: Group | None, second: bool = False) -> None:
        """Put a group on screen; keep its unsent ballot."""
        before, self.current = self.current, group.group_id if group is not None else None
        if before != self.current and self._is_hint:
            self.set_message("")
        self.second = second
        if group is not None:
            known = self._ballots.get(group.group_id)
            if known is None or known.empty or known.second != second or not known.fits(group):
                self._ballots[group.group_id] = self._new_ballot(group, second)

    def _new_ballot(self, group: Group, second: bool = False) -> Ballot:
        session, rating = self.session, self.session.rating
        return Ballot(
            group,
            second=second,
            late=self.late is not None,
            one_key=rating.confirm == "none",
            bounds=(rating.score_low, rating.score_high),
            now=session.now(),
            rater=session.rater or session.holder,
        )

    @property
    def just_replaced(self) -> bool:
        """Whether the group on screen has just replaced one whose clock ran out.

        A key meant for the previous group must not rate this one.
        """
        return self.session.now() - self._replaced_at < SETTLE_SECONDS

    # --- the last line -----------------------------------------------------------------------

    def set_message(self, message: str, hint: bool = False) -> None:
        """Set the message of the last line; a hint belongs to the group on screen.

        It is shown until the next key of a ballot, or for a few seconds.
        """
        self._message, self._is_hint = message, hint
        self._message_until = self.session.now() + MESSAGE_SECONDS

    @property
    def message(self) -> str:
        """The message until it expires."""
        return self._message if self.session.now() <= self._message_until else ""

    # --- votes -------------------------------------------------------------------------------

    def record_sent(
        self, ballot: Ballot, vote: Vote, args: Mapping[str, Any] | None = None
    ) -> None:
        """Record a vote that is being sent with `args`; a second vote cannot be undone."""
        self.set_message("")
        group_id, now = ballot.group_id, self.session.now()
        sent = SentVote(ballot, vote, now, args or {})
        if len(self.sent) > SENT_CAP:
            del self.sent[next(iter(self.sent))]
        if not ballot.second:
            self.sent.pop(group_id, None)
            self.sent[group_id] = sent
            self.progress.record(group_id, now, skipped=vote.rating == "skip")
            return
        self.sent.setdefault(group_id, sent)
        if self.current == group_id:
            self.second = False

    def confirm(self, group_id: str, done: bool) -> None:
        """Record whether the proxy accepted the vote; after a refusal the group waits again."""
        ballot = self._ballots.pop(group_id, None)
        if not done and (ballot is None or not ballot.second):  # a second vote comes only once
            self._forget(group_id)

    def put_back(self, group: Group) -> None:
        """Put the group on screen to the end of the queue, without its typed keys; show the next
        one. The clock of a group goes on."""
        self._put_back[group.group_id] = max(self._put_back.values(), default=0) + 1
        self._ballots.pop(group.group_id, None)
        self.progress.record(group.group_id, self.session.now(), skipped=True)
        self.show(next(iter(self.waiting()), group))
        self.set_message("To the end of the queue; its clock goes on, x aborts a group")

    def undo(self, group: Group) -> None:
        """Undo the vote on `group`; show the group as soon as it waits again."""
        self._forget(group.group_id)
        self.next_id = group.group_id
        self._ballots[group.group_id] = self._new_ballot(group)

    def _forget(self, group_id: str) -> None:
        self.sent.pop(group_id, None)
        self.progress.undone(group_id)


def lease_name(group: Group) -> str:
    """Return who has leased a group, in words."""
    lease = group.lease
    return one_line(lease.rater, 16) if lease is not None and lease.rater else "another console"


def is_free(session: Session, group: Group) -> bool:
    """Return whether no other console has leased a group."""
    group = session.state.groups.get(group.group_id, group)  # one read for its texts has no leases
    return group.is_free(session.holder, session.now())


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
    automatic = (candidate.auto_reward for candidate in group.candidates)
    rewards = sorted(reward for reward in automatic if reward is not None)
    return bool(group.abstained) or len(rewards) < 2 or rewards[-1] - rewards[-2] <= UNSURE + 1e-9


# --- second votes --------------------------------------------------------------------------------


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
        (group.rating.at, group)
        for group in state.groups.values()
        if group.rating is not None and group.rating.rater == rater and group.source == "human"
    ]
    mine.sort(key=lambda rated: rated[0])
    able = (group for _, group in mine[:-VOTES_BETWEEN] if group.group_id not in excluded)
    return next((group for group in able if _should_repeat(group, share)), None)


def _should_repeat(group: Group, share: float) -> bool:
    rating = group.rating
    if rating is None or not rating.blind or group.repeated or not is_picked(group.group_id, share):
        return False
    phases = [candidate.phase for candidate in group.candidates if candidate.reward is not None]
    return len(phases) > 1 and _FINAL_PHASES.issuperset(phases)


# --- pace ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RatingFigures:
    """The figures of a session.

    Attributes:
        rated: Votes of this console since its start, without undone ones and skips.
        per_minute: Pace of the newest votes; None before the second one.
        skipped: Groups that this console skipped.
        goal: Votes to cast; 0 for none.
        done: Those of them that are cast.
    """

    rated: int
    per_minute: float | None = None
    skipped: int = 0
    goal: int = 0
    done: int = 0

    @property
    def seconds_left(self) -> float | None:
        """Seconds to the goal at this pace; None without a pace or a goal, or after it."""
        votes = self.goal - self.done
        return 60.0 * votes / self.per_minute if self.per_minute and votes > 0 else None


def pace_of(times: Sequence[float]) -> float | None:
    """Return the votes per minute of the newest votes; None before the second one.

    Args:
        times: Times of the votes in Unix seconds, in order.
    """
    gaps = [min(later - at, PAUSE) for at, later in pairwise(times[-NEWEST:])]
    return 60.0 * len(gaps) / sum(gaps) if sum(gaps) > 0 else None


class RatingProgress:
    """Counts the votes of a session, and its skips apart. The times are unix seconds."""

    def __init__(self) -> None:
        self._votes: dict[str, float] = {}
        self._skipped: set[str] = set()

    def record(self, group_id: str, at: float, skipped: bool = False) -> None:
        """Count a vote or a skip, which is no vote; one that replaces another counts once."""
        self.undone(group_id)
        if skipped:
            self._skipped.add(group_id)
        else:
            self._votes[group_id] = at

    def undone(self, group_id: str) -> None:
        """Remove a vote or a skip that was undone or refused."""
        self._votes.pop(group_id, None)
        self._skipped.discard(group_id)

    def figures(self) -> RatingFigures:
        """Return the figures now."""
        pace = pace_of(sorted(self._votes.values()))
        return RatingFigures(len(self._votes), pace, len(self._skipped))

    def by_minute(self, now: float, minutes: int) -> tuple[int, ...]:
        """Return the votes in each of the last `minutes`, oldest first."""
        ages = [int((now - at) // 60) for at in self._votes.values()]
        return tuple(ages.count(age) for age in reversed(range(minutes)))


def session_figures(queue: RateQueue) -> RatingFigures:
    """Return the figures of the session, with its goal: that of the rater, else the rows of a mock
    user whose groups wait for votes. A row is done when it is answered and waits for no vote."""
    figures, session = queue.progress.figures(), queue.session
    mock = session.state.mock
    if queue.goal:
        return replace(figures, goal=queue.goal, done=figures.rated)
    waits = session.state.rating_mode != "off" and queue.late is None
    if mock is None or not (waits and session.mock_running):
        return figures
    answered = {row.group_id for row in mock.rows}
    unrated = sum(group.group_id in answered for group in queue.open())
    return replace(figures, goal=mock.total, done=max(0, rows_done(mock) - unrated))


def asked_next(queue: RateQueue) -> Group | None:
    """Return the group whose prompt may be asked again while no group is on screen: that of the
    newest vote, else the newest one; None during a stall."""
    session, groups = queue.session, queue.session.state.groups
    if queue.current is not None or queue.late is not None or held_up(session.state, session.now()):
        return None
    voted = (group for _, group in queue.voted(groups.values()))
    trained = (
        group
        for group in chain(voted, reversed(groups.values()))
        if group.episode_type == "train" and not group.helper
    )
    return next((group for group in trained if obstacle("rerun", group, session) is None), None)


# --- settings ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Guidelines:
    """The guidelines of a run: a Markdown file about how to rate."""

    text: str
    version: str
    """First digits of the SHA-256 of the file; recorded with every vote."""


def read_guidelines(path: str) -> Guidelines | None:
    """Return the guidelines; None when the settings name no file.

    Raises:
        AjetError: the file cannot be read.
    """
    if not path:
        return None
    try:
        data = Path(path).expanduser().read_bytes()
    except OSError as error:
        raise AjetError(
            f"the guidelines cannot be read: {error.strerror or error}",
            path,
            "Set rating.guidelines to a Markdown file",
        ) from error
    text = data[: 4 * GUIDELINES_CAP].decode("utf-8", "replace")[:GUIDELINES_CAP]
    return Guidelines(plain(text.replace("\r\n", "\n")), hashlib.sha256(data).hexdigest()[:8])


def tag_names(setting: str | Sequence[str]) -> list[str]:
    """Return the reasons of the settings, at most one for each digit."""
    parts = setting.split(",") if isinstance(setting, str) else setting
    names = [one_line(part.strip(), 24) for part in parts if part.strip()]
    return list(dict.fromkeys(names))[:TAG_CAP]


def tag_keys(session: Session) -> dict[str, str]:
    """Return the reasons by key: the first of its letters that is free, as a capital; one without
    a free letter is left out."""
    free = set(TAG_LETTERS) - set(",".join(session.keymap.values()).split(","))
    keys: dict[str, str] = {}
    for name in tag_names(session.rating.tags):
        if key := next((letter for letter in name.upper() if letter in free), ""):
            keys[key] = name
            free.remove(key)
    return keys


def flipped(tags: Sequence[str], name: str) -> tuple[str, ...]:
    """Return reasons with one more, or without it."""
    return tuple(tag for tag in tags if tag != name) if name in tags else (*tags, name)
