"""Deadlines of the episodes that a client holds."""

from collections.abc import Callable
from dataclasses import dataclass

REMEMBERED = 10.0
"""Seconds for which a deadline is kept after it has passed."""


@dataclass(slots=True)
class EpisodeDeadline:
    """Times of one episode, in seconds of a monotonic clock."""

    claimed_at: float
    idle: float
    """Seconds without a call after which the server takes the episode back."""
    deadline: float
    """Time from which an end is turned into an abort."""
    ending: bool = False
    """Its end or its abort has been started."""


class EpisodeDeadlines:
    """Deadlines of the episodes that this client has claimed and not ended.

    Args:
        clock: Returns monotonic seconds.

    Attributes:
        ever_claimed: This client has claimed at least one episode.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.ever_claimed = False
        self._by_uuid: dict[str, EpisodeDeadline] = {}

    def __len__(self) -> int:
        return len(self._by_uuid)

    def uuids(self) -> set[str]:
        """Return the uuids of all episodes, expired or not."""
        return set(self._by_uuid)

    def get(self, uuid: str) -> EpisodeDeadline | None:
        """Return the times of an episode; None when they are unknown or forgotten."""
        return self._by_uuid.get(uuid)

    def add(self, uuid: str, idle: float, lifetime: float) -> None:
        """Add an episode that this client has just claimed.

        Args:
            uuid: The episode.
            idle: Seconds without a call after which the server takes it back.
            lifetime: Seconds from now to its deadline.
        """
        now = self.clock()
        self._forget_old(now)
        self.ever_claimed = True
        self._by_uuid[uuid] = EpisodeDeadline(now, idle, now + lifetime)

    def drop(self, uuid: str) -> None:
        """Remove an episode that this client no longer holds."""
        self._by_uuid.pop(uuid, None)

    def is_expired(self, uuid: str) -> bool:
        """Return whether the deadline has passed; True for an unknown episode."""
        times = self._by_uuid.get(uuid)
        return times is None or self.clock() >= times.deadline

    def may_be_taken(self, uuid: str) -> bool:
        """Return whether the server may have taken the episode back already.

        If so, query the server before aborting: the episode may belong to another client by now.
        """
        times = self._by_uuid.get(uuid)
        return times is None or self.clock() - times.claimed_at >= times.idle

    def _forget_old(self, now: float) -> None:
        """Remove deadlines that passed long ago, even if the server still holds the episodes."""
        for uuid, times in list(self._by_uuid.items()):
            if now > times.deadline + REMEMBERED and not times.ending:
                del self._by_uuid[uuid]
