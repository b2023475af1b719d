"""Votes on one group: rate, undo, accept, second votes, corrections.

Indices are candidate indices. Candidates without an answer are not rated: a rating has one reward
for each candidate with an answer, by index.
"""

from dataclasses import dataclass
from typing import TypedDict, Unpack, get_args

from ajet_swarm.common.text import one_line
from core.commands.groups import OVERRIDE_HINT
from core.events import (
    DisagreementSettled,
    GroupEdited,
    GroupRated,
    RatingRepeated,
    RatingUndone,
    VoteCast,
)
from core.scoring.agreement import agree
from core.scoring.rating import Kind, RatingInput, rating_rewards
from core.settings import RatingSettings
from core.state import Group, Rating
from proxy.context import ProxyContext
from proxy.groups import votes
from proxy.groups.outcome import vote_text
from proxy.groups.run import GroupRun
from proxy.http.errors import NotNow

MAX_VOTES = 20
"""Maximum number of votes of a rater on a group, replaced and undone ones included."""

KINDS: dict[str, Kind] = {kind: kind for kind in get_args(Kind)}


class VoteDetails(TypedDict, total=False):
    """Circumstances of a vote; see `core.events.GroupRated`."""

    tags: tuple[str, ...]
    blind: bool
    shown: tuple[int, ...]
    seed: str
    looked: float
    first_key: float
    guidelines: str


@dataclass(frozen=True, slots=True)
class Voter:
    """The rater who votes."""

    rater: str = ""
    holder: str = ""
    """Id of the console, as in a lease."""
    override: bool = False
    """Whether to replace another rater's vote, and to vote despite another's lease."""


def rate(
    run: GroupRun,
    rating: str,
    order: tuple[int, ...],
    scores: tuple[float, ...],
    *,
    voter: Voter,
    note: str = "",
    **details: Unpack[VoteDetails],
) -> None:
    """Set the rating; it may change until the group is sealed. The same vote again, or another
    rater's equal vote, changes nothing.

    With `rating.overlap` above 1 it is one of several votes, which together become the rating.

    Args:
        run: The group.
        rating: best, ranking, scores, tie, bad or skip.
        order: Candidate indices, best first.
        scores: One for each candidate, or one for each that has an answer, by index.
        voter: The rater.
        note: Reason, as free text.
        **details: Circumstances of the vote.

    Raises:
        NotNow: not all candidates are there yet, the group is not trained on, the rater has
            voted `MAX_VOTES` times, or other raters have rated it differently, have given all its
            votes or hold its leases.
        RatingError: the rating does not fit the group.
    """
    _check_ratable(run)
    if run.votes[voter.rater or voter.holder] >= MAX_VOTES:
        what = f"group {run.group_id} has had {MAX_VOTES} votes of this rater, it takes no more"
        raise NotNow(what, todo="Rate another one")
    indices = [one.index for one in run.usable]
    vote = RatingInput(
        _kind(rating), _positions(order, indices), _scores_of_answered(scores, indices, run.n)
    )
    bounds = _bounds(run.context.settings.rating)
    group = run.context.bus.state.groups.get(run.group_id)
    same = group.same_answers(indices) if group is not None else ()
    values = rating_rewards(vote, len(indices), bounds, same)
    rewards = [one for one in values if one is not None]
    if run.overlap > 1:
        _rate_with_others(run, vote, tuple(rewards), order, scores, voter, note, details)
        return
    present = group.rating if group is not None and run.rating is not None else None
    typed = (rating, order, scores, voter.rater, note, details.get("tags", ()))
    if present is not None and typed == _as_typed(present):
        return  # a key pressed twice, or a command sent again
    if not voter.override and _same_vote_exists(run, voter, rating, tuple(rewards)):
        return
    run.rated = dict(zip(indices, rewards, strict=True)) if rewards else {}
    run.rated_from = voter.holder
    now = run.context.clock()
    run.votes[voter.rater or voter.holder] += 1
    run.first_rated_at = now if run.rating is None else run.first_rated_at
    run.rating = Rating(
        rating=rating,
        order=order,
        scores=scores,
        rewards=tuple(rewards),
        rater=voter.rater,
        note=note,
        at=now,
    )
    run.context.bus.publish(
        GroupRated(
            server=run.facts.server.name,
            group_id=run.group_id,
            rating=rating,
            order=order,
            scores=scores,
            rewards=tuple(rewards),
            rater=voter.rater,
            note=note,
            **details,
        )
    )
    run.wake.set()


def _as_typed(vote: Rating) -> tuple[object, ...]:
    return vote.rating, vote.order, vote.scores, vote.rater, vote.note, vote.tags


