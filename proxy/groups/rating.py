"""Rating by hand: how a vote is checked, stored, undone and settled, and when it is sent.

How a reward is sent, by an example. A group has four answers, and ada takes the second one:

1. `group.rate` with rating `best` and order (1,). `core.scoring.rating` makes of it one reward for
   each answer: (0, 1, 0, 0). Its plan (`core.commands.plan`) was that the
   answers are there and nobody else rates the group.
2. `GroupRated` is published and synced to the disk. Only then does the command return: no kill of
   the proxy loses the vote any more, `recovery` would send it. If the task of the group decides
   earlier for another reason, the vote is durable with `GroupSealed`, before a reward is sent.
3. `seal` waits for `rating.window` seconds by the rules of `seal.decide`. Until then
   `group.unrate` undoes the vote and another vote replaces it; `group.accept` ends the wait.
4. The decision is then `Seal("human")`. `GroupSealed` fixes the rewards and advantages and is on
   the disk before `submit` sends `end_episode` for each episode, with 0.0, 1.0, 0.0 and 0.0.

Without a vote, `Seal("auto")` sends the rewards of the parts and judges in the same way.

A vote on a group of the inbox (`core.state.inbox`) is late: it is recorded by the same events, and
nothing is sent.

With `rating.overlap` above 1 a group needs the votes of as many raters. Each is a `VoteCast`; when
they are complete, or the time is over, `GroupRated` has their mean. If they disagree,
`group.settle` replaces them by a decisive vote.

Indices are candidate indices. Candidates without an answer are not rated: a rating has one reward
for each candidate with an answer, by index.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, get_args

from ajet_swarm.common.text import one_line
from core.commands.spec import Answer, NotNow
from core.commands.table import OVERRIDE_HINT
from core.events import DisagreementSettled, GroupRated, RatingUndone, VoteCast, VoteWithdrawn
from core.events.rating import VoteEvent
from core.scoring.agreement import disagree
from core.scoring.rating import Kind, RatingInput, rating_rewards
from core.state import Group, Rating
from core.state.common import record_of
from core.state.inbox import InboxItem
from core.state.rating import combine
from proxy.context import ProxyContext
from proxy.groups.run import Run, find_open
from proxy.groups.seal import undo_deadline
from proxy.servers.facts import ROLLING

MAX_VOTES = 20
"""Maximum number of votes of a rater on a group, replaced and undone ones included."""
_KINDS: Mapping[str, Kind] = {kind: kind for kind in get_args(Kind)}


class RatingCommands:
    """The commands that rate groups, after their plan (`core.commands.plan`) has permitted them.

    Each command returns a short message for the operator, or raises an `AjetError` when the running
    group refuses it; a refused command changes nothing. A vote, a decision and their undo
    are on the disk before the command returns; if the journal fails just then, a `JournalError` is
    raised, and they count while the proxy runs.

    Args:
        context: The shared parts of the proxy.
        runs: The open groups by id.
    """

    def __init__(self, context: ProxyContext, runs: Mapping[str, Run]) -> None:
        self.context = context
        self._runs = runs
        self.table: Mapping[str, Callable[..., Awaitable[Answer]]] = {
            "group.rate": self.rate,
            "group.unrate": self.unrate,
            "group.settle": lambda **args: self.settle(vote_of(args)),
            "group.accept": lambda group_id, override=False: self.accept(group_id),
        }

    # --- the vote ------------------------------------------------------------------------------

    async def rate(self, holder: str = "", override: bool = False, **args: Any) -> str:
        """Rate the candidates; the rating replaces the automatic reward when the group is sealed.

        The same vote again, or another rater's equal vote, changes nothing.

        Args:
            holder: Id of the console, as in a lease.
            override: Whether to replace another rater's vote; see also its plan.
            **args: The vote, see `VoteEvent`.

        Raises:
            NotNow: The journal cannot be written, the group is being refilled, the rater has voted
                `MAX_VOTES` times, or another rater has rated it differently.
            RatingError: The rating does not fit the group.
        """
        vote = vote_of(args)
        if vote.group_id in self.context.bus.state.inbox:
            return await self._rate_late(vote, holder, override)
        run = find_open(self._runs, vote.group_id)
        self._require_journal()
        _require_no_refill(run)
        _require_room(run.group_id, run.votes.counts[vote.rater or holder])
        group = self.context.bus.state.groups.get(run.group_id)
        indices = [candidate.index for candidate in run.slots.usable]
        known = {
            "server": run.facts.server.name,
            "rewards": rewards_of(self.context, group, indices, run.slots.n, vote),
        }
        alone = run.votes.needed == 1
        event = (
            record_of(GroupRated, vote, **known)
            if alone
            else record_of(VoteCast, vote, holder=holder, **known)
        )
        cast(run, event, holder, override=override)
        await self._durable(run)
        if run.votes.rating is None:
            count = f"{len(run.votes.ballots)} of {run.votes.needed}"
            return (
                f"vote {count} on group {run.group_id} is counted: {vote.rating}; unrate undoes it"
            )
        return f"group {run.group_id} is rated: {vote.rating}{self._undo_text(run)}"

    async def _rate_late(self, vote: VoteEvent, holder: str, override: bool) -> str:
        """Record a vote on a group of the inbox; its rewards were sent before, or it was aborted.

        Raises:
            NotNow: As of `rate`, or its answers are no longer stored.
            RatingError: The rating does not fit the group.
        """
        group = await self.find_any(vote.group_id)
        self._require_journal()
        state, now = self.context.bus.state, self.context.clock()
        item = state.inbox.get(vote.group_id)
        if item is None:
            raise NotNow(f"group {vote.group_id} has left the inbox", todo="Rate another one")
        _require_room(item.group_id, item.cast // item.overlap)
        rewards = rewards_of(self.context, group, item.answered, item.n, vote)
        event = record_of(VoteCast, vote, server=item.server, rewards=rewards, holder=holder)
        cast, earlier = record_of(Rating, event), item.vote_of(vote.rater, holder)
        alone = item.overlap == 1
        if earlier is not None and _as_typed(earlier)[:4] == _as_typed(cast)[:4]:
            return f"group {item.group_id} has this vote already"
        if earlier is None and alone and item.votes:
            if _in_its_way(item.group_id, item.votes[0], cast, override, now):
                return f"group {item.group_id} has an equal vote already"
            self._withdraw_late(item, item.votes[0])
        self.context.bus.publish(event)
        if alone:
            self.context.bus.publish(record_of(GroupRated, event, raters=(vote.rater,)))
        elif item.complete:
            self.context.bus.publish(combined_event(item.server, item.group_id, item.votes))
        await self._durable()
        count = "" if alone else f", vote {len(item.votes)} of {item.overlap}"
        return f"late vote on group {item.group_id} is recorded{count}: {vote.rating}; not sent"

    def _withdraw_late(self, item: InboxItem, vote: Rating) -> None:
        event = VoteWithdrawn(
            server=item.server, group_id=item.group_id, rater=vote.rater, holder=vote.holder
        )
        if item.complete:
            self.context.bus.publish(record_of(RatingUndone, event))
        self.context.bus.publish(event)

    def _undo_text(self, run: Run, remedy: str = "unrate undoes it") -> str:
        """Return until when a vote on the group can be undone, as text, and how."""
        settings = self.context.settings.rating
        mode = self.context.bus.state.rating_mode
        waits = settings.disagreements == "wait" and mode != "off"
        if waits and waits_for_decision(run):
            return "; the raters disagree, it waits for a decision until its clock ends"
        now = self.context.clock()
        due = undo_deadline(
            rated_at=now,
            first_rated_at=run.votes.first_at,
            mode=mode,
            window=settings.window,
            scored_at=run.scores.at,
            rolling=run.facts.server.watcher.current.is_in(ROLLING),
            clock=run.slots.clock,
        )
        if due <= now:
            return ", and sent now"
        until = time.strftime("%H:%M:%S", time.localtime(due))
        return f", held for {math.ceil(due - now)} s until {until}: {remedy}"

    async def unrate(self, group_id: str, rater: str = "", holder: str = "") -> str:
        """Undo the rating before the group is sealed; with `rating.overlap` above 1, the vote of
        this rater.

        Raises:
            NotNow: The journal cannot be written.
        """
        if (item := self.context.bus.state.inbox.get(group_id)) is not None:
            self._require_journal()
            if (vote := item.vote_to_undo(rater, holder)) is not None:
                self._withdraw_late(item, vote)
                await self._durable()
            return f"group {group_id}: the late vote is undone"
        run = find_open(self._runs, group_id)
        self._require_journal()
        withdraw(run, rater, holder)
        await self._durable(run)
        return f"group {run.group_id}: the vote on “{one_line(run.request.query, 60)}” is undone"

    async def settle(self, vote: VoteEvent) -> str:
        """Decide a group on which several raters disagree; once it was sent, for exports only.

        Raises:
            NotNow: The journal cannot be written, or the group is being refilled.
            RatingError: The rating does not fit the group.
        """
        group = await self.find_any(vote.group_id)
        self._require_journal()
        name, run = f"group {group.group_id}", self._runs.get(group.group_id)
        if run is not None and (run.sealed or run.closing):
            run = None
        if run is not None:
            _require_no_refill(run)
            indices = [candidate.index for candidate in run.slots.usable]
        else:
            indices = [
                candidate.index for candidate in group.candidates if candidate.reward is not None
            ]
        rewards = rewards_of(self.context, group, indices, group.n, vote)
        event = record_of(
            DisagreementSettled, vote, server=group.server, rewards=rewards, sent=run is None
        )
        if run is None:
            self.context.bus.publish(event)
            await self._durable()
            return f"{name} is settled: {vote.rating}; recorded for export, not sent again"
        decide_between(run, event)
        await self._durable(run)
        held = self._undo_text(run, "settle it again to change that")
        return f"{name} is settled: {vote.rating}{held}"

    async def accept(self, group_id: str) -> str:
        """Seal the group now: with its rating, or else with the automatic reward."""
        run = find_open(self._runs, group_id)
        _require_no_refill(run)
        run.votes.accepted = True
        run.wake.set()
        source = "the rating" if run.votes.ballots else "the automatic reward"
        return f"group {run.group_id} is finished with {source}"

    # --- the commit ----------------------------------------------------------------------------

    def _require_journal(self) -> None:
        """Refuse a command that cannot be committed now, before anything changes.

        Raises:
            NotNow: The journal cannot be written.
        """
        if error := self.context.journal.error:
            todo = "Send it again once the journal can be written; see the alert"
            raise NotNow(f"nothing is changed: the journal cannot be written: {error}", todo=todo)

    async def _durable(self, run: Run | None = None) -> None:
        """Wait until a loss of power can no longer lose what was published before; then the group
        decides again.

        Raises:
            JournalError: The journal cannot be written.
        """
        try:
            await self.context.journal.durable(self.context.bus.state.seq)
        finally:
            if run is not None:
                run.wake.set()

    # --- the group -----------------------------------------------------------------------------

    async def find_any(self, group_id: str) -> Group:
        """Return a group of the state or of the journal.

        Raises:
            NotNow: There is no such group.
        """
        if (group := self.context.bus.state.groups.get(group_id)) is not None:
            return group
        stored = await asyncio.to_thread(self.context.journal.group, group_id)
        if stored is None:
            raise NotNow(f"there is no group {group_id}")
        return stored


# --- what is checked -----------------------------------------------------------------------------


def vote_of(args: Mapping[str, Any]) -> VoteEvent:
    """Return the vote of a command's arguments; the command takes its other ones itself."""
    fields = VoteEvent.__struct_fields__
    return VoteEvent(**{name: value for name, value in args.items() if name in fields})


