"""The arithmetic of rewards: parts to a reward."""

from collections.abc import Iterable

from core.advantage import REWARD_LIMIT, RewardError, usable
from proxy.rewards.base import Part


def combine(parts: Iterable[Part]) -> float:
    """Reward of one answer: product of its gates times the weighted sum of its other parts.

    Raises:
        RewardError: a part, or the result, is not a usable number; names the part.
    """
    gates, total = 1.0, 0.0
    for part in parts:
        if not (usable(part.value) and usable(part.weight)):
            raise RewardError(
                f"part {part.name} is {part.value} with weight {part.weight}",
                todo=f"Parts are finite numbers of at most {REWARD_LIMIT:g}",
            )
        if part.gate:
            gates *= part.value
        else:
            total += part.weight * part.value
    reward = gates * total
    if not usable(reward):
        raise RewardError(f"the parts combine to {reward}")
    return reward
