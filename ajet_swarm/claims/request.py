"""A request for the episodes of a group, and the times at which it may gather them one by one."""

import asyncio
import math
from collections.abc import Callable, Sequence

import msgspec

from ajet_swarm.api.outcomes import Claimed, ClaimRefused
from ajet_swarm.claims.lane_queue import Lane
from ajet_swarm.runtime import Chance

PATIENCE = (1.0, 8.0)
"""Seconds of an unsuccessful turn after which smaller groups in the queue go first: initial value
and maximum. The value doubles each time, so that many small groups do not starve a large one."""

GATHER_AFTER = 1.0
"""Approximate seconds without a free episode before a group may gather."""
GATHER = (1.0, 3.0)
"""Range of the seconds of a window in which a group keeps each episode that it gets. The length is
random: of two clients that each hold a part, one gives up first and the other gets all."""
GATHER_MORE = 4.0
"""Maximum factor of the windows, which grow while episodes become free too seldom."""
EMPTY = (0.5, 1.5)
"""Range of the seconds between two windows, in which the group holds nothing; they grow by the same
factor."""

OnClaimed = Callable[[str], None]
"""Called with each uuid as soon as its claim is granted."""
OnReturned = Callable[[Sequence[str], str], None]
"""Called with the uuids that are given back from now on, and the reason."""


class ClaimRequest(msgspec.Struct, eq=False):
    """A request for `n` episodes, and its progress."""

    n: int
    episode_type: str
    discard_timeout: float
    on_claimed: OnClaimed | None
    on_returned: OnReturned | None
    lane: Lane = ()
    """Key, address and session: the queue takes turns between them."""
    newcomer: bool = False
    """Whether it may overtake others of its key and address; see `LaneQueue`."""
    arrived: float = math.inf
    """Time at which it arrived, by which the newest newcomer is found; infinity is the latest."""
    held: list[Claimed] = []
    granted: int = 0
    """Claims of this attempt that were answered with an episode."""
    refused_before: bool = False
    """Whether an earlier attempt failed."""
    best: int = 0
    """Largest number of episodes that an attempt got."""
    gathers: bool = False
    """Whether it keeps what it holds while no other episode is free."""
    patience: float = PATIENCE[0]
    """Seconds of its next turn before smaller groups go first."""
    stop: ClaimRefused | None = None
    """Why this attempt was stopped; None while it was not."""
    cut: bool = False
    """Whether the caller left while claims were unanswered."""
    last: ClaimRefused | None = None
    """Why the previous attempt failed."""
    error: Exception | None = None
    """Error that `on_claimed` raised."""
    in_turn: bool = False
    """Whether it has the turn."""
    shared: bool = False
    """Whether its episodes are claimed in the turn of another request."""
    releases: "list[asyncio.Task[None]]" = []
    """Tasks that give back what a stopped attempt held."""

    def stopped(self) -> bool:
        """Return whether this attempt was stopped."""
        return self.stop is not None

    @property
    def complete(self) -> bool:
        """Whether it got all its episodes."""
        return self.granted >= self.n and self.stop is None

    def may_share(self, other: "ClaimRequest") -> bool:
        """Return whether one turn may serve both: the same kind, and none refused before."""
        kind = (self.episode_type, self.discard_timeout, self.refused_before)
        return kind == (other.episode_type, other.discard_timeout, False)

    def begin_attempt(self) -> None:
        """Reset what belongs to one attempt."""
        self.stop, self.granted = None, 0

    def end_attempt(self) -> None:
        """Record a failed attempt."""
        self.refused_before = True
        self.best = max(self.best, self.granted)
        self.last = self.stop

    def yields_to_smaller(self, waited: float, sizes: Sequence[int]) -> bool:
        """Return whether a smaller group goes first now; its patience is then longer.

        Args:
            waited: Seconds of this turn.
            sizes: Episodes of each request in the queue.
        """
        if waited < self.patience or min(sizes, default=self.n) >= self.n:
            return False
        self.patience = min(2 * self.patience, PATIENCE[1])
        return True

    def take_held(self) -> list[Claimed]:
        """Return the held episodes, whose owner is now the caller."""
        held, self.held = self.held, []
        return held


class GatherBackoff:
    """Times at which a group may gather.

    Args:
        chance: Source of the lengths.
        now: On any clock, in seconds.
    """

    def __init__(self, chance: Chance, now: float) -> None:
        self._chance = chance
        self._factor = 1.0
        self._next = now + self._first()

    def window(self, now: float) -> float:
        """Return the seconds for which it may gather from now on; 0 for not now."""
        return self._chance.uniform(*GATHER) * self._factor if now >= self._next else 0.0

    def close(self, now: float, in_vain: bool) -> None:
        """Set the time of the next window.

        Args:
            now: As of `window`.
            in_vain: True when too few episodes became free; False when the engine stopped rolling,
                and the wait starts again.
        """
        if not in_vain:
            self._next = now + self._first()
            return
        self._next = now + self._chance.uniform(*EMPTY) * self._factor
        self._factor = min(1.5 * self._factor, GATHER_MORE)

    def _first(self) -> float:
        return self._chance.uniform(0.8, 1.2) * GATHER_AFTER
