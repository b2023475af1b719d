"""Observe mode: claims of simulated episodes, which need no request to the upstream."""

from ajet_swarm.api.outcomes import Claimed, ClaimRefused
from ajet_swarm.api.watcher import Watcher
from ajet_swarm.episodes.claim import EpisodeClaimer
from ajet_swarm.protocol.schemas import EngineState
from ajet_swarm.runtime import SYSTEM, Runtime
from proxy.servers.observe_client import ObserveClient

_ROLLING = frozenset({EngineState.ROLLING})


class ObserveClaimer(EpisodeClaimer):
    """Claims groups at once while the upstream can be called; else they queue as at a swarm server.

    Args:
        client: The upstream.
        watcher: Its watcher; `run` must be running.
        runtime: See `EpisodeClaimer`.
    """

    def __init__(
        self,
        client: ObserveClient,
        watcher: Watcher,
        runtime: Runtime = SYSTEM,
    ) -> None:
        super().__init__(client, watcher, runtime=runtime)
        self._episodes = client.episodes

    def claim_at_once(
        self, n: int, *, episode_type: str = "train", discard_timeout: float = 240.0
    ) -> list[Claimed] | None:
        """See `EpisodeClaimer.claim_at_once`; None while a group waits, which it would overtake."""
        if self.queue.starved or not self.watcher.current.is_in(_ROLLING):
            return None
        claimed = self._episodes.claim(n, episode_type, discard_timeout)
        if isinstance(claimed, ClaimRefused):
            return None
        for episode in claimed:
            self.ends.granted(episode)
        return claimed