def _require_room(group_id: str, cast: int) -> None:
    if cast >= MAX_VOTES:
        what = f"group {group_id} has had {MAX_VOTES} votes of this rater, it takes no more"
        raise NotNow(what, todo="Rate another one")


def _require_no_refill(run: Run) -> None:
    if run.refill is not None:
        raise NotNow(f"group {run.group_id} is being refilled", todo="Wait for its fresh answers")


def rewards_of(
    context: ProxyContext,
    group: Group | None,
    indices: Sequence[int],
    n: int,
    vote: VoteEvent,
) -> tuple[float, ...]:
    """Return the rewards of the candidates `indices` by one vote; empty for a skip.

    Raises:
        NotNow: A candidate that it names has no answer.
        RatingError: The rating does not fit the group.
    """
    for index in vote.order:
        if index not in indices:
            raise NotNow(
                f"candidate {index + 1} has no answer",
                "rating.order",
                f"Those with one, counted from 1: {', '.join(str(index + 1) for index in indices)}",
            )
    positions, scores = tuple([indices.index(index) for index in vote.order]), vote.scores
    if scores and len(scores) == n:
        scores = tuple([scores[index] for index in indices])
    settings = context.settings.rating
    values = rating_rewards(
        RatingInput(_KINDS[vote.rating], positions, scores),
        len(indices),
        (settings.score_low, settings.score_high),
        group.same_answers(indices) if group is not None else (),
    )
    return tuple([value for value in values if value is not None])


