"""Cleans up after a proxy that was killed: nothing stays claimed, no reward is sent twice.

The journal says which groups were open and which of them were sealed; the server's buffer says
which episodes still live as ours. Sealed rewards whose episode lives are sent, everything else is
aborted.
"""

import asyncio
import logging
from collections.abc import Mapping

from core.events import EpisodeAborted, GroupClosed
from core.state import Candidate, Group
from core.tasks import Tasks
from proxy.seat import Seat, ServerSeat
from proxy.sense import Sense
from proxy.submit import Ending, end, ours, publish_end
from swarm.schemas import WorkflowOutput

log = logging.getLogger(__name__)

CAUSE = "proxy was killed"
OVER = frozenset({"ended", "recorded", "aborted", "expired"})
"""Phases of candidates that need nothing more. A failed one may not have been given back yet."""


class Recovery:
    """One start's clean-up."""

    def __init__(self, seat: Seat, senses: Mapping[str, Sense], tasks: Tasks) -> None:
        self.seat = seat
        self.senses = senses
        self._tasks = tasks

    async def run(self, seconds: float) -> None:
        """Clean up at every server; what takes longer than `seconds` goes on in the background."""
        left: dict[str, list[Group]] = {name: [] for name in self.seat.servers}
        for group in self.seat.bus.state.open_groups():
            if group.server in left:
                left[group.server].append(group)
            else:
                self._close(group, "FAILED", f"{CAUSE}; {group.server} is no longer configured")
        works = [
            self._tasks.spawn(self._server(self.senses[name], groups), f"recover:{name}")
            for name, groups in left.items()
        ]
        if works:
            _, pending = await asyncio.wait(works, timeout=seconds)
            for work in pending:
                log.warning("%s goes on in the background", work.get_name())

    async def _server(self, sense: Sense, groups: list[Group]) -> None:
        if groups:
            text = "%s: %d groups were open when the proxy was killed"
            log.warning(text, sense.server.name, len(groups))
        held = await ours(sense.server)
        if held is not None:
            await self._clean(sense, groups, held)
        else:  # the start does not wait for a server that is not there
            self._tasks.spawn(self._later(sense, groups), f"recover later:{sense.server.name}")

    async def _later(self, sense: Sense, groups: list[Group]) -> None:
        """Clean up once the server answers; its groups stay open until then."""
        pause = 0.1
        while (held := await ours(sense.server)) is None:
            await asyncio.sleep(pause)
            pause = min(2 * pause, 5.0)
            await sense.server.watcher.wait_for(lambda seen: seen.reachable)
        await self._clean(sense, groups, held)

    async def _clean(self, sense: Sense, groups: list[Group], held: set[str]) -> None:
        mine = {uuid for uuid in held if not sense.holds(uuid)}
        works = (self._group(sense.server, group, mine) for group in groups)
        for failure in await asyncio.gather(*works, return_exceptions=True):
            if failure is not None:  # it stays open in the journal: the next start tries again
                log.error("a group was not cleaned up", exc_info=failure)
        sense.sweep_soon()

    async def _group(self, server: ServerSeat, group: Group, held: set[str]) -> None:
        mine = [one for one in group.candidates if one.episode_uuid and one.phase not in OVER]
        sealed = group.sealed_at is not None
        ended = any(one.phase in ("ended", "recorded") for one in group.candidates)
        works = []
        for one in mine:
            if sealed and one.reward is not None and one.phase != "failed":
                works.append(self._end(server, group, one, one.reward, held))
            else:
                works.append(self._abort(server, group, one, held))
        outcomes = await asyncio.gather(*works)
        sent = ended or not {"ended", "recorded", "unknown"}.isdisjoint(outcomes)
        self._close(group, "DONE" if sealed and sent else "ABORTED", CAUSE)

    async def _end(
        self, server: ServerSeat, group: Group, one: Candidate, reward: float, held: set[str]
    ) -> str:
        metadata = {"task_id": group.task_id, "dataset_task_id": group.dataset_task_id}
        ending = Ending(
            group_id=group.group_id,
            index=one.index,
            uuid=one.episode_uuid,
            reward=reward,
            task_id=group.task_id,
            output=WorkflowOutput(reward=reward, metadata=metadata),
            active_at=0.0,
            claimed_at=0.0,
            discard_timeout=0.0,
        )
        if one.episode_uuid in held or server.observes:
            outcome, text = await end(server, ending, self.seat.clock())
        else:
            outcome, text = "unknown", f"{CAUSE}; the server no longer holds the episode"
        publish_end(self.seat.bus, server.name, ending, outcome, text)
        return outcome

    async def _abort(self, server: ServerSeat, group: Group, one: Candidate, held: set[str]) -> str:
        reason = CAUSE
        if one.episode_uuid in held:
            await server.desk.give_back([one.episode_uuid], CAUSE)
        else:
            reason = f"{CAUSE}; the server no longer held the episode"
        self.seat.bus.publish(
            EpisodeAborted(
                server=server.name,
                group_id=group.group_id,
                index=one.index,
                episode_uuid=one.episode_uuid,
                reason=reason,
            )
        )
        return "aborted"

    def _close(self, group: Group, phase: str, cause: str) -> None:
        self.seat.bus.publish(
            GroupClosed(server=group.server, group_id=group.group_id, phase=phase, cause=cause)
        )
