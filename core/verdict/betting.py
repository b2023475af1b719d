"""Confidence intervals by betting for the mean over fixed prompts, and for a difference of means.

A bettor starts with a capital of 1 and bets against a claimed mean. If the claim is true, no
strategy makes the expected capital grow, so a capital of 1/a refutes the claim at level a (Markov;
Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by betting", JRSS B
86(1), section 4: hedged capital, predictable plug-in stakes, bets in both directions with half of
the capital each).

**Prompts.** The prompts are fixed and their means m_p differ; the claim is about the average m of
the m_p. Sample X of prompt p is bet on with a stake s in [0, `CAP`] and a centre c_p in [0, 1],
both computed from earlier rounds only. The factor 1 + s (X - c_p) is positive and has the
conditional mean 1 + s (m_p - c_p) <= exp(s (m_p - c_p)). Hence

    G = product of [1 + s (X - c_p)] exp(s c_p) * exp(-s m_p)

has an expectation of at most 1, for bounded samples of any distribution. The stakes of a round are
equal, so the last factors multiply to exp(-S m) with S the sum of all stakes: the capital depends
on the m_p through m alone, and the limits are closed forms. Since c_p follows the prompt, the width
depends on the variance within prompts; that between prompts does not enter. (Spertus, Sridhar and
Stark 2024, arXiv 2409.06680, combine strata by products as well, but search over all m_p.)

**Difference.** The baseline bets downwards, the look upwards, with equal sums of stakes S. The
product of both capitals depends on the two means through their difference only, and

    low = (up(look) + down(baseline) - log(2 / a)) / S

is a lower limit at level a / 2; the upper one exchanges the directions.

**Looks.** Each look has its own product and its own share of the error, so the union bound over
looks holds whatever the looks have in common, here the baseline. Within a product the order is:
baseline round by round, then the look. The look's factors have a conditional mean of at most 1
given everything that was seen before its samples were drawn. So a policy that depends on earlier
verdicts (a rewind, a stop, an operator who reads the curve) leaves the interval valid. Two things
would not: a baseline that was chosen because of the samples it is compared with (take fresh ones),
and a number of samples that depends on their values.

Shares of the error probability: what each look may spend so that all looks stay within 5 %.

Confidence interval of a mean that may be read after every sample, as human ratings arrive.
"""

import math
from collections.abc import Iterator, Sequence

import msgspec

from core.verdict.samples import UNIT, Bounds, SampleError, check_alpha, rounds, scaled

ALPHA = 0.05
"""Probability of any false verdict in a comparison, at any look and in either direction."""

EARLY = 10
"""Number of looks over which the shares stay nearly even."""


def share(look: int, alpha: float = ALPHA) -> float:
    """Return the error probability of look `look`.

    The share of look k is alpha * e / ((k + e - 1) * (k + e)) with e = `EARLY`. The sum telescopes:
    k looks spend alpha * k / (k + e), so any number of looks stays below `alpha`, and all of it is
    used in the limit. alpha * 6 / (pi^2 k^2) also sums to alpha, but spends 61 % of it on the first
    look, when a policy has hardly changed, and leaves a tenth look 0.6 % instead of 2.6 %.

    Args:
        look: Number of the look against its baseline, from 1.
        alpha: Error probability of the whole comparison.

    Raises:
        SampleError: `look` is below 1.
    """
    if look < 1:
        raise SampleError(f"look {look}", "look", "Count the looks of a comparison from 1")
    return alpha * EARLY / ((look + EARLY - 1) * (look + EARLY))


def spent(looks: int, alpha: float = ALPHA) -> float:
    """Return the error probability that the first `looks` looks spend together."""
    return alpha * looks / (looks + EARLY) if looks > 0 else 0.0


CAP = 0.75
"""Largest stake. It keeps every factor at 1/4 or more; Waudby-Smith and Ramdas use 1/2 or 3/4."""

FIRST = 0.25
"""Variance that is assumed before any sample: the largest one on 0 to 1."""


