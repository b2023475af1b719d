"""Advantages of a group's rewards, for proxy and screens.

The embedded engine computes those it trains with in `engine.training.objective`.
"""

import math
from collections.abc import Iterable, Sequence

from ajet_swarm.common.errors import AjetError

REWARD_LIMIT = 1e9
"""Largest magnitude of a reward. Its square still fits the 32-bit floats of a trainer, so the
deviation of a group cannot overflow there."""

EQUAL = 1e-9
"""Rewards whose range is at most this share of their size count as equal: the 32-bit floats of a
trainer cannot distinguish them."""

FAINT = 0.1
"""A group whose largest advantage is below this teaches almost nothing: the policy loss is
proportional to the advantage, and a group with a clear winner has advantages of about 1. With the
embedded engine's damping of 0.2 this is every group with a spread of at most 0.02. Without damping
there is no such group: there, rewards that hardly differ have advantages of 1 and teach in full."""

ALMOST_EQUAL = "almost equal rewards"
"""Cause of a group that teaches almost nothing."""


class RewardError(AjetError):
    """A number is not a valid reward."""


def usable(value: float) -> bool:
    """Return whether `value` is finite and within `REWARD_LIMIT`."""
    return -REWARD_LIMIT <= value <= REWARD_LIMIT  # false for NaN


def spread(rewards: Sequence[float]) -> float:
    """Return the highest minus the lowest reward; 0.0 for fewer than two."""
    return max(rewards) - min(rewards) if len(rewards) > 1 else 0.0


def is_dead(rewards: Sequence[float]) -> bool:
    """Return whether a group trains nothing: fewer than two rewards, or all equal."""
    if len(rewards) < 2:
        return True
    low, high = min(rewards), max(rewards)
    return high - low <= EQUAL * max(1.0, -low, high)


def is_faint(gains: Iterable[float]) -> bool:
    """Return whether a group of these advantages teaches nothing or almost nothing."""
    return max(map(abs, gains), default=0.0) < FAINT


def lacks_signal(rewards: Sequence[float], damping: float) -> str:
    """Return why a group teaches nothing or almost nothing; empty if it teaches."""
    if len(rewards) < 2:
        return "a single candidate"
    if is_dead(rewards):
        return "equal rewards"
    return ALMOST_EQUAL if is_faint(_scaled(rewards, damping)) else ""


def advantages(rewards: Sequence[float], damping: float) -> list[float]:
    """Return (reward - mean) / (population std + damping) for each reward; zeros in a dead group.

    Args:
        rewards: Rewards of one group.
        damping: Term that the engine adds to the standard deviation; 0 if it reports none.

    Raises:
        RewardError: A reward is not a usable number.
    """
    for index, reward in enumerate(rewards):
        if not -REWARD_LIMIT <= reward <= REWARD_LIMIT:  # as `usable`, without a call for each
            raise RewardError(f"reward {index} is {reward}")
    return [0.0] * len(rewards) if is_dead(rewards) else _scaled(rewards, damping)


def _scaled(rewards: Sequence[float], damping: float) -> list[float]:
    mean = math.fsum(rewards) / len(rewards)
    std = math.sqrt(math.fsum([(reward - mean) ** 2 for reward in rewards]) / len(rewards))
    return [(reward - mean) / (std + damping) for reward in rewards]
