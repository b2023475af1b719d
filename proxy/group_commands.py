"""The operator's orders on groups: rate, undo, accept, abort, mark, note, switch the mode."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Unpack

from core.errors import AjetError
from core.events import GroupMarked, GroupNoted, RatingModeChanged
from core.history import read_group
from core.journal import JournalError
from core.state import Group
from proxy import refill
from proxy.again import listen, not_now, opened_by, request_of, rescore
from proxy.conversation import ChatRequest
from proxy.errors import NotNow, Refusal, busy
from proxy.rating import Look, accept, rate, unrate
from proxy.run import Run, Stop, Ticket
from proxy.seat import Seat

MODES = ("off", "answer_first", "hold")


class GroupCommands:
    """What can be ordered. Ids may be cut to their first characters.

    All of them return a short message for people, and raise an `AjetError` that says why when the
    order cannot be carried out: nothing has changed then.

    Args:
        seat: The proxy's shared parts.
        stop: Ends a run before its time; False when it is too late.
        submit: Admits a request.
    """

    def __init__(
        self,
        seat: Seat,
        stop: Callable[[Run, Stop], bool],
        submit: Callable[[ChatRequest], Awaitable[Ticket]],
    ) -> None:
        self.seat = seat
        self._runs: dict[str, Run] = {}
        """Groups that live, by id."""
        self._stopper = stop
        self._submitter = submit

    def find(self, group_id: str, ids: Iterable[str]) -> str:
        """The whole id of a group among `ids`, from its first characters.

        Raises:
            NotNow: none, or several, begin so.
        """
        known = list(ids)
        found = [one for one in known if one == group_id] or [
            one for one in known if group_id and one.startswith(group_id)
        ]
        if len(found) == 1:
            return found[0]
        if found:
            raise NotNow(f"{len(found)} groups begin with {group_id}", todo="Give more of the id")
        raise NotNow(f"there is no group {group_id}", todo="Give the whole id of an old one")

    def _live_run(self, group_id: str, what: str) -> Run:
        whole = self.find(group_id, {**self.seat.bus.state.groups, **self._runs})
        run = self._runs.get(whole)
        if run is None or run.closing:
            raise NotNow(f"group {whole} is over: it cannot be {what}")
        if run.sealed:
            raise NotNow(f"group {whole} is already sealed: it cannot be {what}")
        return run

    async def rate(
        self,
        group_id: str,
        rating: str,
        order: tuple[int, ...] = (),
        scores: tuple[float, ...] = (),
        rater: str = "",
        note: str = "",
        **look: Unpack[Look],
    ) -> str:
        """Rate the candidates; replaces the automatic reward when the group is sealed."""
        run = self._live_run(group_id, "rated")
        rate(run, rating, tuple(order), tuple(scores), rater=rater, note=note, **look)
        return f"group {run.group_id} is rated: {rating}"

    async def unrate(self, group_id: str, rater: str = "") -> str:
        """Take a rating back, as long as it is not sealed."""
        run = self._live_run(group_id, "changed")
        unrate(run, rater)
        return f"the rating of group {run.group_id} is taken back"

    async def accept(self, group_id: str) -> str:
        """Seal now: with the rating if there is one, else with the automatic reward."""
        run = self._live_run(group_id, "accepted")
        accept(run)
        what = "the rating" if run.rating is not None else "the automatic reward"
        return f"group {run.group_id} is sealed with {what}"

    async def abort(self, group_id: str, reason: str = "") -> str:
        """Give all episodes of a group back; its user gets what answer there is."""
        run = self._live_run(group_id, "aborted")
        cause = f"aborted by the operator{': ' + reason if reason else ''}"
        if not self._stopper(run, Stop(cause, "ABORTED", busy(2))):
            raise NotNow(f"group {run.group_id} is ending already")
        return f"group {run.group_id} is aborted"

    async def rescore(self, group_id: str) -> str:
        """Score a group again that is not sealed, with the present rewards."""
        run = self._live_run(group_id, "scored again")
        await rescore(run)
        return f"group {run.group_id} is scored again"

    async def refill(self, group_id: str) -> str:
        """Ask for the candidates that a scored group is short of, and score it again with them."""
        return await refill.order(self._live_run(group_id, "refilled"))

    async def rerun(self, group_id: str) -> str:
        """Ask the request of a group again, however old it is; it becomes a new group."""
        group = await self._any_group(group_id)
        seat = self.seat
        with contextlib.suppress(JournalError):  # then what is on disk must do
            await seat.journal.committed(seat.bus.state.seq)
        opened = await asyncio.to_thread(opened_by, seat, group.group_id)
        try:
            ticket = await self._submitter(request_of(opened, seat.rows))
        except Refusal as refusal:
            raise not_now(refusal) from None
        seat.tasks.spawn(listen(ticket), f"again:{ticket.group_id}")
        return f"group {group.group_id} is asked again as group {ticket.group_id}"

    async def _any_group(self, group_id: str) -> Group:
        """A group of state, or of the journal by its whole id.

        Raises:
            NotNow: there is none.
        """
        groups = self.seat.bus.state.groups
        try:
            return groups[self.find(group_id, groups)]
        except NotNow:
            found = await asyncio.to_thread(read_group, self.seat.journal, group_id)
            if found is None:
                raise
            return found

    async def mark(self, group_id: str, marked: bool | None = None) -> str:
        """Set, clear or (None) toggle the mark of a group, also of one that is over."""
        group = await self._any_group(group_id)
        wanted = not group.marked if marked is None else marked
        self.seat.bus.publish(
            GroupMarked(server=group.server, group_id=group.group_id, marked=wanted)
        )
        return f"group {group.group_id} is {'marked' if wanted else 'no longer marked'}"

    async def note(self, group_id: str, note: str) -> str:
        """Write a note on a group, also on one that is over; an empty one clears it."""
        group = await self._any_group(group_id)
        self.seat.bus.publish(GroupNoted(server=group.server, group_id=group.group_id, note=note))
        return f"the note of group {group.group_id} is {'written' if note else 'cleared'}"

    async def set_mode(self, mode: str) -> str:
        """Switch how people rate; it holds for open groups too."""
        if mode not in MODES:
            raise AjetError(f"there is no rating mode {mode}", todo=f"Known: {', '.join(MODES)}")
        self.seat.bus.publish(RatingModeChanged(mode=mode))
        return f"the rating mode is {mode.replace('_', ' ')}"
