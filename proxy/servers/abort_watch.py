"""Notices when another client aborts an episode of ours: AgentJet allows that to any client."""

from collections.abc import Mapping

from ajet_swarm.protocol.schemas import PoolInfo, RunningEpisode
from core.events.alerts import EpisodeTaken
from core.state import Group
from proxy.alerts import replace_alert
from proxy.context import ProxyContext, ServerHandle

SWEEP = 10.0
"""Seconds between two sweeps in which a server reclaims idle episodes."""


class AbortWatch:
    """Compares the episodes of our open groups with those that the server reports as claimed."""

    def __init__(self, context: ProxyContext, server: ServerHandle) -> None:
        self.context = context
        self.server = server
        self._seen: dict[str, tuple[RunningEpisode, float]] = {}
        """Ours as they were last in the pool, and when."""
        self._missing: set[str] = set()

    def pool(self, pool: PoolInfo) -> None:
        """Compare with a reading of the pool.

        An episode counts as taken if two consecutive readings lack it while its group holds it: an
        end in progress affects one of them at most.
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
        params = EpisodeTaken(
            server=self.server.name,
            group=group.group_id,
            idle=idle,
            limit=limit,
            client=f"{taker.client_uuid:.40}" if taker is not None else "",
        )
        key = f"taken:{self.server.name}"
        replace_alert(self.context.bus, key, params, groups=(group.group_id,))


def _ours(details: Mapping[str, RunningEpisode], uuid: str, ours: str) -> bool:
    one = details.get(uuid)
    return one is not None and one.client_uuid == ours
