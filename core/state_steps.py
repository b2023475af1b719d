"""What is known of a global step: what was sent under it, what its update did."""

import math

import msgspec


class StepStats(msgspec.Struct, kw_only=True):
    """What was sent under one global step, and what the update made of it."""

    step: int
    groups: int = 0
    dead: int = 0
    rewards: int = 0
    """Number of rewards sent."""
    mean: float = 0.0
    square: float = 0.0
    """Mean and mean square of the automatic or human rewards sent."""
    by_hand: int = 0
    """How many of them an operator gave."""
    hand_mean: float = 0.0
    began_at: float = 0.0
    update: dict[str, float] = msgspec.field(default_factory=dict)
    """Figures of the update that was made of it; empty before it, and where none are known."""
    update_source: str = ""
    """`engine` or `pool`, see `core.events.UpdateDone`."""

    @property
    def std(self) -> float:
        """Population standard deviation of the rewards sent."""
        return math.sqrt(max(self.square - self.mean * self.mean, 0.0))