def _in_its_way(group_id: str, other: Rating, vote: Rating, override: bool, now: float) -> bool:
    """Return whether another rater's vote stays instead of this one, because it is equal.

    Raises:
        NotNow: It differs; names rater, time and vote.
    """
    if override:
        return False
    if (other.rating, other.rewards) == (vote.rating, vote.rewards):
        return True
    raise NotNow(
        f"{other.rater or 'another console'} rated group {group_id} "
        f"{now - other.at:.0f} s ago: {vote_text(other)}",
        todo=f"Leave it, or {OVERRIDE_HINT}",
    )


# --- what changes --------------------------------------------------------------------------------


def cast(run: Run, event: GroupRated | VoteCast, holder: str, *, override: bool) -> None:
    """Add a vote; it replaces this rater's earlier one. When the votes are complete, the group is
    rated. The same vote again changes nothing.

    Args:
        run: The group.
        event: The vote: `VoteCast` if the group needs several, else `GroupRated`.
        holder: Id of the rater's console.
        override: As of `RatingCommands.rate`.

    Raises:
        NotNow: Another rater has voted differently.
    """
    votes = run.votes
    vote = record_of(Rating, event, holder=holder, at=run.context.clock())
    earlier = votes.of(vote.rater, holder)
    if earlier is None:
        ballots = votes.ballots if votes.needed == 1 else ()
        if any(_in_its_way(run.group_id, other, vote, override, vote.at) for other in ballots):
            return
    elif _as_typed(earlier) == _as_typed(vote):
        return  # a key pressed twice, or a command sent again
    others = [ballot for ballot in votes.ballots if ballot is not earlier]
    votes.ballots = [*others, vote][-votes.needed :]
    votes.counts[vote.rater or holder] += 1
    if votes.needed == 1:
        _set_rating(run, vote)
    run.context.bus.publish(event)
    if 1 < votes.needed <= len(votes.ballots):
        rate_with(run, votes.ballots)


