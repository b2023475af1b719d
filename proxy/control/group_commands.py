"""The operator's commands on groups: end, score or fill them, mark, note, switch the mode."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from ajet_swarm.common.errors import AjetError
from core.events import GroupMarked, GroupNoted, RatingModeChanged
from core.journal.writer import JournalError
from proxy.admission.registry import Groups
from proxy.groups import refill
from proxy.groups.rating import RatingCommands
from proxy.groups.rerun import await_answer, not_now, opened_by, request_of, rescore
from proxy.groups.run import StopReason, find_open
from proxy.http.errors import ApiError, NotNow, overloaded

ABORT_WAIT = 10.0
"""Seconds that the abort of a rated group waits for the group's end."""
MODES = ("off", "answer_first", "hold")


class GroupCommands(RatingCommands):
    """All commands on groups, those of raters included.

    Args:
        groups: The registry of open groups.
    """

    def __init__(self, groups: Groups) -> None:
        super().__init__(groups)
        self._groups = groups
        self.table = {
            **self.table,
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
            waiter = await self._groups.submit(request)
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
