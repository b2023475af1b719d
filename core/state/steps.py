"""What is known of a global step: what was sent under it, what its update did."""

import math

import msgspec


class StepStats(msgspec.Struct, kw_only=True):
    """What was sent under one global step, and what the update made of it."""

    step: int
    engine_run: int = 0
    """`Server.engine_run` when the step began."""
    groups: int = 0
    dead: int = 0
    rewards: int = 0
    """Number of rewards sent."""
    mean: float = 0.0
    square: float = 0.0
    """Mean and mean square of the automatic or human rewards sent."""
    auto: int = 0
    """Number of answers with an automatic reward, also where a human one was sent instead."""
    auto_mean: float = 0.0
    auto_square: float = 0.0
    by_hand: int = 0
    """Groups whose rewards a human gave."""
    hand: int = 0
    """How many of them have an automatic winner."""
    hand_mean: float = 0.0
    """Mean human reward of the automatic winner of those: the share of wins where votes name the
    best answer, the mean score where they are scores."""
    version: str = ""
    """Version of the automatic rewards of its newest group; empty while none was scored."""
    began_at: float = 0.0
    update: dict[str, float] = msgspec.field(default_factory=dict)
    """Figures of the update that was made of it; empty before it, and where none are known."""
    update_source: str = ""
    """`engine` or `pool`, see `core.events.UpdateDone`."""

    @property
    def std(self) -> float:
        """Population standard deviation of the rewards sent."""
        return math.sqrt(max(self.square - self.mean * self.mean, 0.0))

    @property
    def auto_std(self) -> float:
        """Population standard deviation of the automatic rewards."""
        return math.sqrt(max(self.auto_square - self.auto_mean * self.auto_mean, 0.0))
