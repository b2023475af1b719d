"""The arithmetic of rewards: parts to a reward."""

from collections.abc import Iterable

from core.scoring.advantage import REWARD_LIMIT, RewardError, usable
from proxy.rewards.source import Part

LEAST = -REWARD_LIMIT


def combine(parts: Iterable[Part]) -> float:
    """Reward of one answer: product of its gates times the weighted sum of its other parts.

    Raises:
        RewardError: a part, or the result, is not a usable number; names the part.
    """
    gates, total = 1.0, 0.0
    for part in parts:
        value, weight = part.value, part.weight
        if not (LEAST <= value <= REWARD_LIMIT and LEAST <= weight <= REWARD_LIMIT):
            raise RewardError(
                f"part {part.name} is {part.value} with weight {part.weight}",
                todo=f"Parts are finite numbers of at most {REWARD_LIMIT:g}",
            )
        if part.gate:
            gates *= value
        else:
            total += weight * value
    reward = gates * total
    if not usable(reward):
        raise RewardError(f"the parts combine to {reward}")
    return reward
