"""Agreement of two judgements of a group, and the confidence interval of a share."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from core.scoring.advantage import EQUAL

Z95 = 1.959964
"""Standard deviations on each side that cover 95 % of a normal distribution."""


def wilson(hits: int, n: int, z: float = Z95) -> tuple[float, float]:
    """Return the Wilson score interval of a share (E. B. Wilson 1927); 0 to 1 without trials.

    Args:
        hits: Number of successes.
        n: Number of trials.
        z: Standard deviations on each side; 95 % by default.
    """
    if n <= 0:
        return 0.0, 1.0
    share, room = hits / n, z * z / n
    middle = (share + room / 2) / (1 + room)
    half = z / (1 + room) * math.sqrt(share * (1 - share) / n + room / (4 * n))
    low = 0.0 if hits == 0 else max(0.0, middle - half)
    return low, 1.0 if hits == n else min(1.0, middle + half)


def top(rewards: Mapping[int, float]) -> frozenset[int]:
    """Return the candidates with the highest reward: one, or several equal ones."""
    if not rewards:
        return frozenset()
    best = max(rewards.values())
    near = EQUAL * max(1.0, abs(best))
    return frozenset(index for index, value in rewards.items() if best - value <= near)


def only_top(rewards: Mapping[int, float]) -> int | None:
    """Return the single candidate with the highest reward; None if several share it."""
    best = top(rewards)
    return next(iter(best)) if len(best) == 1 else None


def agree(first: Mapping[int, float], second: Mapping[int, float]) -> bool:
    """Return whether two judgements rank the same answers first.

    If all answers are equal in both, the rewards must be equal too: "no preference" is not "all
    bad".
    """
    best = top(first)
    if best != top(second):
        return False
    if len(best) < len(first) or not first:
        return True
    return math.isclose(max(first.values()), max(second.values()), abs_tol=EQUAL)


def disagree(votes: Iterable[Sequence[float]]) -> bool:
    """Return whether several votes on a group do not put the same answers first.

    Args:
        votes: The rewards of each vote, by answer; empty ones judge nothing.
    """
    judged = [dict(enumerate(rewards)) for rewards in votes if rewards]
    return any(not agree(judged[0], other) for other in judged[1:])


def opposition(judges: Sequence[Mapping[int, float]]) -> float:
    """Return how often two judges put two answers in opposite orders: a share, 0 to 1.

    Args:
        judges: The reward of each answer by each judge.

    Returns:
        The share of such cases among all pairs of answers of all pairs of judges; 0 without any.
    """
    opposed = pairs = 0
    for first, second in combinations(judges, 2):
        for left, right in combinations(sorted(first.keys() & second.keys()), 2):
            pairs += 1
            opposed += (first[left] - first[right]) * (second[left] - second[right]) < 0
    return opposed / pairs if pairs else 0.0
