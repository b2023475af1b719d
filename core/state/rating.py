"""Votes, leases and the figures of each rater, and the handlers of ratings by hand."""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import msgspec

from core import events
from core.scoring.agreement import agree, only_top
from core.state.common import TEXT_CAP, record_of

if TYPE_CHECKING:
    from core.state import Group, State


class Rating(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A rating of a group: one person's vote, or the combination of several votes."""

    rating: str
    order: tuple[int, ...] = ()
    scores: tuple[float, ...] = ()
    rewards: tuple[float, ...] = ()
    rater: str = ""
    note: str = ""
    at: float = 0.0
    tags: tuple[str, ...] = ()
    blind: bool = False
    shown: tuple[int, ...] = ()
    """Candidate index at each place of the screen."""
    holder: str = ""
    """Console of the vote, as in a lease; only with `rating.overlap` above 1."""
    raters: tuple[str, ...] = ()
    """Raters whose votes are combined; empty for one person's vote."""

    @property
    def is_skip(self) -> bool:
        """Whether it judges nothing: the group is aborted. A skip does not count as a rating."""
        return self.rating == "skip"

    def by(self, rater: str, holder: str) -> bool:
        """Return whether it is the vote of a rater; of raters without a name, of the console."""
        return self.rater == rater if self.rater or rater else self.holder == holder


def combine(votes: Sequence[Rating]) -> Rating:
    """Return the combination of several votes: the mean of the rewards of each candidate.

    A skip judges nothing and is left out; skips alone remain a skip. Votes of the same kind with
    the same rewards remain that vote; different ones become `scores`.

    Args:
        votes: At least one, of the same candidates.
    """
    judging = [vote for vote in votes if vote.rewards]
    if not judging:
        return Rating(rating="skip")
    first = judging[0]
    if all((vote.rating, vote.rewards) == (first.rating, first.rewards) for vote in judging):
        return Rating(
            rating=first.rating, order=first.order, scores=first.scores, rewards=first.rewards
        )
    columns = zip(*[vote.rewards for vote in judging], strict=True)
    mean = tuple([sum(rewards) / len(judging) for rewards in columns])
    return Rating(rating="scores", scores=mean, rewards=mean)


class Lease(msgspec.Struct, kw_only=True):
    """Reservation of a group for one console that rates it."""

    holder: str
    """Id of the console."""
    rater: str = ""
    until: float = 0.0
    since: float = 0.0
    """Unix seconds when this console got it; a renewal does not change it."""
    key_at: float = 0.0
    """Unix seconds of the last key of the rater there."""
    shared: bool = False
    """It only tells that the rater has the group on screen: others may vote on it."""

    def of_another(self, holder: str, now: float) -> bool:
        """Return whether it is valid at time `now` and held by a console other than `holder`."""
        return self.holder != holder and now < self.until and not self.shared


class PartAgreement(msgspec.Struct, kw_only=True):
    """How often one reward part put a rater's best answer first."""

    judged: int = 0
    """Votes with a single best answer, on groups where the part has a single best one too."""
    agreed: int = 0
    chance: float = 0.0
    """Expected number of agreements by chance."""


class RaterStats(msgspec.Struct, kw_only=True):
    """Figures of one rater's votes that were sent, or late on a complete group, over the whole
    journal.

    Agreement is counted for blind votes and votes by command line, place only for blind votes: a
    rater who sees the rewards tends to follow them.
    """

    votes: int = 0
    placed: int = 0
    """Blind votes with a single best answer."""
    first: int = 0
    """Those of them whose best answer was shown first."""
    first_chance: float = 0.0
    """Expected number of those by chance."""
    judged: int = 0
    """Votes without sight of the rewards, on groups where these have a single best answer too."""
    agreed: int = 0
    """Those of them with the same best answer."""
    agreed_chance: float = 0.0
    parts: dict[str, PartAgreement] = msgspec.field(default_factory=dict)
    """By name of the reward part."""
    repeats: int = 0
    """Groups voted on again."""
    repeated: int = 0
    """Those of them with the same best answers as before."""
    cast: int = 0
    """Votes of this rater, sent or not; several votes on one group count once."""
    newest: tuple[float, ...] = ()
    """Times of the newest of them in Unix seconds."""
    compared: int = 0
    """Pairs of this rater's vote and another rater's on the same group (`rating.overlap`)."""
    same: int = 0
    """Those of them with the same best answers."""


RATER_CAP = 100
PART_CAP = 64
NEWEST = 20
"""Votes of each rater whose times are stored."""


def _rated(state: "State", group: "Group", event: events.GroupRated) -> None:
    was_rated = group.is_rated
    is_first = group.rating is None or group.rating.rater != event.rater
    if is_first and not event.raters:
        note_time(state, event.rater, event.at)
    group.leases = []
    group.rating = record_of(Rating, event)
    state.totals.rated += group.is_rated - was_rated


def _of(lease: Lease, holder: str, rater: str) -> bool:
    """Return whether a lease is that of a console, or of another console of its rater."""
    return lease.holder == holder or (rater != "" and lease.rater == rater)


def _voted(state: "State", group: "Group", event: events.VoteCast) -> None:
    group.leases = [lease for lease in group.leases if not _of(lease, event.holder, event.rater)]
    if group.vote_of(event.rater, event.holder) is None and group.group_id not in state.inbox:
        note_time(state, event.rater, event.at)
    vote = record_of(Rating, event)
    others = [vote for vote in group.votes if not vote.by(event.rater, event.holder)]
    group.votes = [*others, vote]


def _withdrawn(state: "State", group: "Group", event: events.VoteWithdrawn) -> None:
    if group.vote_of(event.rater, event.holder) is not None and group.group_id not in state.inbox:
        forget_time(state, event.rater)
    group.votes = [vote for vote in group.votes if not vote.by(event.rater, event.holder)]


def _settled(state: "State", group: "Group", event: events.DisagreementSettled) -> None:
    group.settled = record_of(Rating, event)


def _undone(state: "State", group: "Group", event: events.RatingUndone) -> None:
    if group.rating is not None:
        state.totals.rated -= group.is_rated
        if not group.rating.raters:
            forget_time(state, group.rating.rater)
    group.rating = None


def _edited(state: "State", group: "Group", event: events.GroupEdited) -> None:
    group.edited = event.edited[:TEXT_CAP]
    group.edited_index = event.index if event.edited else None


def _leased(state: "State", group: "Group", event: events.GroupLeased) -> None:
    console = state.attached.get(event.holder)
    if console is not None and event.rater:
        console.rater = event.rater
    old = next((lease for lease in group.leases if lease.holder == event.holder), None)
    others = [
        other
        for other in group.leases_of_others(event.holder, event.at)
        if not _of(other, event.holder, event.rater)
    ]
    if not event.until:
        group.leases = others
        return
    since = old.since if old is not None and event.at < old.until else event.at
    # Beyond the missing votes it was taken over from the oldest one.
    group.leases = [*others, record_of(Lease, event, since=since)][-group.missing_votes :]


def _repeated(state: "State", group: "Group", event: events.RatingRepeated) -> None:
    group.repeated = True
    stats = _stats(state, event.rater)
    stats.repeats += 1
    stats.repeated += event.agrees


def _stats(state: "State", rater: str) -> RaterStats:
    stats = state.raters.get(rater)
    if stats is None:
        stats = state.raters[rater] = RaterStats()
        while len(state.raters) > RATER_CAP:
            del state.raters[next(iter(state.raters))]
    return stats


def note_time(state: "State", rater: str, at: float) -> None:
    """Note the time of a rater's first vote on a group."""
    stats = _stats(state, rater)
    stats.cast += 1
    stats.newest = (*stats.newest, at)[-NEWEST:]


def forget_time(state: "State", rater: str) -> None:
    """Take back the newest note of a rater, whose vote was undone."""
    stats = _stats(state, rater)
    stats.cast = max(0, stats.cast - 1)
    stats.newest = stats.newest[:-1]


def count_vote(state: "State", group: "Group", event: events.GroupSealed) -> None:
    """Count a sealed rating for its rater, and compare it with the automatic rewards."""
    if event.source != "human" or group.rating is None:
        return
    votes = [(group.rating, {reward.index: reward.reward for reward in event.rewards})]
    if group.overlap > 1:
        indices = [
            candidate.index for candidate in group.candidates if candidate.phase == "answered"
        ]
        votes = [
            (vote, dict(zip(indices, vote.rewards, strict=True)))
            for vote in group.votes
            if len(vote.rewards) == len(indices)
        ]
    best = {name: only_top(rewards) for name, rewards in part_values(state, group).items()}
    parts = {name: index for name, index in best.items() if index is not None}
    count_votes(state, votes, judged_best(group), parts)


def count_votes(
    state: "State",
    votes: Sequence[tuple[Rating, Mapping[int, float]]],
    judge: int | None,
    parts: Mapping[str, int],
    sign: int = 1,
) -> None:
    """Count the votes on a group for their raters; compare them with each other and the rewards.

    Args:
        state: The state.
        votes: The votes, each with its reward by candidate.
        judge: The candidate that the automatic rewards put first; None if several share it.
        parts: The same for each reward part; without those where several share it.
        sign: 1 counts them, -1 takes back what was counted.
    """
    for rating, rewards in votes:
        _count(_stats(state, rating.rater), rating, rewards, judge, parts, sign)
    for (rating, rewards), (other, others) in combinations(votes, 2):
        same = agree(rewards, others)
        for vote in (rating, other):
            stats = _stats(state, vote.rater)
            stats.compared += sign
            stats.same += sign * same


def _count(
    stats: RaterStats,
    rating: Rating,
    rewards: Mapping[int, float],
    judge: int | None,
    parts: Mapping[str, int],
    sign: int,
) -> None:
    """Count a vote for its rater, and compare it with the automatic rewards."""
    stats.votes += sign
    chosen = only_top(rewards)
    if chosen is None:
        return
    if rating.blind:
        stats.placed += sign
        stats.first += sign * (rating.shown[:1] == (chosen,))
        stats.first_chance += sign / max(len(rating.shown), 1)
    elif rating.shown:
        return  # the rewards were shown beside the answers
    chance = sign / max(len(rating.shown or rewards), 1)
    if judge is not None:
        stats.judged += sign
        stats.agreed += sign * (judge == chosen)
        stats.agreed_chance += chance
    for name, best in parts.items():
        if name in stats.parts or len(stats.parts) < PART_CAP:
            part = stats.parts.setdefault(name, PartAgreement())
            part.judged += sign
            part.agreed += sign * (best == chosen)
            part.chance += chance


def part_values(state: "State", group: "Group") -> dict[str, dict[int, float]]:
    """Return the value of each candidate by each reward part that counts."""
    model = {agreement.name for agreement in state.rewards.parts}
    values: dict[str, dict[int, float]] = {}
    for candidate in group.candidates:
        for part in candidate.parts:
            if part.gate or part.weight or part.name in model:  # the others are only informative
                values.setdefault(part.name, {})[candidate.index] = part.value
    return values


def judged_best(group: "Group") -> int | None:
    """Return the candidate that the automatic rewards put first; None if several share it."""
    return only_top(
        {
            candidate.index: candidate.auto_reward
            for candidate in group.candidates
            if candidate.auto_reward is not None
        }
    )


RATING_HANDLERS: Mapping[type[events.GroupEvent], Callable[["State", "Group", Any], None]] = {
    events.GroupRated: _rated,
    events.VoteCast: _voted,
    events.VoteWithdrawn: _withdrawn,
    events.DisagreementSettled: _settled,
    events.RatingUndone: _undone,
    events.GroupEdited: _edited,
    events.GroupLeased: _leased,
    events.RatingRepeated: _repeated,
}
