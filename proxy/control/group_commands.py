"""The commands on groups besides their rating: leases, second votes, ends, fresh answers, marks."""

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any

from ajet_swarm.common.errors import AjetError
from ajet_swarm.runtime import Chance
from core.commands.plan import refusal
from core.commands.plan_groups import LEASE_SECONDS, unrated
from core.commands.spec import NotNow
from core.dialects.errors import ApiError
from core.events import (
    GroupEdited,
    GroupLeased,
    GroupMarked,
    GroupNoted,
    GroupOpened,
    RatingModeChanged,
    RatingRepeated,
)
from core.events.causes import AbortedByHand
from core.events.rating import VoteEvent
from core.journal.file import JournalError
from core.scoring.agreement import agree
from core.state import Group
from core.state.common import record_of
from proxy.admission.registry import Groups
from proxy.context import ProxyContext
from proxy.dataset_rows import HEADER, Row, Rows
from proxy.dialects.images import has_images
from proxy.dialects.request import ChatRequest
from proxy.groups.answer import AnswerWaiter, FinalAnswer
from proxy.groups.rating import RatingCommands, rewards_of, vote_of
from proxy.groups.run import RunEnded, find_open
from proxy.groups.score import request_refill, rescore
from proxy.http.errors import overloaded

ABORT_WAIT = 10.0
"""Seconds that the abort of a rated group waits for the group's end."""
LEASE_CAP = 120.0
"""Longest lease in seconds."""
POLL = 30.0
"""Seconds between two checks whether a repeated request has its answer."""


