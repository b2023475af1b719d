"""Confidence interval of a mean that may be read after every sample, as human ratings arrive."""

import math
from collections.abc import Iterator, Sequence

from core.verdict.betting import ALPHA, Interval
from core.verdict.samples import UNIT, Bounds, SampleError, check_alpha, scaled

TRUNCATION = 0.5
"""Share of the capital that a single sample can cost at most."""

_STEPS = 40
"""Halvings of the search for a limit: exact to 1e-12 of the range."""


def running_interval(
    values: Sequence[float], alpha: float = ALPHA, bounds: Bounds = UNIT
) -> Interval:
    """Return the hedged-capital interval of a mean, valid at all sample sizes at once.

    Waudby-Smith and Ramdas 2024 (JRSS B 86(1), theorem 3 with the predictable plug-in stakes of
    section 4.2, hedge 1/2). The probability that the interval misses the mean after any of the
    samples is at most `alpha`, so it may be shown after each of them. For samples from one
    distribution in their order of arrival; random draws of items are such samples.

    Args:
        values: Samples in order of arrival, such as ratings of items drawn at random.
        alpha: Probability that any of the intervals misses the mean.
        bounds: Lowest and highest possible sample.

    Raises:
        SampleError: No samples, one outside the bounds, or an invalid `alpha`.
    """
    check_alpha(alpha)
    if not values:
        raise SampleError("no samples", "samples")
    xs = scaled(values, bounds, "samples")
    stakes = list(_stakes(xs, alpha))
    mean = math.fsum(xs) / len(xs)
    level = math.log(2.0 / alpha)
    low = _lower_limit(xs, stakes, mean, level)
    high = 1.0 - _lower_limit([1.0 - x for x in xs], stakes, 1.0 - mean, level)
    base, width = bounds[0], bounds[1] - bounds[0]
    return Interval(
        estimate=base + width * mean,
        low=base + width * low,
        high=base + width * high,
        alpha=alpha,
        samples=len(xs),
    )


def _stakes(xs: Sequence[float], alpha: float) -> Iterator[float]:
    """Yield the stake on each sample, from the samples before it."""
    total, squares, variance = 0.5, 0.25, 0.25
    for n, x in enumerate(xs, start=1):
        yield math.sqrt(2.0 * math.log(2.0 / alpha) / (variance * n * math.log1p(n)))
        total += x
        squares += (x - total / (n + 1)) ** 2
        variance = squares / (n + 1)


def _lower_limit(xs: Sequence[float], stakes: Sequence[float], mean: float, level: float) -> float:
    """Return the largest mean below which bets on larger samples reach the capital exp(level)."""
    low, high = 0.0, mean
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if middle <= 0.0:
            return 0.0
        cap = TRUNCATION / middle
        capital = math.fsum(
            [
                math.log1p(min(stake, cap) * (x - middle))
                for x, stake in zip(xs, stakes, strict=True)
            ]
        )
        low, high = (middle, high) if capital >= level else (low, middle)
    return low