class Interval(msgspec.Struct, frozen=True):
    """A mean, or a difference of means, with its confidence limits."""

    estimate: float
    """Average of the samples: the mean of the prompts' means."""
    low: float
    high: float
    alpha: float
    """Probability that the limits miss the true value."""
    samples: int
    """Number of samples that entered."""


class _Capital(msgspec.Struct, frozen=True):
    """Logarithms of capitals without their factor exp(-+S m)."""

    up: float
    down: float
    stakes: float
    """Sum S of the stakes over all samples."""


class _Forecast:
    """Forecast of the next round from the earlier ones: centres of the prompts and squared error.

    The prompts' averages are shrunk towards a common value by the estimated share of their variance
    that is between prompts (empirical Bayes, James and Stein 1961).
    """

    def __init__(self, offsets: Sequence[float], weight: float, error: float) -> None:
        """Start without samples.

        Args:
            offsets: Centre of each prompt before any sample.
            weight: Weight of a prompt's own sample after one round.
            error: Expected squared error of the offsets.
        """
        self._offsets = offsets
        self._weight = weight
        self._error = error
        self._sums = [0.0] * len(offsets)
        self._squares = 0.0
        self._rounds = 0

    def add(self, values: Sequence[float]) -> None:
        """Take in a round: one value for each prompt, shape `(prompts,)`."""
        sums, squares = self._sums, 0.0
        for index, (value, offset) in enumerate(zip(values, self._offsets, strict=True)):
            gap = value - offset
            sums[index] += gap
            squares += gap * gap
        self._squares += squares
        self._rounds += 1

    def next(self) -> tuple[list[float], float]:
        """Return the centres, shape `(prompts,)`, within 0 to 1, and their squared error."""
        n, prompts = self._rounds, len(self._offsets)
        if n == 0:
            return list(self._offsets), self._error
        common = math.fsum(self._sums) / (n * prompts)
        spread = math.fsum([(total / n - common) ** 2 for total in self._sums])
        if n == 1:
            weight = self._weight
            error = spread / prompts
        else:
            raw = self._squares - math.fsum([total * total for total in self._sums]) / n
            within = max(0.0, raw) / (prompts * (n - 1))
            between = max(0.0, spread / (prompts - 1) - within / n) if prompts > 1 else 0.0
            weight = between / (between + within / n) if between > 0.0 else 0.0
            error = within * (1.0 + weight / n)
        seen = n * prompts
        error = (error * seen + FIRST) / (seen + 1)  # one more sample, of the largest variance
        rest = (1.0 - weight) * common
        share = weight / n
        centres = [
            min(1.0, max(0.0, offset + rest + share * total))
            for offset, total in zip(self._offsets, self._sums, strict=True)
        ]
        return centres, error


def mean_interval(
    samples: Sequence[Sequence[float]], alpha: float, bounds: Bounds = UNIT
) -> Interval:
    """Return the confidence interval of the mean over fixed prompts.

    Args:
        samples: For each prompt its rewards, in the order of sampling, shape `(prompts, rounds)`.
        alpha: Probability that the interval misses the mean, in either direction.
        bounds: Lowest and highest possible reward.

    Raises:
        SampleError: No samples, a value outside the bounds, or an invalid `alpha`.
    """
    check_alpha(alpha)
    table = rounds(samples, bounds)
    level = math.log(2.0 / alpha)
    capital, _ = _adaptive(table, level, 1.0, CAP)
    low, width = bounds[0], bounds[1] - bounds[0]
    mean = _mean(table)
    return Interval(
        estimate=low + width * mean,
        low=low + width * _within((capital.up - level) / capital.stakes, 0.0, mean),
        high=low + width * _within((level - capital.down) / capital.stakes, mean, 1.0),
        alpha=alpha,
        samples=len(table) * len(table[0]),
    )