def _as_typed(vote: Rating) -> tuple[object, ...]:
    return vote.rating, vote.order, vote.scores, vote.rewards, vote.note, vote.tags


def withdraw(run: Run, rater: str, holder: str) -> None:
    """Withdraw the rating; of several votes, that of this rater, so that the group lacks one."""
    votes, server = run.votes, run.facts.server.name
    vote = (votes.of(rater, holder) if votes.needed > 1 else None) or votes.ballots[0]
    votes.ballots = [ballot for ballot in votes.ballots if ballot is not vote]
    who = rater if votes.needed == 1 else vote.rater
    if votes.rating is not None:
        votes.rating, votes.rewards, votes.first_at = None, {}, None
        run.context.bus.publish(RatingUndone(server=server, group_id=run.group_id, rater=who))
    if votes.needed > 1:
        run.context.bus.publish(
            VoteWithdrawn(server=server, group_id=run.group_id, rater=who, holder=vote.holder)
        )


def decide_between(run: Run, event: DisagreementSettled) -> None:
    """Rate an open group with a decisive vote instead of the votes of its raters.

    Raises:
        NotNow: It has no votes to decide between.
    """
    if not run.votes.ballots:
        raise NotNow(f"group {run.group_id} has no votes to decide between", todo="Rate it")
    settled = record_of(Rating, event, at=run.context.clock())
    run.votes.settled = settled
    run.context.bus.publish(event)
    rate_with(run, [settled])
    run.votes.first_at = settled.at  # the undo time is that of the decision


def waits_for_decision(run: Run) -> bool:
    """Return whether the votes are complete, disagree, and nobody has decided."""
    votes = run.votes
    undecided = votes.rating is not None and votes.settled is None
    return undecided and disagree([ballot.rewards for ballot in votes.ballots])


def rate_with(run: Run, votes: Sequence[Rating]) -> None:
    """Rate an open group with the combination of some votes, at least one."""
    event = combined_event(run.facts.server.name, run.group_id, votes)
    _set_rating(run, record_of(Rating, event, at=run.context.clock()))
    run.context.bus.publish(event)


def combined_event(server: str, group_id: str, votes: Sequence[Rating]) -> GroupRated:
    """Return the event that rates a group with the combination of its votes.

    Args:
        server: Server of the group.
        group_id: Its id.
        votes: At least one.
    """
    return record_of(
        GroupRated,
        combine(votes),
        server=server,
        group_id=group_id,
        rater=", ".join(dict.fromkeys(vote.rater for vote in votes if vote.rater)),
        raters=tuple(vote.rater for vote in votes),
        blind=all(vote.blind for vote in votes),
    )


def _set_rating(run: Run, rating: Rating) -> None:
    votes, indices = run.votes, [candidate.index for candidate in run.slots.usable]
    votes.rewards = dict(zip(indices, rating.rewards, strict=True)) if rating.rewards else {}
    votes.first_at = rating.at if votes.rating is None else votes.first_at
    votes.rating = rating


# --- words ---------------------------------------------------------------------------------------


def vote_text(vote: Rating) -> str:
    """Return a vote as text; candidates are counted from 1: `2 best`, `ranking 3 1 2`,
    `tie`."""
    places = " ".join(str(index + 1) for index in vote.order)
    match vote.rating:
        case "best":
            return f"{places} best"
        case "ranking":
            return f"ranking {places}"
        case "scores":
            return f"scores {' '.join(f'{score:g}' for score in vote.scores)}"
        case _:
            return vote.rating
