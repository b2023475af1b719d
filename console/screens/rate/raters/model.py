"""Figures of raters: presence, pace, agreement with each other and with the rewards."""

from collections.abc import Sequence
from dataclasses import dataclass

from ajet_swarm.common.errors import UsageError
from console.screens.rate.model import pace_of
from core.scoring.agreement import only_top
from core.state import Group, RaterStats, State
from core.state.rating import judged_best
from core.verdict.agreement import Agreement, best_agreement, order_agreement


@dataclass(frozen=True, slots=True)
class RaterRow:
    """One rater.

    Attributes:
        name: Empty for votes without a name.
        consoles: Consoles of this rater that are attached now.
        open: Ids of the groups that these consoles have open, by their leases.
        cast: Votes, sent or not.
        sent: Those that were sent.
        per_minute: Pace of the newest votes; None before the second one.
        last_at: Unix seconds of the newest vote; None before the first one.
        compared: Pairs with a vote of another rater on the same group.
        same: Those of them with the same best answers.
    """

    name: str
    consoles: int
    open: tuple[str, ...]
    cast: int
    sent: int
    per_minute: float | None
    last_at: float | None
    compared: int
    same: int


def rater_rows(state: State, now: float) -> list[RaterRow]:
    """Return the raters who are attached or have voted: attached ones first, then by votes."""
    attached: dict[str, list[str]] = {}
    for holder, console in state.attached.items():
        attached.setdefault(console.rater, []).append(holder)
    opened: dict[str, list[str]] = {}
    for group in state.waiting():
        for lease in group.leases:
            if now < lease.until:
                opened.setdefault(lease.rater, []).append(group.group_id)
    rows = []
    for name in dict.fromkeys([*attached, *opened, *state.raters]):
        stats = state.raters.get(name) or RaterStats()
        row = RaterRow(
            name,
            len(attached.get(name, ())),
            tuple(opened.get(name, ())),
            max(stats.cast, stats.votes),  # their record may have been dropped between
            stats.votes,
            pace_of(stats.newest),
            stats.newest[-1] if stats.newest else None,
            stats.compared,
            stats.same,
        )
        if row.consoles or row.open or row.cast:
            rows.append(row)
    return sorted(rows, key=lambda row: (-row.consoles, -row.cast, row.name))


def overlapping(state: State) -> list[Group]:
    """Return the groups that at least two raters judged, oldest first."""
    return [
        group
        for group in state.groups.values()
        if sum(bool(vote.rewards) for vote in group.votes) > 1
    ]


def disagreements(state: State) -> list[Group]:
    """Return the groups to settle: those not sent yet first, then the newest ones."""
    groups = [group for group in overlapping(state) if group.is_disputed and group.settled is None]
    alive = [group for group in groups if group.phase not in ("ABORTED", "FAILED")]
    return sorted(reversed(alive), key=lambda group: group.sealed_at is not None)


@dataclass(frozen=True, slots=True)
class RaterAgreement:
    """Agreement over the groups that several raters judged; None without such a group.

    Attributes:
        best: How often two raters put the same answers first.
        order: How often two raters put two answers in the same order.
    """

    best: Agreement | None
    order: Agreement | None


def agreement(state: State) -> RaterAgreement:
    """Return the agreement of the raters; it may take tenths of a second."""
    return agreement_of(judged_votes(state))


def judged_votes(state: State) -> list[list[tuple[float, ...]]]:
    """Return the rewards of each vote, for each group that several raters judged."""
    judged = [
        [vote.rewards for vote in group.votes if vote.rewards] for group in overlapping(state)
    ]
    return [votes for votes in judged if len({len(rewards) for rewards in votes}) == 1]


def agreement_of(judged: Sequence[Sequence[Sequence[float]]]) -> RaterAgreement:
    """Return the agreement of raters.

    Args:
        judged: For each group the rewards of each vote, by answer.
    """
    return RaterAgreement(best_agreement(judged), order_agreement(judged))


def typed_vote(text: str, n: int) -> dict[str, object]:
    """Return a typed vote as arguments of its command: `2`, `2 1 4 3`, `tie`, `bad`.

    Args:
        text: Numbers of candidates from 1, the best first, or a word.
        n: Number of candidates.

    Raises:
        UsageError: It is none.
    """
    words = text.replace(",", " ").split()
    if words in (["tie"], ["bad"]):
        return {"rating": words[0]}
    if not words or not all(word.isascii() and word.isdigit() for word in words):
        raise UsageError(f"`{text}` is no vote", todo="Type 2, or 2 1 4 3, or tie, or bad")
    order = [int(word[:9]) - 1 for word in words]
    if not set(order) <= set(range(n)) or len(set(order)) < len(order):
        what = f"the candidates are 1 to {n}, each at most once"
        raise UsageError(what, todo="Type 2 or 2 1 4 3")
    return {"rating": "best" if len(order) == 1 else "ranking", "order": order}


def chosen(group: Group) -> int | None:
    """Return the answer with the best sealed reward of the rater; None for none."""
    rewards = {candidate.index: candidate.reward for candidate in group.candidates}
    return only_top({index: reward for index, reward in rewards.items() if reward is not None})


def reward_disagreements(state: State, rater: str) -> list[Group]:
    """Return this rater's groups, newest first, where the automatic rewards differ in the best."""
    return [
        group
        for group in reversed(state.groups.values())
        if group.rating is not None
        and (group.rating.rater, group.source) == (rater, "human")
        and None not in (best := {chosen(group), judged_best(group)})
        and len(best) == 2
    ]