def difference_interval(
    baseline: Sequence[Sequence[float]],
    look: Sequence[Sequence[float]],
    alpha: float,
    bounds: Bounds = UNIT,
) -> Interval:
    """Return the confidence interval of the look's mean minus the baseline's, over fixed prompts.

    The limits cover the difference at this look with probability 1 - `alpha`; see the module for
    what holds over several looks at one baseline.

    Args:
        baseline: For each prompt its rewards before, shape `(prompts, rounds)`.
        look: For each prompt its rewards now, fresh ones; the same prompts in the same order. The
            number of rounds may differ from the baseline's.
        alpha: Probability that the interval misses the difference, in either direction.
        bounds: Lowest and highest possible reward.

    Raises:
        SampleError: No samples, different numbers of prompts, a value outside the bounds, or an
            invalid `alpha`.
    """
    check_alpha(alpha)
    before, now = rounds(baseline, bounds, "baseline"), rounds(look, bounds, "look")
    if len(before[0]) != len(now[0]):
        raise SampleError(
            f"{len(now[0])} prompts, but the baseline has {len(before[0])}",
            "look",
            "Compare the same prompts",
        )
    level = math.log(2.0 / alpha)
    ratio = len(before) / len(now)
    first, forecast = _adaptive(before, level, 1.0 + ratio, CAP * min(1.0, 1.0 / ratio))
    second = _even(now, first.stakes / (len(now) * len(now[0])), *forecast)
    effect = _mean(now) - _mean(before)
    width = bounds[1] - bounds[0]
    low = (second.up + first.down - level) / first.stakes
    high = (level - second.down - first.up) / first.stakes
    return Interval(
        estimate=width * effect,
        low=width * _within(low, -1.0, effect),
        high=width * _within(high, effect, 1.0),
        alpha=alpha,
        samples=(len(before) + len(now)) * len(now[0]),
    )


def _adaptive(
    table: Sequence[Sequence[float]], level: float, ratio: float, cap: float
) -> tuple[_Capital, tuple[list[float], float]]:
    """Return the capital of stakes that follow the variance, and the forecast after the last round.

    The stake sqrt(2 level / (n variance)) makes the interval of n samples narrowest.

    Args:
        table: Rounds of one value for each prompt.
        level: Logarithm of the capital that refutes a claim.
        ratio: Variance of what is bounded, as a multiple of that of this mean.
        cap: Largest stake.
    """
    prompts = len(table[0])
    forecast = _Forecast([0.5] * prompts, 1 / 3, FIRST)  # 1/3: the weight for evenly spread means
    up = down = stakes = 0.0
    for values in table:
        centres, error = forecast.next()
        stake = min(cap, math.sqrt(2.0 * level / (len(table) * prompts * error * ratio)))
        rise, fall = _bet(values, centres, stake)
        up, down, stakes = up + rise, down + fall, stakes + stake * prompts
        forecast.add(values)
    return _Capital(up, down, stakes), forecast.next()


def _even(
    table: Sequence[Sequence[float]], stake: float, centres: Sequence[float], error: float
) -> _Capital:
    """Return the capital of one stake for all samples; the first centres come from the baseline."""
    forecast = _Forecast(centres, 0.1, error)
    up = down = 0.0
    for values in table:
        rise, fall = _bet(values, forecast.next()[0], stake)
        up, down = up + rise, down + fall
        forecast.add(values)
    return _Capital(up, down, stake * len(table) * len(centres))


def _bet(values: Sequence[float], centres: Sequence[float], stake: float) -> tuple[float, float]:
    """Return the logarithms of the growth of both directions in a round."""
    log1p = math.log1p
    gaps = [stake * (value - centre) for value, centre in zip(values, centres, strict=True)]
    price = stake * math.fsum(centres)
    rise = math.fsum([log1p(gap) for gap in gaps])
    fall = math.fsum([log1p(-gap) for gap in gaps])
    return rise + price, fall - price


def _mean(table: Sequence[Sequence[float]]) -> float:
    return math.fsum([math.fsum(values) for values in table]) / (len(table) * len(table[0]))


def _within(value: float, low: float, high: float) -> float:
    return min(high, max(low, value))


# --- a mean that is read after each sample --------------------------------------------------------

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
