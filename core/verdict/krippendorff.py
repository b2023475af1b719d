"""Krippendorff's alpha: agreement of several raters, corrected for chance, with an interval.

K. Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability"; 1 is perfect agreement, 0 is
agreement by chance. The interval is a percentile bootstrap over clusters of units, because units
of one cluster (the answers of one group) are not independent.
"""

import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, Literal

import msgspec

from core.verdict.shares import ALPHA

Level = Literal["nominal", "ordinal", "interval"]
"""What differences of values mean: other category, distance of ranks, distance of numbers."""

RESAMPLES: Final = 1000
SEED: Final = 0
FEWEST: Final = 10
"""Number of clusters from which an interval is given: fewer ones resample too alike."""

_Unit = tuple[float, ...]


class Reliability(msgspec.Struct, frozen=True):
    """Alpha of some units, with its bootstrap interval."""

    alpha: float | None
    """None without two values of one unit, or if all values are equal: then it is not defined."""
    low: float | None
    """None for both limits below `FEWEST` clusters."""
    high: float | None
    clusters: int
    """Clusters with at least two values in one unit."""


def alpha_of(units: Iterable[Sequence[float]], level: Level) -> float | None:
    """Return alpha; None if it is not defined.

    Args:
        units: The values that raters gave to each unit; units with fewer than two are left out.
        level: Level of measurement of the values.
    """
    return _alpha(Counter(tuple(sorted(unit)) for unit in units if len(unit) > 1), level)


def _alpha(units: Mapping[_Unit, int], level: Level) -> float | None:
    """Return 1 - observed / expected disagreement; `units` counts equal ones."""
    totals: Counter[float] = Counter()
    for unit, count in units.items():
        for value in unit:
            totals[value] += count
    n = totals.total()
    places = _places(totals, level)
    expected = _disagreement(totals, places) / (n - 1) if n > 1 else 0.0
    if not expected:
        return None
    observed = math.fsum(
        count * _disagreement(Counter(unit), places) / (len(unit) - 1)
        for unit, count in units.items()
    )
    return 1.0 - observed / expected


def _places(totals: Counter[float], level: Level) -> Mapping[float, float] | None:
    """Return the number of each value whose squared differences are distances; None: nominal."""
    if level == "nominal":
        return None
    mean = math.fsum(value * count for value, count in totals.items()) / max(1, totals.total())
    if level == "interval":
        return {value: value - mean for value in totals}
    below, ranks = 0.0, {}
    for value in sorted(totals):
        ranks[value] = below + (totals[value] - totals.total()) / 2
        below += totals[value]
    return ranks


def _disagreement(counts: Counter[float], places: Mapping[float, float] | None) -> float:
    """Return the sum of the distances of all ordered pairs of values, each counted as often as it
    occurs."""
    n = counts.total()
    if places is None:
        return n * n - sum(count * count for count in counts.values())
    first = math.fsum(count * places[value] for value, count in counts.items())
    second = math.fsum(count * places[value] ** 2 for value, count in counts.items())
    return max(0.0, 2 * (n * second - first * first))


def reliability(
    clusters: Sequence[Sequence[Sequence[float]]],
    level: Level,
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
    error: float = ALPHA,
) -> Reliability:
    """Return alpha of all units, with its percentile interval from resampled clusters.

    Args:
        clusters: Units by cluster: the values that raters gave to each unit.
        level: Level of measurement of the values.
        resamples: Number of resamples; those without a defined alpha are left out.
        seed: Seed of the resampling: equal data get equal intervals.
        error: Probability that the interval misses the true value.
    """
    usable = [[tuple(sorted(unit)) for unit in one if len(unit) > 1] for one in clusters]
    usable = [one for one in usable if one]
    kinds = Counter(tuple(sorted(one)) for one in usable)  # equal clusters are counted, not copied
    alpha = _alpha(Counter(chain.from_iterable(usable)), level)
    if alpha is None or len(usable) < FEWEST:
        return Reliability(alpha, None, None, len(usable))
    draw, values, weights = random.Random(seed), list(kinds), list(kinds.values())
    alphas = []
    for _ in range(resamples):
        drawn = Counter(draw.choices(range(len(values)), weights, k=len(usable)))
        units: Counter[_Unit] = Counter()
        for index, times in drawn.items():
            for unit in values[index]:
                units[unit] += times
        alphas.append(_alpha(units, level))
    some = sorted(one for one in alphas if one is not None)
    tail = error / 2
    return Reliability(alpha, _quantile(some, tail), _quantile(some, 1 - tail), len(usable))


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    """Return a quantile of sorted values, interpolated; None without values."""
    if not ordered:
        return None
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
