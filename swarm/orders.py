"""What a group wants of the claim desk."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from swarm.answers import Claimed, Refused

PATIENCE = (1.0, 8.0)
"""Seconds a group tries in vain before smaller ones behind it go first: at first, and at most.
Longer each time, so that many small groups do not starve a large one."""

OnClaimed = Callable[[str], None]
"""Called with each uuid at the moment its claim is answered."""
OnReturned = Callable[[Sequence[str], str], None]
"""Called with uuids that were given back, and why."""


@dataclass(slots=True)
class Order:
    """One try to get `n` episodes."""

    n: int
    episode_type: str
    discard_timeout: float
    on_claimed: OnClaimed | None
    on_returned: OnReturned | None
    held: list[Claimed] = field(default_factory=list)
    had: int = 0
    """How many claims were answered with an episode."""
    tried: bool = False
    """Once in vain, at least."""
    best: int = 0
    """The most that any try had."""
    patience: float = PATIENCE[0]
    """Seconds of its next turn before smaller ones go first."""
    stop: Refused | None = None
    """Why it will not be complete."""
    error: Exception | None = None
    """What the caller's hook raised."""

    def stopped(self) -> bool:
        return self.stop is not None

    def refused(self) -> None:
        """A try is over, in vain."""
        self.tried = True
        self.best = max(self.best, self.had)

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
