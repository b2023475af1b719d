"""Deadlines of the episodes that a client holds.

The monotonic clock stands still while a machine is suspended, but its server's clock does not. So
whether the server may have taken an episode back is decided by the wall clock, too.

A uuid does not identify a claim: a server keeps it when an episode returns to its pool, so the next
claim may get the same one before the answer to the abort is read. The record of a claim does.
"""

from dataclasses import dataclass

from ajet_swarm.runtime import SYSTEM, Clock

REMEMBERED = 10.0
"""Seconds for which a deadline is kept after it has passed."""


@dataclass(slots=True)
class EpisodeDeadline:
    """Times of one claim, in seconds of a monotonic clock; each claim has its own object."""

    claimed_at: float
    idle: float
    """Seconds without a call after which the server takes the episode back."""
    deadline: float
    """Time from which an end is turned into an abort."""
    counts: bool = True
    """False for an eval episode, whose reward is not trained on."""
    ending: bool = False
    """Its end or its abort has been started."""
    claimed_on_wall: float = 0.0
    """`claimed_at` on the wall clock."""


class EpisodeDeadlines:
    """Deadlines of the episodes that this client has claimed and not ended.

    Args:
        clock: The clocks of the process.

    Attributes:
        ever_claimed: This client has claimed at least one episode.
    """

    def __init__(self, clock: Clock = SYSTEM.clock) -> None:
        self.clock = clock.monotonic
        self.wall = clock.wall
        self.ever_claimed = False
        self._by_uuid: dict[str, EpisodeDeadline] = {}

    def __len__(self) -> int:
        return len(self._by_uuid)

    def uuids(self) -> set[str]:
        """Return the uuids of all episodes, expired or not."""
        return set(self._by_uuid)

    def ending(self) -> set[str]:
        """Return the uuids of the episodes whose end or abort has been started."""
        return {uuid for uuid, times in self._by_uuid.items() if times.ending}

    def get(self, uuid: str) -> EpisodeDeadline | None:
        """Return the times of the last claim of a uuid; None when it is unknown or forgotten."""
        return self._by_uuid.get(uuid)

    def is_last(self, uuid: str, times: EpisodeDeadline | None) -> bool:
        """Return whether this client was granted no claim of the uuid after this one.

        Args:
            uuid: The episode.
            times: The times of the claim; None if they were unknown.
        """
        return self._by_uuid.get(uuid) is times

    def add(
        self, uuid: str, idle: float, lifetime: float, *, counts: bool = True
    ) -> EpisodeDeadline:
        """Add an episode that this client has just claimed.

        Args:
            uuid: The episode.
            idle: Seconds without a call after which the server takes it back.
            lifetime: Seconds from now to its deadline.
            counts: See `EpisodeDeadline.counts`.

        Returns:
            The times of this claim.
        """
        now = self.clock()
        self._forget_old(now)
        self.ever_claimed = True
        times = EpisodeDeadline(now, idle, now + lifetime, counts, claimed_on_wall=self.wall())
        self._by_uuid[uuid] = times
        return times

    def drop(self, uuid: str, times: EpisodeDeadline | None) -> None:
        """Remove a claim that this client no longer holds; keep a later claim of the same uuid."""
        if times is not None and self.is_last(uuid, times):
            del self._by_uuid[uuid]

    def is_expired(self, times: EpisodeDeadline | None) -> bool:
        """Return whether the deadline has passed; True for an unknown claim."""
        return times is None or self.clock() >= times.deadline

    def may_be_taken(self, times: EpisodeDeadline | None) -> bool:
        """Return whether the server may have taken the episode back already.

        If so, query the server before aborting: the episode may belong to another client by now.
        """
        if times is None:
            return True
        passed = max(self.clock() - times.claimed_at, self.wall() - times.claimed_on_wall)
        return passed >= times.idle

    def _forget_old(self, now: float) -> None:
        """Remove deadlines that passed long ago, even if the server still holds the episodes."""
        for uuid, times in list(self._by_uuid.items()):
            if now > times.deadline + REMEMBERED and not times.ending:
                del self._by_uuid[uuid]
