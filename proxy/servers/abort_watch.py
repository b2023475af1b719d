"""Sees when somebody else aborts an episode of ours: AgentJet lets any client do that."""

from collections.abc import Mapping

from ajet_swarm.protocol.schemas import PoolInfo, RunningEpisode
from core.state import Group
from proxy.alerts import replace_alert
from proxy.context import ProxyContext, ServerHandle

SWEEP = 10.0
"""Seconds between two sweeps in which a server takes back what was idle too long."""


class AbortWatch:
    """Compares what our open groups hold with what the server says is claimed."""

    def __init__(self, context: ProxyContext, server: ServerHandle) -> None:
        self.context = context
        self.server = server
        self._seen: dict[str, tuple[RunningEpisode, float]] = {}
        """Ours as they were last in the pool, and when."""
        self._missing: set[str] = set()

    def pool(self, pool: PoolInfo) -> None:
        """Look at a reading of the pool.

        An episode counts as taken when two readings in a row lack it while its group holds it: an
        end that is under way is in one of them at most.
        """
        if pool.stale:
            return
        now = self.context.clock()
        details = pool.running_episode_details or {}
        held = self._held()
        ours = self.context.client_uuid
        for uuid, one in details.items():
            if uuid in held and one.client_uuid == ours:
                self._seen[uuid] = (one, now)
        gone = {uuid for uuid in held if uuid in self._seen and not _ours(details, uuid, ours)}
        for uuid in gone & self._missing:
            self._tell(uuid, held[uuid], details.get(uuid), now)
        self._missing = gone - self._missing
        self._seen = {uuid: at for uuid, at in self._seen.items() if uuid in held}

    def _held(self) -> Mapping[str, Group]:
        return {
            one.episode_uuid: group
            for group in self.context.bus.state.open_groups()
            if group.server == self.server.name and group.phase != "SUBMITTING"
            for one in group.candidates
            if one.episode_uuid and one.phase in ("claimed", "answered")
        }

    def _tell(self, uuid: str, group: Group, taker: RunningEpisode | None, now: float) -> None:
        last, at = self._seen.pop(uuid)
        idle, limit = last.idle or 0.0, last.limit or 0.0
        if taker is None and limit and idle + (now - at) + SWEEP >= limit:
            return  # the server took it back by its own rule
        by = f"client {taker.client_uuid:.40} has it now" if taker is not None else "aborted"
        replace_alert(
            self.context.bus,
            f"taken:{self.server.name}",
            f"somebody else took an episode of group {group.group_id:.12} on "
            f"{self.server.name}: {by} after {idle:.0f} s of {limit:.0f} s idle",
            "Any client may abort any episode there. 5 opens Engine, `i` shows who is on it; the "
            "group goes on with what it has",
            groups=(group.group_id,),
        )


def _ours(details: Mapping[str, RunningEpisode], uuid: str, ours: str) -> bool:
    one = details.get(uuid)
    return one is not None and one.client_uuid == ours
