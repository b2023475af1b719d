"""Observe mode: the simulated episodes of an upstream, which has none."""

from ajet_swarm.api.outcomes import Claimed, ClaimRefused, RefusedKind
from ajet_swarm.protocol.schemas import EpisodeRecord
from ajet_swarm.runtime import Runtime


class SimulatedEpisodes:
    """Grants episodes as long as the upstream can be called.

    Args:
        base_url: Base URL of the upstream's API.
        api_key: Key for it.
        most_calls: Maximum number of calls in flight.
        runtime: For the ids and the times of the episodes.

    Attributes:
        reachable: Whether the upstream can be reached; if not, no episode is granted.
    """

    def __init__(self, base_url: str, api_key: str, most_calls: int, runtime: Runtime) -> None:
        self.reachable = True
        self._base_url = base_url
        self._api_key = api_key
        self._most_calls = most_calls
        self._runtime = runtime
        self._held: dict[str, Claimed] = {}
        self._busy: set[str] = set()
        """Ids of held episodes that have no answer yet."""

    def __contains__(self, episode_uuid: str) -> bool:
        """Return whether an episode is held."""
        return episode_uuid in self._held

    def claim(
        self, n: int, episode_type: str, discard_timeout: float
    ) -> list[Claimed] | ClaimRefused:
        """Return `n` episodes, or why there are none.

        Args:
            n: Number of episodes.
            episode_type: See `ajet_swarm.api.outcomes.Claimed`.
            discard_timeout: Seconds, see `Claimed`; no episode is taken back here.
        """
        if not self.reachable:
            return ClaimRefused(RefusedKind.UNREACHABLE, "the upstream is not reachable")
        if len(self._busy) + n > self._most_calls:
            return ClaimRefused(RefusedKind.NONE_AVAILABLE, "too many calls are in flight")
        now = self._runtime.clock.wall()
        claimed = [
            Claimed(
                episode_uuid=self._runtime.chance.token(8),
                base_url=self._base_url,
                api_key=self._api_key,
                episode_type=episode_type,
                at=now,
                discard_timeout=discard_timeout,
            )
            for _ in range(n)
        ]
        for one in claimed:
            self._held[one.episode_uuid] = one
            self._busy.add(one.episode_uuid)
        return claimed

    def answered(self, episode_uuid: str) -> None:
        """Record that the call of an episode has ended with an answer."""
        self._busy.discard(episode_uuid)

    def release(self, episode_uuid: str) -> None:
        """Drop an episode."""
        self._held.pop(episode_uuid, None)
        self._busy.discard(episode_uuid)

    def records(self, client_uuid: str) -> list[EpisodeRecord]:
        """Return the held episodes as a swarm server lists them."""
        return [
            EpisodeRecord(
                episode_uuid=name,
                episode_status="claimed",
                episode_type=claimed.episode_type,
                client_uuid=client_uuid,
                latest_activity_timestamp=claimed.at,
                discard_episode_timeout=claimed.discard_timeout,
            )
            for name, claimed in self._held.items()
        ]