class GroupCommands(RatingCommands):
    """All commands on groups, those that rate them included, after their plan has permitted them.

    Args:
        groups: The registry of open groups.
    """

    def __init__(self, groups: Groups) -> None:
        super().__init__(groups.context, groups.runs)
        self._groups = groups
        self.table = {
            **self.table,
            "group.lease": self.lease,
            "group.repeat": lambda **args: self.repeat(vote_of(args)),
            "group.edit": self.edit,
            "group.abort": self.abort,
            "group.rescore": self.rescore,
            "group.refill": self.refill,
            "group.rerun": self.rerun,
            "group.mark": self.mark,
            "group.note": self.note,
            "rating.mode": self.set_mode,
            "rating.accept_all": self.accept_all,
            "rating.abort_all": self.abort_all,
        }

    # --- groups on the screens of raters, and groups that were sent -------------------------------

    async def lease(
        self,
        group_id: str,
        holder: str,
        rater: str = "",
        seconds: float = LEASE_SECONDS,
        take: bool = False,
        idle: float = 0.0,
        shared: bool = False,
    ) -> str:
        """Take, renew or (0 seconds) return the lease of a group that waits for a rating, or of one
        of the inbox.

        With `rating.overlap` above 1 as many consoles may have one as votes are missing.

        Args:
            group_id: Id of the group.
            holder: Id of the console.
            rater: Name of the rater there.
            seconds: Duration of the lease.
            take: Whether to take it from another console.
            idle: Seconds since the rater's last key.
            shared: Whether others may vote on the group all the same.
        """
        group, now = await self.find_any(group_id), self.context.clock()
        until = 0.0
        if seconds > 0:
            until = now + min(seconds, LEASE_CAP)
            until = min(until, group.until) if group.open and group.until is not None else until
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
        return f"group {group_id} is {'yours to rate' if until else 'free again'}"

    async def repeat(self, vote: VoteEvent) -> str:
        """Record a second vote on a group whose first vote was sent; say whether they agree.

        Raises:
            RatingError: The rating does not fit the group.
        """
        group = await self.find_any(vote.group_id)
        sent = {
            candidate.index: candidate.reward
            for candidate in group.candidates
            if candidate.reward is not None
        }
        indices = sorted(sent)
        rewards = rewards_of(self.context, group, indices, group.n, vote)
        agrees = agree(sent, dict(zip(indices, rewards, strict=True)))
        self.context.bus.publish(
            record_of(RatingRepeated, vote, server=group.server, rewards=rewards, agrees=agrees)
        )
        return "the same as before" if agrees else "not the same as before"

    async def edit(self, group_id: str, index: int, edited: str, rater: str = "") -> str:
        """Store a better text for one answer, also of a closed group. It is never sent."""
        await self._record(GroupEdited, group_id, index=index, edited=edited, rater=rater)
        result = "kept, not sent" if edited else "removed"
        return f"the correction of answer {index + 1} is {result}"

    # --- one group, open or closed ----------------------------------------------------------------

    async def abort(self, group_id: str, reason: str = "") -> str:
        """Return all episodes of a group; its user gets the best answer so far, if any."""
        run = find_open(self._runs, group_id)
        if run.stop is not None and run.stop.phase == "ABORTED":
            return f"group {run.group_id} is aborted already"
        cause = f"aborted by the operator{': ' + reason if reason else ''}"
        end = RunEnded("ABORTED", cause, AbortedByHand(), refusal=overloaded(2))
        if not self._groups.stop(run, end):
            raise NotNow(f"group {run.group_id} is ending already")
        if run.votes.ballots and run.work is not None:
            # Until its end is on the disk, the next start after a kill would send the vote.
            await asyncio.wait([run.work], timeout=ABORT_WAIT)
            await self._durable()
        return f"group {run.group_id} is aborted"

    async def rescore(self, group_id: str) -> str:
        """Score a group that is not sealed again, with the present rewards."""
        run = find_open(self._runs, group_id)
        await rescore(run)
        return f"group {run.group_id} is scored again"

    async def refill(self, group_id: str) -> str:
        """Request the candidates that a scored group lacks, and score it again with them."""
        return await request_refill(find_open(self._runs, group_id))

    async def rerun(self, group_id: str) -> tuple[str, dict[str, Any]]:
        """Repeat the request of any group, closed ones included, as a new group.

        Returns:
            A message, and the id of the new group as `group_id`.
        """
        context, opened = self.context, await opened_event(self.context, group_id)
        try:
            request = request_of(opened, context.rows, context.runtime.chance)
            waiter = self._groups.admission.admit(request)
        except ApiError as refusal:
            raise NotNow(f"it cannot be asked again now: {refusal.message}") from None
        context.tasks.spawn(await_answer(waiter), f"again:{waiter.group_id}")
        message = f"group {group_id} is asked again as group {waiter.group_id}"
        return message, {"group_id": waiter.group_id}

    async def _record(
        self, kind: type[GroupEdited | GroupMarked | GroupNoted], group_id: str, **fields: Any
    ) -> None:
        group = await self.find_any(group_id)
        self.context.bus.publish(kind(server=group.server, group_id=group_id, **fields))

    async def mark(self, group_id: str, marked: bool = True) -> str:
        """Set or clear the mark of a group, also of a closed one."""
        await self._record(GroupMarked, group_id, marked=marked)
        return f"group {group_id} is {'marked' if marked else 'no longer marked'}"

    async def note(self, group_id: str, note: str) -> str:
        """Set the note of a group, also of a closed one; an empty text clears it."""
        await self._record(GroupNoted, group_id, note=note)
        return f"the note of group {group_id} is {'written' if note else 'cleared'}"

    async def set_mode(self, mode: str) -> str:
        """Switch the rating mode, for open groups too."""
        self.context.bus.publish(RatingModeChanged(mode=mode))
        return f"the rating mode is {mode.replace('_', ' ')}"

    # --- all groups that wait ---------------------------------------------------------------------

    async def accept_all(self, server: str = "") -> str:
        """Seal all waiting groups; those with neither rating nor automatic reward stay open.

        Votes that are missing are not waited for.
        """
        waiting = self.context.bus.state.waiting()
        groups = [group for group in waiting if not server or group.server == server]
        done, failed = await self._each("group.accept", groups, override=True)
        wait = "waits" if failed == 1 else "wait"
        rest = f"; {failed} without an automatic reward still {wait}" if failed else ""
        return f"{_groups(done)} finished{rest}"

    async def abort_all(self, server: str = "", reason: str = "") -> str:
        """Abort all waiting groups that have no rating."""
        groups = unrated(self.context.bus.state, server or None)
        done, failed = await self._each("group.abort", groups, reason=reason)
        rest = f"; {failed} {'was' if failed == 1 else 'were'} ending already" if failed else ""
        return f"{_groups(done)} aborted{rest}"

    async def _each(self, name: str, groups: Iterable[Group], **more: Any) -> tuple[int, int]:
        """Return the number of groups a command was executed on, and the number it failed on."""
        done = failed = 0
        for group in groups:
            args = {"group_id": group.group_id, **more}
            try:
                if why := refusal(self.context.bus.state, name, args, self.context.clock()):
                    raise why
                await self.table[name](**args)
                done += 1
            except AjetError:  # it has just ended, or has no automatic reward: it counts as failed
                failed += 1
        return done, failed


