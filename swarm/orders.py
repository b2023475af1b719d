"""What a group wants of the claim desk."""

import asyncio
import random
from collections.abc import Callable, Sequence

import msgspec

from swarm.answers import Claimed, Refused, RefusedKind

PATIENCE = (1.0, 8.0)
"""Seconds a group tries in vain before smaller ones behind it go first: at first, and at most.
Longer each time, so that many small groups do not starve a large one."""

GATHER_AFTER = 1.0
"""Seconds, about, that a group finds no episode free before it gathers."""
GATHER = (1.0, 3.0)
"""Seconds it then keeps what it gets. Drawn anew each time: of two clients that hold parts of what
both want, one gives up first and the other has all."""
GATHER_MORE = 4.0
"""Where that is in vain, because episodes come free seldom, it is longer each time, up to so many
times."""
EMPTY = (0.5, 1.5)
"""Seconds between two such windows, with empty hands; they grow as the windows do."""

OnClaimed = Callable[[str], None]
"""Called with each uuid at the moment its claim is answered."""
OnReturned = Callable[[Sequence[str], str], None]
"""Called with uuids that were given back, and why."""


class Order(msgspec.Struct, eq=False):
    """One try to get `n` episodes."""

    n: int
    episode_type: str
    discard_timeout: float
    on_claimed: OnClaimed | None
    on_returned: OnReturned | None
    lane: str = ""
    """Whom it takes turns with."""
    held: list[Claimed] = []
    had: int = 0
    """How many claims were answered with an episode."""
    tried: bool = False
    """Once in vain, at least."""
    best: int = 0
    """The most that any try had."""
    keeps: bool = False
    """It keeps what it has when no more is free: it gathers, for a moment."""
    patience: float = PATIENCE[0]
    """Seconds of its next turn before smaller ones go first."""
    stop: Refused | None = None
    """Why it will not be complete."""
    cut: bool = False
    """Nobody waits any more, and claims of it had no answer yet."""
    last: Refused | None = None
    """Why the try before was in vain."""
    error: Exception | None = None
    """What the caller's hook raised."""
    in_turn: bool = False
    """It has the turn."""
    alongside: bool = False
    """What it wants is claimed, or was, in the turn of another one."""
    back: "list[asyncio.Task[None]]" = []
    """What is on its way back since somebody gave up a try."""

    def stopped(self) -> bool:
        return self.stop is not None

    @property
    def complete(self) -> bool:
        """It has all it wants."""
        return self.had >= self.n and self.stop is None

    def like(self, other: "Order") -> bool:
        """Whether both want the same kind of episodes, and neither was refused before."""
        mine = (self.episode_type, self.discard_timeout, self.tried)
        return mine == (other.episode_type, other.discard_timeout, False)

    def goes_on(self, refused: Refused) -> bool:
        """Whether it goes on after this refusal."""
        return self.keeps and refused.kind is RefusedKind.NONE_AVAILABLE

    def refused(self) -> None:
        """A try is over, in vain."""
        self.tried = True
        self.best = max(self.best, self.had)
        self.last = self.stop

    def steps_aside(self, waited: float, behind: Sequence[int]) -> bool:
        """Whether a smaller group goes first now; `behind` are the sizes of those that wait."""
        if waited < self.patience or min(behind, default=self.n) >= self.n:
            return False
        self.patience = min(2 * self.patience, PATIENCE[1])
        return True

    def take(self) -> list[Claimed]:
        """What is held, which is then the caller's."""
        held, self.held = self.held, []
        return held


class Windows:
    """When a group may gather.

    Args:
        rng: For the lengths.
        now: On any clock, in seconds.
    """

    def __init__(self, rng: random.Random, now: float) -> None:
        self._rng = rng
        self._times = 1.0
        self._at = now + self._first()

    def open(self, now: float) -> float:
        """How long it may, from now on; 0 when it may not."""
        return self._rng.uniform(*GATHER) * self._times if now >= self._at else 0.0

    def shut(self, now: float, in_vain: bool) -> None:
        """Not for a while.

        Args:
            now: As of `open`.
            in_vain: Too few came free; else the engine stopped to roll, and the wait begins anew.
        """
        if not in_vain:
            self._at = now + self._first()
            return
        self._at = now + self._rng.uniform(*EMPTY) * self._times
        self._times = min(1.5 * self._times, GATHER_MORE)

    def _first(self) -> float:
        return self._rng.uniform(0.8, 1.2) * GATHER_AFTER