def _rate_with_others(
    run: GroupRun,
    vote: RatingInput,
    rewards: tuple[float, ...],
    order: tuple[int, ...],
    scores: tuple[float, ...],
    voter: Voter,
    note: str,
    details: VoteDetails,
) -> None:
    event = VoteCast(
        server=run.facts.server.name,
        group_id=run.group_id,
        rating=vote.kind,
        order=order,
        scores=scores,
        rewards=rewards,
        rater=voter.rater,
        note=note,
        holder=voter.holder,
        **details,
    )
    votes.cast(run, event, override=voter.override)
    run.wake.set()


def unrate(run: GroupRun, rater: str, holder: str = "") -> bool:
    """Undo the rating; with `rating.overlap` above 1, the vote of this rater.

    Returns:
        Whether there was one.

    Raises:
        NotNow: `rating.overlap` is above 1, and the group has no vote of this rater.
    """
    if run.overlap > 1:
        votes.withdraw(run, rater, holder)
        run.wake.set()
        return True
    if run.rating is None:
        return False
    run.rating, run.rated, run.first_rated_at = None, {}, None
    run.context.bus.publish(
        RatingUndone(server=run.facts.server.name, group_id=run.group_id, rater=rater)
    )
    run.wake.set()
    return True


def accept(run: GroupRun) -> None:
    """Seal the group now.

    Raises:
        NotNow: there is neither a rating nor an automatic reward.
    """
    _check_ratable(run)
    if run.rating is None and run.sheet is None and not run.ballots:
        why = "it could not be scored" if run.scored_at else "it is not scored yet"
        raise NotNow(f"group {run.group_id} has no automatic reward: {why}", todo="Rate it")
    run.accepted = True
    run.wake.set()


def repeat(
    context: ProxyContext,
    group: Group,
    rating: str,
    order: tuple[int, ...],
    scores: tuple[float, ...],
    *,
    rater: str = "",
    shown: tuple[int, ...] = (),
    seed: str = "",
    looked: float = 0.0,
) -> bool:
    """Record a second vote on a group whose first vote was sent; return whether they agree.

    Raises:
        NotNow: the group has no rating that was sent or had a second vote already, the first vote
            is not of this rater, or the vote is a skip.
        RatingError: the rating does not fit the group.
    """
    sent = {one.index: one.reward for one in group.candidates if one.reward is not None}
    if group.source != "human" or not sent:
        raise NotNow(f"group {group.group_id} has no rating that was sent")
    if rating == "skip":
        raise NotNow("a skip judges nothing", todo="Leave the second vote out")
    votes = group.votes or ([] if group.rating is None else [group.rating])
    judges = [one.rater for one in votes if one.rewards]
    if rater not in judges:
        names = " and ".join(one_line(one, 40) or "a rater without a name" for one in judges)
        what = f"the vote on group {group.group_id} that was sent is of {names}"
        raise NotNow(what, todo="A second vote is compared with one's own first vote")
    if group.repeated:
        raise NotNow(f"group {group.group_id} has had its second vote", todo="Rate another one")
    indices = sorted(sent)
    vote = RatingInput(
        _kind(rating), _positions(order, indices), _scores_of_answered(scores, indices, group.n)
    )
    bounds, same = _bounds(context.settings.rating), group.same_answers(indices)
    values = rating_rewards(vote, len(indices), bounds, same)
    rewards = {index: one for index, one in zip(indices, values, strict=True) if one is not None}
    agrees = agree(sent, rewards)
    context.bus.publish(
        RatingRepeated(
            server=group.server,
            group_id=group.group_id,
            rating=rating,
            order=order,
            scores=scores,
            rewards=tuple(rewards.values()),
            agrees=agrees,
            rater=rater,
            shown=shown,
            seed=seed,
            looked=looked,
        )
    )
    return agrees