def _groups(count: int) -> str:
    return "1 group is" if count == 1 else f"{count} groups are"


# --- the same request again ----------------------------------------------------------------------


def request_of(opened: GroupOpened, rows: Rows, chance: Chance) -> ChatRequest:
    """Return the request of a group as a new request, with new ids and keys.

    A request from a dataset has its row announced again, for its reference and metadata.
    """
    headers = {}
    if opened.row_id:
        name = opened.row_id
        if rows.match({HEADER: name}, "") is not None:  # the mock user has announced this row
            name = f"{name}~{chance.token(2)}"
        rows.register(
            Row(
                row_id=name,
                query=opened.query,
                task_id=opened.dataset_task_id,
                reference=opened.reference,
                metadata=opened.metadata or {},
            )
        )
        headers[HEADER] = name
    return own_request(
        chance,
        f"again-{chance.token(4)}",
        opened.body,
        query=opened.query,
        model=opened.model,
        train=opened.episode_type != "eval",
        headers=headers,
        waits_for_votes=True,
    )


def own_request(
    chance: Chance, name: str, body: dict[str, Any], *, query: str, model: str, **more: Any
) -> ChatRequest:
    """Return a request of the proxy itself: a stream, which may wait longer for its episode."""
    return ChatRequest(
        request_id=name,
        body=body,
        messages=body.get("messages", []),
        query=query,
        model=model,
        stream=True,
        session=name,
        key=chance.token(16),
        **more,
    )


async def await_answer(waiter: AnswerWaiter) -> FinalAnswer | None:
    """Wait for the answer to a request of the proxy itself, in place of a user.

    Returns:
        The answer, confirmed as delivered; None if its group is gone.
    """
    try:
        while not isinstance(reply := await waiter.next(POLL), FinalAnswer):
            if waiter.left:
                return None
        waiter.confirm_delivery()
        return reply
    finally:
        waiter.leave()


async def caught_up(context: ProxyContext) -> None:
    """Wait until everything published before now can be read from the journal.

    If the journal cannot be written, an alert reports it, and what is on disk is still read.
    """
    with contextlib.suppress(JournalError):
        await context.journal.committed(context.bus.state.seq)


async def opened_event(context: ProxyContext, group_id: str) -> GroupOpened:
    """Return the event that opened a group, also one that was just published.

    Raises:
        NotNow: The journal does not contain the request.
    """
    await caught_up(context)
    return await asyncio.to_thread(opened_by, context, group_id)


def opened_by(context: ProxyContext, group_id: str) -> GroupOpened:
    """Return the event that opened a group, from the journal; blocks.

    Raises:
        NotNow: The journal does not contain the request.
    """
    for event in context.journal.group_events(group_id):
        if isinstance(event, GroupOpened):
            messages = event.body.get("messages")
            if isinstance(messages, list):
                if has_images(messages):
                    raise NotNow(f"the images of group {group_id} are not kept")
                return event
            break
    raise NotNow(f"the request of group {group_id} is not kept")
