"""Whether two judgements of a group agree, and how sure a share of so few is."""

import math
from collections.abc import Mapping

from core.scoring.advantage import EQUAL

Z95 = 1.959964
"""Standard deviations on each side that hold 95 % of a normal distribution."""


def wilson(hits: int, n: int, z: float = Z95) -> tuple[float, float]:
    """The Wilson score interval of a share (E. B. Wilson 1927), 0 to 1 for no trial at all.

    Args:
        hits: How often it was so.
        n: Of how many.
        z: Deviations on each side; 95 % by default.
    """
    if n <= 0:
        return 0.0, 1.0
    share, room = hits / n, z * z / n
    middle = (share + room / 2) / (1 + room)
    half = z / (1 + room) * math.sqrt(share * (1 - share) / n + room / (4 * n))
    low = 0.0 if hits == 0 else max(0.0, middle - half)
    return low, 1.0 if hits == n else min(1.0, middle + half)


def top(rewards: Mapping[int, float]) -> frozenset[int]:
    """The candidates with the highest reward: one, or several that are equal."""
    if not rewards:
        return frozenset()
    best = max(rewards.values())
    near = EQUAL * max(1.0, abs(best))
    return frozenset(index for index, value in rewards.items() if best - value <= near)


def only_top(rewards: Mapping[int, float]) -> int | None:
    """The candidate that stands out; None when none does."""
    found = top(rewards)
    return next(iter(found)) if len(found) == 1 else None


def agree(one: Mapping[int, float], other: Mapping[int, float]) -> bool:
    """Whether two judgements put the same answers on top.

    Where all are equal in both, they must be equally good: "no preference" is not "all bad".
    """
    found = top(one)
    if found != top(other):
        return False
    if len(found) < len(one) or not one:
        return True
    return math.isclose(max(one.values()), max(other.values()), abs_tol=EQUAL)
