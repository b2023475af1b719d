"""Ends and aborts of `AsyncSwarm`."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from ajet_swarm.api.outcomes import EndKind, EndOutcome
from ajet_swarm.api.watcher import Watcher
from ajet_swarm.api.wire import RUNNER, SwarmWire
from ajet_swarm.client.episode import wire_output
from ajet_swarm.common.tasks import Tasks
from ajet_swarm.episodes.deadlines import EpisodeDeadline, EpisodeDeadlines
from ajet_swarm.episodes.releases import EpisodeReleaser
from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.schemas import WireOutput
from ajet_swarm.protocol.task import Task, WorkflowOutput

T = TypeVar("T")

LOOK_AGAIN = (0.5, 2.0, 5.0, 10.0)
"""Seconds before each lookup of an episode whose end received no response."""
BACK = 60.0
"""Seconds to wait for the server in order to send an end that could not be sent."""

_GRANTED_AGAIN = EndOutcome(
    EndKind.NOT_CLAIMED, "the server took it back, and granted it to this client again"
)


@dataclass(frozen=True, slots=True)
class _End:
    """One end as it is sent."""

    uuid: str
    task_id: str
    wire: WireOutput
    active: bool
    times: EpisodeDeadline


class EpisodeEnds:
    """Ends and aborts of the episodes that one client holds.

    Each continues when its caller is cancelled.

    Args:
        wire: The server.
        watcher: Its watcher.
        releaser: Gives episodes back.
        deadlines: Records of the claims of this client.
        work: Owner of the tasks.
        mine: Returns the episodes that the server holds for this client; None when unknown.
    """

    def __init__(
        self,
        wire: SwarmWire,
        watcher: Watcher,
        releaser: EpisodeReleaser,
        deadlines: EpisodeDeadlines,
        work: Tasks,
        mine: Callable[[], Awaitable[set[str] | None]],
    ) -> None:
        self._wire = wire
        self._watcher = watcher
        self._releaser = releaser
        self._deadlines = deadlines
        self._work = work
        self._mine = mine

    async def end(
        self,
        task: Task | str,
        uuid: str,
        times: EpisodeDeadline | None,
        output: WorkflowOutput,
        active: bool = True,
    ) -> EndOutcome:
        """End the episode of one claim, see `AsyncSwarm.end_episode`.

        Args:
            task: The task.
            uuid: The episode.
            times: The record of the claim; None if it is unknown.
            output: The reward.
            active: Count this client among those that agree on updates.

        Raises:
            SwarmError: It is being ended already.
            WrongUse: As of `AsyncSwarm.end_episode`.
        """
        last = self._deadlines.get(uuid)
        if last is not None and last is not times:
            return _GRANTED_AGAIN
        if last is not None and last.ending:
            raise SwarmError("this episode is already being ended", uuid)
        if last is None or self._deadlines.is_expired(last):
            work = self._expired(uuid, last)
        else:
            work = self._end(task, uuid, last, output, active)
        if last is not None:
            last.ending = True
        return await self._run_shielded(work, "end")

    async def _end(
        self,
        task: Task | str,
        uuid: str,
        times: EpisodeDeadline,
        output: WorkflowOutput,
        active: bool,
    ) -> EndOutcome:
        try:
            task_id, wire = wire_output(task, uuid, output)
            return await self._send_end(_End(uuid, task_id, wire, active, times))
        except Exception as error:  # give the episode back after any error
            await self._give_back(uuid, times, "it could not be ended")
            if isinstance(error, SwarmError):
                raise
            text = f"it could not be ended: {type(error).__name__}: {error}"
            raise SwarmError(text, f"episode {uuid}", "It was given back") from error
        finally:
            self._deadlines.drop(uuid, times)

    async def _send_end(self, end: _End) -> EndOutcome:
        if self._deadlines.may_be_taken(end.times) and not await self._is_last(end):
            return _GRANTED_AGAIN
        outcome = await self._send_once(end)
        if outcome.kind is EndKind.UNREACHABLE:
            outcome = await self._send_later(end, outcome)
        if outcome.kind is EndKind.UNKNOWN_OUTCOME:
            outcome = await self._look_up(end, outcome.timed_out)
        if outcome.kind is EndKind.ERROR:
            await self._give_back(end.uuid, end.times, "its end was refused")
        return outcome

    async def _send_once(self, end: _End) -> EndOutcome:
        """Send an end, and wait for as long as the server waits for its runner."""
        clock = asyncio.get_running_loop().time
        began = clock()
        outcome = await self._wire.end(end.uuid, end.task_id, end.wire, end.active, timeout=RUNNER)
        if outcome.kind is EndKind.UNKNOWN_OUTCOME:
            self._releaser.spare_cut_off(end.uuid, clock() - began)
        return outcome

    async def _send_later(self, end: _End, outcome: EndOutcome) -> EndOutcome:
        """Wait for the server within the episode's lifetime, then send an end that was not sent.

        Nothing is sent if this client was granted the same uuid again meanwhile.
        """
        clock = asyncio.get_running_loop().time
        until = clock() + BACK
        while outcome.kind is EndKind.UNREACHABLE and not self._deadlines.is_expired(end.times):
            left = until - clock()
            if left <= 0:
                break
            try:
                await self._watcher.refresh(left)
                await self._watcher.wait_for(lambda seen: seen.reachable, left)
            except TimeoutError:
                break
            if not await self._is_last(end):
                return _GRANTED_AGAIN
            outcome = await self._send_once(end)
        return outcome

    async def _is_last(self, end: _End) -> bool:
        """Return whether this client was granted no later claim of the uuid; wait for the claims in
        flight, which may get it."""
        async with self._releaser.lock:
            return self._deadlines.is_last(end.uuid, end.times)

    async def _look_up(self, end: _End, timed_out: bool) -> EndOutcome:
        """Look up an episode whose end got no response; repeat the end if it did not arrive.

        It did not arrive if the same claim still holds the episode after the last lookup, unless
        the server took longer than it ever should. An eval episode is given back instead: its
        reward counts nowhere, and its uuid returns to the pool, where the end could hit the next
        claim. It is not while the server may go on with an end that was cut off.
        """
        for pause in LOOK_AGAIN:
            await asyncio.sleep(pause)
            try:
                async with self._releaser.lock:  # a claim in flight may get the same uuid
                    records = await self._wire.buffer()
            except SwarmError:
                continue
            held = [r for r in records if r.episode_uuid == end.uuid and r.claimed]
            if not held or held[0].client_uuid != self._wire.client_uuid:
                return EndOutcome(
                    EndKind.UNKNOWN_OUTCOME, "no answer came; the server does not hold it any more"
                )
            if not self._deadlines.is_last(end.uuid, end.times):
                return EndOutcome(
                    EndKind.UNKNOWN_OUTCOME, "no answer came; the server has granted it again"
                )
            if pause != LOOK_AGAIN[-1]:
                continue
            if end.times.counts and not timed_out:
                return await self._send_once(end)
            if self._releaser.spares(end.uuid):
                return EndOutcome(
                    EndKind.UNKNOWN_OUTCOME, "no answer came; the server may still process it"
                )
            await self._releaser.give_back([end.uuid], "its end got no answer")
            return EndOutcome(EndKind.UNKNOWN_OUTCOME, "no answer came; it was given back")
        return EndOutcome(
            EndKind.UNKNOWN_OUTCOME, "no answer came, and the server does not report it"
        )

    async def _expired(self, uuid: str, times: EpisodeDeadline | None) -> EndOutcome:
        """Give back an episode whose lifetime has passed, if this client still holds it."""
        try:
            held = await self._give_back(uuid, times, "its time was over")
        finally:
            self._deadlines.drop(uuid, times)
        if not held:
            return EndOutcome(EndKind.NOT_FOUND, "it is not ours any more")
        text = "longer than its lifetime; a larger discard_episode_timeout gives more"
        return EndOutcome(EndKind.EXPIRED, text)

    async def abort(self, uuid: str, times: EpisodeDeadline | None, active: bool = False) -> bool:
        """Give back the episode of one claim, see `AsyncSwarm.abort_episode`."""
        last = self._deadlines.get(uuid)
        if last is not None:
            if last is not times or last.ending:
                return False
            last.ending = True
        return await self._run_shielded(self._abort(uuid, last, active), "abort")

    async def _abort(self, uuid: str, times: EpisodeDeadline | None, active: bool) -> bool:
        try:
            known = not self._deadlines.may_be_taken(times)
            return await self._give_back(uuid, times, "aborted", known=known, active=active)
        finally:
            self._deadlines.drop(uuid, times)

    async def _give_back(
        self,
        uuid: str,
        times: EpisodeDeadline | None,
        why: str,
        *,
        known: bool = False,
        active: bool = False,
    ) -> bool:
        """Abort an episode; unless it is `known` to be held, check that this claim still holds it.

        Returns:
            False when another claim or nobody holds it, or the server does not report it.
        """
        if not known:
            async with self._releaser.lock:  # a claim in flight may get the same uuid
                mine = await self._mine()
            if mine is None:
                self._releaser.sweep_soon()
            if mine is None or uuid not in mine or not self._deadlines.is_last(uuid, times):
                return False
        await self._releaser.give_back([uuid], why, active=active)
        return True

    async def _run_shielded(self, work: Coroutine[Any, Any, T], name: str) -> T:
        """Run `work` to its end even if the caller is cancelled."""
        done = await asyncio.shield(self._work.spawn(_result_or_error(work), name))
        if isinstance(done, SwarmError):
            raise done
        result: T = done
        return result


async def _result_or_error(work: Coroutine[Any, Any, T]) -> T | SwarmError:
    """Return the result of `work`, or its error as a value, which a task would log otherwise."""
    try:
        return await work
    except SwarmError as error:
        return error