def settle(
    context: ProxyContext,
    run: GroupRun | None,
    group: Group,
    rating: str,
    order: tuple[int, ...],
    scores: tuple[float, ...],
    *,
    rater: str = "",
    note: str = "",
) -> bool:
    """Decide a group on which several raters disagree; return whether the vote will be sent.

    Args:
        context: The proxy's shared parts.
        run: The group while it is open, else None.
        group: Its state.
        rating: best, ranking, scores, tie, bad or skip.
        order: Candidate indices, best first.
        scores: One for each candidate, or one for each that has an answer, by index.
        rater: Who decides.
        note: Reason, as free text.

    Raises:
        NotNow: the raters do not disagree, or the group is being sent.
        RatingError: the rating does not fit the group.
    """
    name = f"group {group.group_id}"
    if not group.is_disputed:
        raise NotNow(f"the raters of {name} do not disagree", todo="`raters` lists disagreements")
    is_open = run is not None and not (run.sealed or run.closing)
    if group.phase == "SUBMITTING":
        raise NotNow(f"{name} is being sent", todo="Settle it again in a moment")
    if is_open:
        assert run is not None
        _check_ratable(run)
        indices = [one.index for one in run.usable]
    else:
        if rating == "skip":
            raise NotNow("a skip judges nothing, and the group was sent", todo="Rate the answers")
        indices = [one.index for one in group.candidates if one.reward is not None]
        if not indices:
            raise NotNow(f"{name} was not sent: there is nothing to settle")
    vote = RatingInput(
        _kind(rating), _positions(order, indices), _scores_of_answered(scores, indices, group.n)
    )
    bounds, same = _bounds(context.settings.rating), group.same_answers(indices)
    rewards = rating_rewards(vote, len(indices), bounds, same)
    event = DisagreementSettled(
        server=group.server,
        group_id=group.group_id,
        rating=rating,
        order=order,
        scores=scores,
        rewards=tuple(one for one in rewards if one is not None),
        rater=rater,
        note=note,
        sent=not is_open,
    )
    if run is not None and is_open:
        votes.settle(run, event)
        run.wake.set()
    else:
        context.bus.publish(event)
    return is_open


def edit(context: ProxyContext, group: Group, index: int, edited: str, rater: str) -> None:
    """Store a better text for one answer, also of a closed group. It is never sent.

    Raises:
        NotNow: the group has no such candidate.
    """
    if not 0 <= index < len(group.candidates):
        raise NotNow(f"group {group.group_id} has no candidate {index + 1}")
    context.bus.publish(
        GroupEdited(
            server=group.server, group_id=group.group_id, index=index, edited=edited, rater=rater
        )
    )


def _bounds(settings: RatingSettings) -> tuple[float, float]:
    return settings.score_low, settings.score_high


def _check_ratable(run: GroupRun) -> None:
    if run.kind == "eval":
        raise NotNow(f"group {run.group_id} is not trained on")
    if run.phase not in ("SCORING", "AWAITING_RATING"):
        raise NotNow(
            f"group {run.group_id} is {run.phase}: its candidates are not there yet",
            todo="Wait until all have answered",
        )
    if run.refill is not None:
        raise NotNow(f"group {run.group_id} is being refilled", todo="Wait for its fresh answers")


def _same_vote_exists(run: GroupRun, voter: Voter, rating: str, rewards: tuple[float, ...]) -> bool:
    """Return whether another rater has cast the same vote, which stays.

    Raises:
        NotNow: another rater has voted differently or holds the lease; names rater, time and vote.
    """
    now, name = run.context.clock(), f"group {run.group_id}"
    previous = run.rating
    if previous is not None:
        has_name = voter.rater or previous.rater
        same_rater = voter.rater == previous.rater if has_name else voter.holder == run.rated_from
        if not same_rater and (previous.rating, previous.rewards) != (rating, rewards):
            raise NotNow(
                f"{previous.rater or 'another console'} rated {name} "
                f"{now - previous.at:.0f} s ago: {vote_text(previous)}",
                todo=f"Leave it, or {OVERRIDE_HINT}",
            )
        return not same_rater
    group = run.context.bus.state.groups.get(run.group_id)
    lease = group.lease if group is not None else None
    is_free = lease is None or not lease.of_another(voter.holder, now)
    if lease is not None and not is_free and not (lease.rater and lease.rater == voter.rater):
        raise NotNow(
            f"{lease.rater or 'another console'} is rating {name}, for "
            f"{lease.until - now:.0f} s more at least",
            todo=f"Rate another one, or {OVERRIDE_HINT}",
        )
    return False


def _kind(rating: str) -> Kind:
    if rating not in KINDS:
        raise NotNow(f"there is no rating {rating}", todo=f"Known: {', '.join(KINDS)}")
    return KINDS[rating]


def _positions(order: tuple[int, ...], indices: list[int]) -> tuple[int, ...]:
    """Return candidate indices as positions among the candidates that have an answer."""
    for index in order:
        if index not in indices:
            raise NotNow(
                f"candidate {index + 1} has no answer",
                "rating.order",
                f"Those with one, counted from 1: {', '.join(str(one + 1) for one in indices)}",
            )
    return tuple(indices.index(index) for index in order)


def _scores_of_answered(scores: tuple[float, ...], indices: list[int], n: int) -> tuple[float, ...]:
    if scores and len(scores) == n:
        return tuple(scores[index] for index in indices)
    return scores
