"""The operator's commands on groups: rate, undo, accept, abort, mark, note, switch the mode."""

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Unpack

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line
from core.events import GroupMarked, GroupNoted, RatingModeChanged
from core.journal.history import read_group
from core.journal.writer import JournalError
from core.state import Group
from proxy.admission.registry import Groups, find_id
from proxy.control.rating import VoteDetails, Voter, accept, rate, settle, unrate
from proxy.groups import refill
from proxy.groups.rerun import await_answer, not_now, opened_by, request_of, rescore
from proxy.groups.run import GroupRun, StopReason
from proxy.groups.seal_policy import undo_deadline
from proxy.groups.votes import names_of, waits_for_decision
from proxy.http.errors import ApiError, NotNow, overloaded
from proxy.servers.facts import ROLLING

ABORT_WAIT = 10.0
"""Seconds that the abort of a rated group waits for the group's end."""
_VOTES_COUNT = "the votes so far count, without one the automatic reward"
MODES = ("off", "answer_first", "hold")


class GroupCommands:
    """Commands on groups. A group id may be abbreviated to its first characters.

    Each command returns a short message for the operator, or raises an `AjetError` that gives the
    reason when it is refused; a refused command changes nothing.

    Args:
        groups: The registry of open groups.
    """

    def __init__(self, groups: Groups) -> None:
        self.context = groups.context
        self._groups = groups
        self.table: Mapping[str, Callable[[dict[str, Any]], Awaitable[str]]] = {
            "group.rate": lambda args: self.rate(**args),
            "group.unrate": lambda args: self.unrate(**args),
            "group.settle": lambda args: self.settle(**args),
            "group.accept": lambda args: self.accept(**args),
            "group.abort": lambda args: self.abort(**args),
            "group.rescore": lambda args: self.rescore(**args),
            "group.refill": lambda args: self.refill(**args),
            "group.rerun": lambda args: self.rerun(**args),
            "group.mark": lambda args: self.mark(**args),
            "group.note": lambda args: self.note(**args),
            "rating.mode": lambda args: self.set_mode(**args),
        }

    def _require_journal(self) -> None:
        """Refuse a command that cannot be committed now, before anything changes.

        Raises:
            NotNow: the journal cannot be written.
        """
        if error := self.context.journal.error:
            todo = "Send it again once the journal can be written; see the alert"
            raise NotNow(f"nothing is changed: the journal cannot be written: {error}", todo=todo)

    async def _committed(self) -> None:
        """Wait until a kill of the proxy can no longer lose what was published before.

        Raises:
            JournalError: the journal cannot be written.
        """
        await self.context.journal.committed(self.context.bus.state.seq)

    async def rate(
        self,
        group_id: str,
        rating: str,
        order: tuple[int, ...] = (),
        scores: tuple[float, ...] = (),
        rater: str = "",
        note: str = "",
        holder: str = "",
        override: bool = False,
        **details: Unpack[VoteDetails],
    ) -> str:
        """Rate the candidates; the rating replaces the automatic reward when the group is sealed.

        The vote is committed before this returns, so that no kill of the proxy loses it.

        Raises:
            NotNow: the journal cannot be written, or another rater has rated the group differently
                or holds its lease, and `override` is not set; nothing has changed.
            JournalError: writing has just failed; the vote counts while the proxy runs.
        """
        run = self._groups.open_run(group_id, "rated")
        self._require_journal()
        voter = Voter(rater, holder, override)
        rate(run, rating, tuple(order), tuple(scores), voter=voter, note=note, **details)
        await self._committed()
        if run.rating is None:
            count = f"{len(run.ballots)} of {run.overlap}"
            return f"vote {count} on group {run.group_id} is counted: {rating}; unrate undoes it"
        return f"group {run.group_id} is rated: {rating}{self._undo_text(run)}"

    def _undo_text(self, run: GroupRun, remedy: str = "unrate undoes it") -> str:
        """Return until when a vote on the group can be undone, as text, and how."""
        settings = self.context.settings.rating
        mode = self.context.bus.state.rating_mode
        waits = settings.disagreements == "wait" and mode != "off"
        if waits and waits_for_decision(run):
            return "; the raters disagree, it waits for a decision until its clock ends"
        now = self.context.clock()
        due = undo_deadline(
            rated_at=now,
            first_rated_at=run.first_rated_at,
            mode=mode,
            window=settings.window,
            scored_at=run.scored_at,
            rolling=run.facts.server.watcher.current.is_in(ROLLING),
            clock=run.clock,
        )
        if due <= now:
            return ", and sent now"
        until = time.strftime("%H:%M:%S", time.localtime(due))
        return f", held for {math.ceil(due - now)} s until {until}: {remedy}"

    async def settle(
        self,
        group_id: str,
        rating: str,
        order: tuple[int, ...] = (),
        scores: tuple[float, ...] = (),
        rater: str = "",
        note: str = "",
    ) -> str:
        """Decide a group on which raters disagree; committed as in `rate`.

        Raises:
            NotNow: the raters do not disagree, the group is being sent, or the journal cannot be
                written; nothing has changed.
        """
        group = await self.find_any(group_id)
        self._require_journal()
        run = self._groups.runs.get(group.group_id)
        vote = (rating, tuple(order), tuple(scores))
        open_vote = settle(self.context, run, group, *vote, rater=rater, note=note)
        await self._committed()
        if open_vote and run is not None:
            held = self._undo_text(run, "settle it again to change that")
            return f"group {group.group_id} is settled: {rating}{held}"
        return f"group {group.group_id} is settled: {rating}; recorded for export, not sent again"

    async def unrate(self, group_id: str, rater: str = "", holder: str = "") -> str:
        """Undo a rating before the group is sealed; committed as in `rate`."""
        run = self._groups.open_run(group_id, "changed")
        self._require_journal()
        if not unrate(run, rater, holder):
            return f"group {run.group_id} has no rating"
        await self._committed()
        return f"group {run.group_id}: the vote on “{one_line(run.request.query, 60)}” is undone"

    async def accept(self, group_id: str, override: bool = False) -> str:
        """Seal the group now: with its rating, or else with the automatic reward.

        Args:
            group_id: Its id.
            override: Whether to seal it although votes of different raters are missing; the votes
                so far then count.

        Raises:
            NotNow: it lacks votes and `override` is not set, or it cannot be sealed.
        """
        if already := self._ended_as(group_id, "DONE"):
            return already
        run = self._groups.open_run(group_id, "accepted")
        lacks = run.overlap > 1 and run.rating is None
        if lacks and not override and self.context.bus.state.rating_mode != "off":
            votes = f"{len(run.ballots)} of {run.overlap} votes"
            by = f", by {names_of(run.ballots)}" if run.ballots else ""
            todo = f"Wait for the others, or accept it with `override`: {_VOTES_COUNT}"
            raise NotNow(f"group {run.group_id} has {votes}{by}", todo=todo)
        accept(run)
        is_rated = run.rating is not None or run.ballots
        source = "the rating" if is_rated else "the automatic reward"
        return f"group {run.group_id} is finished with {source}"

    async def abort(self, group_id: str, reason: str = "") -> str:
        """Return all episodes of a group; its user gets the best answer so far, if any."""
        if already := self._ended_as(group_id, "ABORTED"):
            return already
        run = self._groups.open_run(group_id, "aborted")
        cause = f"aborted by the operator{': ' + reason if reason else ''}"
        if not self._groups.stop(run, StopReason(cause, "ABORTED", overloaded(2))):
            raise NotNow(f"group {run.group_id} is ending already")
        if (run.rating is not None or run.ballots) and run.task is not None:
            # Until its end is committed, the next start after a kill would send the vote.
            await asyncio.wait([run.task], timeout=ABORT_WAIT)
            await self._committed()
        return f"group {run.group_id} is aborted"

    def _ended_as(self, group_id: str, phase: str) -> str:
        """Return that a group has ended, or is ending, in a phase; empty if it has not."""
        state = self.context.bus.state.groups
        whole = find_id(group_id, {**state, **self._groups.runs})
        run, group = self._groups.runs.get(whole), state.get(whole)
        if run is not None:
            ends = run.stop.phase if run.stop is not None else "DONE" if run.sealed else ""
        else:
            ends = group.phase if group is not None else ""
        words = "aborted" if phase == "ABORTED" else "finished"
        return f"group {whole} is {words} already" if ends == phase else ""

    async def rescore(self, group_id: str) -> str:
        """Score a group that is not sealed again, with the present rewards."""
        run = self._groups.open_run(group_id, "scored again")
        await rescore(run)
        return f"group {run.group_id} is scored again"

    async def refill(self, group_id: str) -> str:
        """Request the candidates that a scored group lacks, and score it again with them."""
        return await refill.request_refill(self._groups.open_run(group_id, "refilled"))

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

    async def find_any(self, group_id: str) -> Group:
        """Return a group of the state or, by its full id, of the journal.

        Raises:
            NotNow: there is no such group.
        """
        groups = self.context.bus.state.groups
        try:
            return groups[find_id(group_id, groups)]
        except NotNow:
            stored = await asyncio.to_thread(read_group, self.context.journal, group_id)
            if stored is None:
                raise
            return stored

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
