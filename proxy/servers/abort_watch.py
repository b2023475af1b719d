"""Detection of our episodes that another client aborted, which AgentJet allows to any client."""

from collections.abc import Mapping

from ajet_swarm.protocol.schemas import PoolInfo, RunningEpisode
from core.events.alerts import params_of
from core.state import Group
from proxy.alerts import replace_alert
from proxy.context import ProxyContext, ServerHandle

SWEEP = 10.0
"""Seconds between two sweeps in which a server reclaims idle episodes."""


class AbortWatch:
    """Comparison of our open groups' episodes with those that the server reports as claimed."""

    def __init__(self, context: ProxyContext, server: ServerHandle) -> None:
        self.context = context
        self.server = server
        self._seen: dict[str, tuple[RunningEpisode, float]] = {}
        """Our episodes as last seen in the pool -> (episode, time)."""
        self._missing: set[str] = set()

    def on_pool(self, pool: PoolInfo) -> None:
        """Compare with a new state of the pool.

        An episode counts as lost if it is missing twice in succession while its group holds it:
        an end in progress affects only one of them.
        """
        if pool.stale:
            return
        now = self.context.clock()
        details = pool.running_episode_details or {}
        held = self._held()
        ours = self.context.client_uuid
        for uuid, episode in details.items():
            if uuid in held and episode.client_uuid == ours:
                self._seen[uuid] = (episode, now)
        missing = {uuid for uuid in held if uuid in self._seen and not _ours(details, uuid, ours)}
        for uuid in missing & self._missing:
            self._raise_alert(uuid, held[uuid], details.get(uuid), now)
        self._missing = missing - self._missing
        self._seen = {uuid: at for uuid, at in self._seen.items() if uuid in held}

    def _held(self) -> Mapping[str, Group]:
        return {
            candidate.episode_uuid: group
            for group in self.context.bus.state.open_groups()
            if group.server == self.server.name and group.phase != "SUBMITTING"
            for candidate in group.candidates
            if candidate.episode_uuid and candidate.phase in ("claimed", "answered")
        }

    def _raise_alert(
        self, uuid: str, group: Group, taker: RunningEpisode | None, now: float
    ) -> None:
        last, at = self._seen.pop(uuid)
        idle, limit = last.idle or 0.0, last.limit or 0.0
        if taker is None and limit and idle + (now - at) + SWEEP >= limit:
            return  # the server reclaimed it after its idle limit
        params = params_of(
            "taken",
            server=self.server.name,
            group=group.group_id,
            idle=idle,
            limit=limit,
            client=f"{taker.client_uuid:.40}" if taker is not None else "",
        )
        key = f"taken:{self.server.name}"
        replace_alert(self.context.bus, key, params, groups=(group.group_id,))


def _ours(details: Mapping[str, RunningEpisode], uuid: str, ours: str) -> bool:
    episode = details.get(uuid)
    return episode is not None and episode.client_uuid == ours
