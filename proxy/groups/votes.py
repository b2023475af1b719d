"""Votes of several raters on one open group (`rating.overlap` above 1), and their combination."""

from collections.abc import Sequence

from ajet_swarm.common.text import one_line
from core.commands.groups import OVERRIDE_HINT
from core.events import DisagreementSettled, GroupRated, RatingUndone, VoteCast, VoteWithdrawn
from core.scoring.agreement import disagree
from core.scoring.combination import combine
from core.state import Rating
from proxy.groups.run import GroupRun
from proxy.http.errors import NotNow


def combined_event(server: str, group_id: str, votes: Sequence[Rating]) -> GroupRated:
    """Return the event that rates a group with the combination of its votes.

    Args:
        server: Server of the group.
        group_id: Its id.
        votes: At least one.
    """
    result = combine(votes)
    return GroupRated(
        server=server,
        group_id=group_id,
        rating=result.rating,
        order=result.order,
        scores=result.scores,
        rewards=result.rewards,
        rater=", ".join(dict.fromkeys(one.rater for one in votes if one.rater)),
        raters=tuple(one.rater for one in votes),
        blind=all(one.blind for one in votes),
    )


def names_of(votes: Sequence[Rating]) -> str:
    """Return the raters of some votes in words: `ada and bob`."""
    names = [one_line(one.rater, 40) or "another console" for one in votes]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else ""


def cast(run: GroupRun, event: VoteCast, *, override: bool) -> None:
    """Add a vote of one of several raters; it replaces his earlier vote. Rates the group when the
    votes are complete. The same vote again changes nothing.

    Args:
        run: The group.
        event: The vote.
        override: Whether to vote although other consoles have leased all missing votes.

    Raises:
        NotNow: The votes are complete, a decisive vote was cast, or other raters have leased all
            missing votes.
    """
    earlier = next((one for one in run.ballots if one.by(event.rater, event.holder)), None)
    if run.settled is not None:
        raise NotNow(
            f"{names_of([run.settled])} has settled group {run.group_id}", todo="Rate another one"
        )
    if earlier is None:
        _check_room(run, event, override)
    elif (earlier.rating, earlier.rewards) == (event.rating, event.rewards):
        return
    vote = _vote(run, event)
    run.ballots = [*(one for one in run.ballots if one is not earlier), vote]
    run.votes[event.rater or event.holder] += 1
    run.context.bus.publish(event)
    if len(run.ballots) >= run.overlap:
        rate_with(run, run.ballots)


def _check_room(run: GroupRun, event: VoteCast, override: bool) -> None:
    """Check that the group lacks a vote that this rater may give."""
    name, now = f"group {run.group_id}", run.context.clock()
    missing = run.overlap - len(run.ballots)
    if missing <= 0:
        raise NotNow(
            f"{name} has its {run.overlap} votes, by {names_of(run.ballots)}",
            todo="Rate another one; `settle` decides a disagreement",
        )
    group = run.context.bus.state.groups.get(run.group_id)
    leases = [] if group is None else group.leases_of_others(event.holder, now)
    own = any(one.rater and one.rater == event.rater for one in leases)
    if len(leases) < missing or own or override:
        return
    holders = " and ".join(one_line(one.rater, 40) or "another console" for one in leases)
    raise NotNow(
        f"{holders} {'is' if len(leases) == 1 else 'are'} rating {name}, for "
        f"{min(one.until for one in leases) - now:.0f} s more at least; it lacks "
        f"{missing} vote{'s' if missing > 1 else ''}",
        todo=f"Rate another one, or {OVERRIDE_HINT}",
    )


def withdraw(run: GroupRun, rater: str, holder: str) -> None:
    """Withdraw the vote of one of several raters; the group then lacks a vote.

    Raises:
        NotNow: He has no vote on the group.
    """
    vote = next((one for one in run.ballots if one.by(rater, holder)), None)
    if vote is None and not rater and not holder and len(run.ballots) == 1:
        vote = run.ballots[0]
    if vote is None or run.settled is not None:
        who = f"{one_line(rater, 40)} has" if rater else "you have"
        votes = f"Votes: {names_of(run.ballots)}" if run.ballots else ""
        raise NotNow(f"{who} no vote on group {run.group_id} to undo", todo=votes)
    run.ballots = [one for one in run.ballots if one is not vote]
    server = run.facts.server.name
    if run.rating is not None:
        run.rating, run.rated, run.first_rated_at = None, {}, None
        run.context.bus.publish(
            RatingUndone(server=server, group_id=run.group_id, rater=vote.rater)
        )
    run.context.bus.publish(
        VoteWithdrawn(server=server, group_id=run.group_id, rater=vote.rater, holder=vote.holder)
    )


def settle(run: GroupRun, event: DisagreementSettled) -> None:
    """Rate an open group with a decisive vote instead of the votes of its raters.

    Raises:
        NotNow: It has no votes to decide between.
    """
    if not run.ballots:
        raise NotNow(f"group {run.group_id} has no votes to decide between", todo="Rate it")
    run.settled = _vote(run, event)
    run.context.bus.publish(event)
    rate_with(run, [run.settled])
    run.first_rated_at = run.settled.at  # the undo time is that of the decision


def waits_for_decision(run: GroupRun) -> bool:
    """Return whether the votes are complete, disagree, and nobody has decided."""
    return (
        run.rating is not None
        and run.settled is None
        and disagree([v.rewards for v in run.ballots])
    )


def rate_with(run: GroupRun, votes: Sequence[Rating]) -> None:
    """Rate an open group with the combination of some votes.

    Args:
        run: The group.
        votes: At least one.
    """
    event = combined_event(run.facts.server.name, run.group_id, votes)
    now = run.context.clock()
    indices = [one.index for one in run.usable]
    run.rated = dict(zip(indices, event.rewards, strict=True)) if event.rewards else {}
    run.rated_from = ""
    run.first_rated_at = now if run.rating is None else run.first_rated_at
    run.rating = Rating(
        rating=event.rating,
        order=event.order,
        scores=event.scores,
        rewards=event.rewards,
        rater=event.rater,
        raters=event.raters,
        at=now,
    )
    run.context.bus.publish(event)


def _vote(run: GroupRun, event: VoteCast | DisagreementSettled) -> Rating:
    return Rating(
        rating=event.rating,
        order=event.order,
        scores=event.scores,
        rewards=event.rewards,
        rater=event.rater,
        note=event.note,
        at=run.context.clock(),
        blind=event.blind,
        holder=event.holder if isinstance(event, VoteCast) else "",
    )
