"""The deadlines of a client's episodes: all it remembers of them."""

from collections.abc import Callable
from dataclasses import dataclass

REMEMBERED = 10.0
"""Seconds a deadline is remembered after it passed."""


@dataclass(slots=True)
class EpisodeDeadline:
    """Times of one episode, in seconds of one steady clock."""

    claimed_at: float
    idle: float
    """Seconds without a call after which the server takes it back."""
    deadline: float
    """From this time on an end becomes an abort."""
    ending: bool = False
    """Its end, or its abort, is on the way."""


class EpisodeDeadlines:
    """Deadlines of the episodes we claimed and have not ended.

    Args:
        clock: Steady seconds.

    Attributes:
        ever_claimed: An episode was ever ours.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.ever_claimed = False
        self._by_uuid: dict[str, EpisodeDeadline] = {}

    def __len__(self) -> int:
        return len(self._by_uuid)

    def uuids(self) -> set[str]:
        """Return all of them, expired or not."""
        return set(self._by_uuid)

    def get(self, uuid: str) -> EpisodeDeadline | None:
        """Return the times of an episode, while they are remembered."""
        return self._by_uuid.get(uuid)

    def add(self, uuid: str, idle: float, lifetime: float) -> None:
        """Remember an episode that is ours from now on."""
        now = self.clock()
        self._forget_old(now)
        self.ever_claimed = True
        self._by_uuid[uuid] = EpisodeDeadline(now, idle, now + lifetime)

    def drop(self, uuid: str) -> None:
        """Forget an episode that is not ours any more."""
        self._by_uuid.pop(uuid, None)

    def is_expired(self, uuid: str) -> bool:
        """Return whether its deadline has passed, or it was never ours."""
        times = self._by_uuid.get(uuid)
        return times is None or self.clock() >= times.deadline

    def may_be_taken(self, uuid: str) -> bool:
        """Return whether the server may have taken it back: ask before giving it back."""
        times = self._by_uuid.get(uuid)
        return times is None or self.clock() - times.claimed_at >= times.idle

    def _forget_old(self, now: float) -> None:
        """Forget deadlines that passed long ago; the server may still hold those episodes."""
        for uuid, times in list(self._by_uuid.items()):
            if now > times.deadline + REMEMBERED and not times.ending:
                del self._by_uuid[uuid]
