"""The commands on groups besides their rating: leases, second votes, ends, fresh answers, marks."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line
from core.events import (
    GroupEdited,
    GroupLeased,
    GroupMarked,
    GroupNoted,
    RatingModeChanged,
    RatingRepeated,
)
from core.journal.writer import JournalError
from core.scoring.agreement import agree
from proxy.admission.registry import Groups
from proxy.groups import refill
from proxy.groups.rating import RatingCommands, names_of, rewards_of
from proxy.groups.rerun import await_answer, not_now, opened_by, request_of, rescore
from proxy.groups.run import StopReason, find_open
from proxy.http.errors import ApiError, NotNow, overloaded

ABORT_WAIT = 10.0
"""Seconds that the abort of a rated group waits for the group's end."""
LEASE = 20.0
"""Default duration of a lease in seconds; a console renews it while it shows the group."""
LEASE_CAP = 120.0
MODES = ("off", "answer_first", "hold")


class GroupCommands(RatingCommands):
    """All commands on groups, those that rate them included.

    Args:
        groups: The registry of open groups.
    """

    def __init__(self, groups: Groups) -> None:
        super().__init__(groups)
        self._groups = groups
        self.table = {
            **self.table,
            "group.lease": lambda args: self.lease(**args),
            "group.repeat": lambda args: self.repeat(**args),
            "group.edit": lambda args: self.edit(**args),
            "group.abort": lambda args: self.abort(**args),
            "group.rescore": lambda args: self.rescore(**args),
            "group.refill": lambda args: self.refill(**args),
            "group.rerun": lambda args: self.rerun(**args),
            "group.mark": lambda args: self.mark(**args),
            "group.note": lambda args: self.note(**args),
            "rating.mode": lambda args: self.set_mode(**args),
            "rating.accept_all": lambda args: self.accept_all(**args),
            "rating.abort_all": lambda args: self.abort_all(**args),
        }

    # --- groups on the screens of raters, and groups that were sent -------------------------------

    async def lease(
        self,
        group_id: str,
        holder: str,
        rater: str = "",
        seconds: float = LEASE,
        take: bool = False,
        idle: float = 0.0,
        shared: bool = False,
    ) -> str:
        """Take, renew or (0 seconds) return the lease of a group that waits for a rating.

        With `rating.overlap` above 1 as many consoles may have one as votes are missing.

        Args:
            group_id: Id of the group.
            holder: Id of the console.
            rater: Name of the rater there.
            seconds: Duration of the lease.
            take: Whether to take it from another console.
            idle: Seconds since the rater's last key.
            shared: Whether others may vote on the group all the same.

        Raises:
            NotNow: Other consoles hold all leases and `take` is not set, the rater has voted on the
                group, or the group does not wait for votes.
        """
        group, now = self.find_known(group_id), self.context.clock()
        name, another = f"group {group.group_id}", "Rate another one"
        if seconds > 0 and group.overlap > 1:
            if group.vote_of(rater, holder) is not None:
                raise NotNow(f"{rater or 'you'} voted on {name} before", todo=another)
            if group.rating is not None:
                raise NotNow(f"{name} has its votes, by {names_of(group.votes)}", todo=another)
        if not take and not group.is_free(holder, now):
            leases = group.leases_of_others(holder, now)
            verb = "is" if len(leases) == 1 else "are"
            todo = f"{another}, or take it over with `take`"
            raise NotNow(f"{names_of(leases)} {verb} rating {name}", todo=todo)
        until = 0.0
        if seconds > 0:
            if group.phase != "AWAITING_RATING":
                raise NotNow(f"{name} does not wait for a rating")
            until = now + min(seconds, LEASE_CAP)
            until = until if group.until is None else min(until, group.until)
        elif group.lease is None:
            return f"{name} was free"
        self.context.bus.publish(
            GroupLeased(
                server=group.server,
                group_id=group.group_id,
                holder=holder,
                rater=rater,
                until=until,
                key_at=now - max(idle, 0.0),
                shared=shared,
            )
        )
        return f"{name} is {'yours to rate' if until else 'free again'}"

    async def repeat(
        self,
        group_id: str,
        rating: str,
        order: tuple[int, ...] = (),
        scores: tuple[float, ...] = (),
        rater: str = "",
        shown: tuple[int, ...] = (),
        seed: str = "",
        looked: float = 0.0,
    ) -> str:
        """Record a second vote on a group whose first vote was sent; say whether they agree.

        The arguments are those of `rate`.

        Raises:
            NotNow: The group has no rating that was sent or had a second vote already, the first
                vote is not of this rater, or the vote is a skip.
            RatingError: The rating does not fit the group.
        """
        group = self.find_known(group_id)
        name = f"group {group.group_id}"
        sent = {one.index: one.reward for one in group.candidates if one.reward is not None}
        if group.source != "human" or not sent:
            raise NotNow(f"{name} has no rating that was sent")
        if rating == "skip":
            raise NotNow("a skip judges nothing", todo="Leave the second vote out")
        votes = group.votes or ([] if group.rating is None else [group.rating])
        judges = [one.rater for one in votes if one.rewards]
        if rater not in judges:
            names = " and ".join(one_line(one, 40) or "a rater without a name" for one in judges)
            todo = "A second vote is compared with one's own first vote"
            raise NotNow(f"the vote on {name} that was sent is of {names}", todo=todo)
        if group.repeated:
            raise NotNow(f"{name} has had its second vote", todo="Rate another one")
        indices, order, scores = sorted(sent), tuple(order), tuple(scores)
        rewards = rewards_of(self.context, group, indices, group.n, rating, order, scores)
        agrees = agree(sent, dict(zip(indices, rewards, strict=True)))
        self.context.bus.publish(
            RatingRepeated(
                server=group.server,
                group_id=group.group_id,
                rating=rating,
                order=order,
                scores=scores,
                rewards=rewards,
                agrees=agrees,
                rater=rater,
                shown=shown,
                seed=seed,
                looked=looked,
            )
        )
        return "the same as before" if agrees else "not the same as before"

    async def edit(self, group_id: str, index: int, edited: str, rater: str = "") -> str:
        """Store a better text for one answer, also of a closed group. It is never sent.

        Raises:
            NotNow: The group has no such candidate.
        """
        group = self.find_known(group_id)
        if not 0 <= index < len(group.candidates):
            raise NotNow(f"group {group.group_id} has no candidate {index + 1}")
        self.context.bus.publish(
            GroupEdited(
                server=group.server,
                group_id=group.group_id,
                index=index,
                edited=edited,
                rater=rater,
            )
        )
        result = "kept, not sent" if edited else "removed"
        return f"the correction of answer {index + 1} is {result}"

    # --- one group, open or closed ----------------------------------------------------------------

    async def abort(self, group_id: str, reason: str = "") -> str:
        """Return all episodes of a group; its user gets the best answer so far, if any."""
        if already := self._ended_as(group_id, "ABORTED"):
            return already
        run = find_open(self._groups, group_id, "aborted")
        cause = f"aborted by the operator{': ' + reason if reason else ''}"
        if not self._groups.stop(run, StopReason(cause, "ABORTED", overloaded(2))):
            raise NotNow(f"group {run.group_id} is ending already")
        if run.votes.ballots and run.task is not None:
            # Until its end is committed, the next start after a kill would send the vote.
            await asyncio.wait([run.task], timeout=ABORT_WAIT)
            await self._committed()
        return f"group {run.group_id} is aborted"

    async def rescore(self, group_id: str) -> str:
        """Score a group that is not sealed again, with the present rewards."""
        run = find_open(self._groups, group_id, "scored again")
        await rescore(run)
        return f"group {run.group_id} is scored again"

    async def refill(self, group_id: str) -> str:
        """Request the candidates that a scored group lacks, and score it again with them."""
        return await refill.request_refill(find_open(self._groups, group_id, "refilled"))

    async def rerun(self, group_id: str) -> str:
        """Repeat the request of any group, closed ones included, as a new group."""
        group = await self.find_any(group_id)
        context = self.context
        with contextlib.suppress(JournalError):  # then read the journal as it is
            await context.journal.committed(context.bus.state.seq)
        opened = await asyncio.to_thread(opened_by, context, group.group_id)
        try:
            request = request_of(opened, context.rows, context.runtime.chance)
            waiter = self._groups.admission.admit(request)
        except ApiError as refusal:
            raise not_now(refusal) from None
        context.tasks.spawn(await_answer(waiter), f"again:{waiter.group_id}")
        return f"group {group.group_id} is asked again as group {waiter.group_id}"

    async def mark(self, group_id: str, marked: bool = True) -> str:
        """Set or clear the mark of a group, also of a closed one."""
        group = await self.find_any(group_id)
        self.context.bus.publish(
            GroupMarked(server=group.server, group_id=group.group_id, marked=marked)
        )
        return f"group {group.group_id} is {'marked' if marked else 'no longer marked'}"

    async def note(self, group_id: str, note: str) -> str:
        """Set the note of a group, also of a closed one; an empty text clears it."""
        group = await self.find_any(group_id)
        self.context.bus.publish(
            GroupNoted(server=group.server, group_id=group.group_id, note=note)
        )
        return f"the note of group {group.group_id} is {'written' if note else 'cleared'}"

    async def set_mode(self, mode: str) -> str:
        """Switch the rating mode, for open groups too."""
        if mode not in MODES:
            raise AjetError(f"there is no rating mode {mode}", todo=f"Known: {', '.join(MODES)}")
        self.context.bus.publish(RatingModeChanged(mode=mode))
        return f"the rating mode is {mode.replace('_', ' ')}"

    # --- all groups that wait ---------------------------------------------------------------------

    async def accept_all(self, server: str = "") -> str:
        """Seal all waiting groups; those with neither rating nor automatic reward stay open.

        Votes that are missing are not waited for.
        """
        done, failed = await self._each(server, lambda group_id: self.accept(group_id, True))
        wait = "waits" if failed == 1 else "wait"
        rest = f"; {failed} without an automatic reward still {wait}" if failed else ""
        return f"{_groups(done)} finished{rest}"

    async def abort_all(self, server: str = "", reason: str = "") -> str:
        """Abort all waiting groups that have no rating."""
        done, failed = await self._each(
            server, lambda group_id: self.abort(group_id, reason), unrated=True
        )
        rest = f"; {failed} {'was' if failed == 1 else 'were'} ending already" if failed else ""
        return f"{_groups(done)} aborted{rest}"

    async def _each(
        self, server: str, command: Callable[[str], Awaitable[str]], unrated: bool = False
    ) -> tuple[int, int]:
        """Return the number of groups a command was executed on, and the number it failed on."""
        if server and server not in self.context.servers:
            known = ", ".join(self.context.servers)
            raise NotNow(f"there is no swarm server {server}", todo=f"Known: {known}")
        done = failed = 0
        for group in self.context.bus.state.waiting():
            is_rated = group.rating is not None or group.votes
            if (server and group.server != server) or (unrated and is_rated):
                continue
            try:
                await command(group.group_id)
                done += 1
            except AjetError:  # it has just ended, or has no automatic reward: it counts as failed
                failed += 1
        return done, failed


def _groups(count: int) -> str:
    return "1 group is" if count == 1 else f"{count} groups are"
