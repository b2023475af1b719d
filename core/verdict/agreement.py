"""Percent agreement of two judgements, with a confidence interval, against agreement by chance.

Chance is what two judgements reach that have nothing in common but how often they choose a tie, a
win or a single best answer. An agreement whose interval is above it is more than chance.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from math import comb

import msgspec

from core.scoring.agreement import agree, top
from core.verdict.betting import running_interval


class Agreement(msgspec.Struct, frozen=True):
    """How often two judgements agree."""

    share: float
    """0 to 1."""
    low: float
    high: float
    """Limits at 95 %, valid after every judgement."""
    chance: float
    """Share of agreements by chance."""
    compared: int
    """Number of things that were judged twice: pairs of answers, or groups."""

    @property
    def text(self) -> str:
        """`78 % (59 to 90 %), by chance 45 %`."""
        limits = f"{100 * self.low:.0f} to {100 * self.high:.0f} %"
        return f"{100 * self.share:.0f} % ({limits}), by chance {100 * self.chance:.0f} %"


def result_agreement(first: Sequence[float], second: Sequence[float]) -> Agreement | None:
    """Return how often two judges give a pair the same result; None without a pair.

    Args:
        first: Results of the first judge: loss, tie or win as 0, 0.5 or 1.
        second: Results of the second judge for the same pairs.
    """
    if not first:
        return None
    here, there, n = Counter(first), Counter(second), len(first)
    chance = sum(count * there[result] for result, count in here.items()) / n**2
    return _agreement([float(a == b) for a, b in zip(first, second, strict=True)], chance)


Votes = Sequence[Sequence[float]]
"""Rewards of each vote on a group, by answer; shape `(votes, answers)`, at least two votes."""


def best_agreement(judged: Sequence[Votes]) -> Agreement | None:
    """Return how often two raters of a group put the same answers first; None without a group.

    A group with more than two raters counts as one: by the share of its pairs of raters. Chance:
    each rater draws as many best answers as raters choose, at random.
    """
    if not judged:
        return None
    by_place = [[dict(enumerate(rewards)) for rewards in votes] for votes in judged]
    shares = [_mean([agree(a, b) for a, b in combinations(votes, 2)]) for votes in by_place]
    sizes = Counter(_best_count(rewards) for votes in by_place for rewards in votes)
    frequency = {size: count / sizes.total() for size, count in sizes.items()}
    chance = _mean(
        [
            sum(part**2 / comb(len(votes[0]), size) for size, part in frequency.items()
                if size <= len(votes[0]))
            for votes in judged
        ]
    )  # fmt: skip
    return _agreement(shares, chance)


def order_agreement(judged: Sequence[Votes]) -> Agreement | None:
    """Return how often two raters of a group put two answers in the same order; None without one.

    A tie is an order too. A group counts as one, by the share of its pairs of raters and answers.
    Chance: both raters have as many ties as raters choose, and order the others at random.
    """
    orders = [[_orders(rewards) for rewards in votes] for votes in judged if len(votes[0]) > 1]
    if not orders:
        return None
    shares = [
        _mean([a == b for pair in combinations(votes, 2) for a, b in zip(*pair, strict=True)])
        for votes in orders
    ]
    ties = _mean([order == 0 for votes in orders for row in votes for order in row])
    return _agreement(shares, ties**2 + (1 - ties) ** 2 / 2)


def _agreement(shares: Sequence[float], chance: float) -> Agreement:
    """Return the agreement from the share of each thing that was judged twice."""
    interval = running_interval(shares)
    return Agreement(interval.estimate, interval.low, interval.high, chance, len(shares))


def _best_count(rewards: dict[int, float]) -> int:
    """Return the number of best answers; 0 if all are equal."""
    count = len(top(rewards))
    return count if count < len(rewards) else 0


def _orders(rewards: Sequence[float]) -> list[int]:
    """Return -1, 0 or 1 for each pair of answers: the first is worse, equal or better."""
    return [(a > b) - (a < b) for a, b in combinations(rewards, 2)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
