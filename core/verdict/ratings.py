"""Human ratings of randomly drawn items, as a correction of the automatic score of all items."""

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist

import msgspec

from core.verdict.betting import Interval
from core.verdict.running import running_interval
from core.verdict.samples import UNIT, SampleError, check_alpha, scaled
from core.verdict.shares import ALPHA

ENOUGH = 30
"""Number of ratings from which they are combined with the automatic score."""

FIRST_VARIANCE = 0.25
"""Largest variance of a rating from 0 to 1."""


class Correction(msgspec.Struct, frozen=True):
    """Three estimates of the mean rating over all items."""

    automatic: float
    """Mean automatic score of all items, rated or not; it has the judge's bias."""
    ratings: Interval
    """The ratings alone."""
    together: Interval | None
    """Prediction-powered estimate; None below `ENOUGH` ratings or without unrated items."""
    weight: float
    """Weight of the automatic score in `together`: 0 ignores it, 1 trusts its differences fully."""

    @property
    def best(self) -> Interval:
        """The estimate to show: `together`, else the ratings alone."""
        return self.together or self.ratings


def correct(
    ratings: Sequence[float],
    scores_of_rated: Sequence[float],
    scores_of_rest: Sequence[float],
    alpha: float = ALPHA,
) -> Correction:
    """Return the mean rating over all items, from few ratings and an automatic score of all items.

    PPI++ with power tuning (Angelopoulos, Duchi and Zrnic 2023, "PPI++: Efficient
    Prediction-Powered Inference", arXiv 2311.01453, example 6.1): with n ratings Y, scores f of the
    rated and N scores of the other items,

        mean(Y) + w (mean of the other scores - mean of the rated ones' scores),
        w = cov(Y, f) / ((1 + n / N) var(f)), limited to 0 to 1.

    The paper's interval is asymptotic. This one is for n from 30: the residual variance has n - 2
    degrees of freedom, since the mean and w come from the same ratings; the error of w is added (as
    in a regression estimator from double sampling, Cochran 1977, section 12.6); one more residual
    of the largest variance keeps the width above 0 when all ratings agree; the quantile is
    Student's, and the limits follow the skew of the residuals (Johnson 1978, "Modified t tests and
    confidence intervals for asymmetrical populations", JASA 73). The interval is for one reading;
    `ratings` below 30 is valid after every rating.

    Args:
        ratings: Human ratings of items drawn at random, from 0 to 1, in order of arrival.
        scores_of_rated: Automatic scores of the same items, in the same order, from 0 to 1.
        scores_of_rest: Automatic scores of the items without a rating.
        alpha: Probability that an interval misses the mean.

    Returns:
        The estimates; below `ENOUGH` ratings the interval of the ratings alone is the
        `running_interval`, from then on Student's.

    Raises:
        SampleError: No ratings, unequal numbers of ratings and scores, or a value outside 0 to 1.
    """
    check_alpha(alpha)
    y = scaled(ratings, UNIT, "ratings")
    f = scaled(scores_of_rated, UNIT, "scores of rated items")
    rest = scaled(scores_of_rest, UNIT, "scores of unrated items")
    n, unrated = len(y), len(rest)
    if not n:
        raise SampleError("no ratings", "ratings", "Rate some pairs first")
    if len(f) != n:
        raise SampleError(f"{len(f)} scores for {n} ratings", "scores", "Give one for each")
    automatic = (math.fsum(f) + math.fsum(rest)) / (n + unrated)
    if n < ENOUGH:
        return Correction(automatic, running_interval(y, alpha), None, 0.0)
    alone = _student(y, alpha)
    if not unrated:
        return Correction(automatic, alone, None, 0.0)
    together, weight = _prediction_powered(y, f, rest, alpha)
    return Correction(automatic, alone, together, weight)


def part_bias(
    ratings: Sequence[float], parts: Mapping[str, Sequence[float]], alpha: float = ALPHA
) -> dict[str, Interval]:
    """Return for each part of the reward how much it scores the rated items above their ratings.

    Args:
        ratings: Human ratings of items drawn at random, from 0 to 1.
        parts: For each part its scores of the same items, in the same order, from 0 to 1.
        alpha: Probability that the interval of one part misses its bias.

    Returns:
        Mean of score minus rating by part, from -1 to 1, with Student's interval from `ENOUGH`
        ratings on and the `running_interval` below.

    Raises:
        SampleError: No ratings, unequal numbers, or a value outside 0 to 1.
    """
    check_alpha(alpha)
    y = scaled(ratings, UNIT, "ratings")
    biases = {}
    for part, scores in parts.items():
        f = scaled(scores, UNIT, f"part {part}")
        if len(f) != len(y):
            raise SampleError(
                f"{len(f)} scores for {len(y)} ratings", f"part {part}", "Give one for each"
            )
        gaps = [score - rating for score, rating in zip(f, y, strict=True)]
        if len(gaps) < ENOUGH:
            biases[part] = running_interval(gaps, alpha, (-1.0, 1.0))
        else:
            biases[part] = _student(gaps, alpha, (-1.0, 1.0))
    return biases


def student_quantile(p: float, degrees: float) -> float:
    """Return the quantile `p` of Student's distribution with `degrees` degrees of freedom.

    Expansion of Cornish and Fisher in 1 / degrees (Abramowitz and Stegun 1964, 26.7.5); from 10
    degrees on exact to 1e-4 for p up to 0.999.
    """
    z = NormalDist().inv_cdf(p)
    z2, d = z * z, degrees
    terms = (
        (z2 + 1) / (4 * d),
        ((5 * z2 + 16) * z2 + 3) / (96 * d**2),
        (((3 * z2 + 19) * z2 + 17) * z2 - 15) / (384 * d**3),
        ((((79 * z2 + 776) * z2 + 1482) * z2 - 1920) * z2 - 945) / (92160 * d**4),
    )
    return z * (1.0 + math.fsum(terms))


def _student(values: Sequence[float], alpha: float, bounds: tuple[float, float] = UNIT) -> Interval:
    """Return Student's interval, with one more residual of the largest variance."""
    n = len(values)
    mean = math.fsum(values) / n
    squares = math.fsum([(value - mean) ** 2 for value in values])
    variance = _guarded(squares, n - 1, (bounds[1] - bounds[0]) ** 2 / 4)
    quantile = student_quantile(1 - alpha / 2, n - 1)
    cubes = math.fsum([(value - mean) ** 3 for value in values])
    return _skewed(mean, math.sqrt(variance / n), quantile, cubes, alpha, n, bounds)


def _prediction_powered(
    y: Sequence[float], f: Sequence[float], rest: Sequence[float], alpha: float
) -> tuple[Interval, float]:
    """Return the PPI++ interval and the weight of the automatic score."""
    n, unrated = len(y), len(rest)
    y_mean, f_mean, rest_mean = math.fsum(y) / n, math.fsum(f) / n, math.fsum(rest) / unrated
    all_mean = (n * f_mean + unrated * rest_mean) / (n + unrated)
    all_squares = math.fsum([(score - all_mean) ** 2 for score in (*f, *rest)])
    variance = all_squares / (n + unrated - 1)
    products = math.fsum([(a - y_mean) * (b - f_mean) for a, b in zip(y, f, strict=True)])
    f_squares = math.fsum([(score - f_mean) ** 2 for score in f])
    weight = 0.0
    if variance > 0.0 and f_squares > 0.0:
        weight = min(1.0, max(0.0, products / (n - 1) / ((1 + n / unrated) * variance)))
    gap = rest_mean - f_mean
    residuals = [a - y_mean - weight * (b - f_mean) for a, b in zip(y, f, strict=True)]
    noise = _guarded(math.fsum([one * one for one in residuals]), n - 2, FIRST_VARIANCE)
    slope = gap**2 * noise / f_squares if weight > 0.0 else 0.0
    error = math.sqrt(noise / n + weight**2 * variance / unrated + slope)
    quantile = student_quantile(1 - alpha / 2, n - 2)
    cubes = math.fsum([one**3 for one in residuals])
    return _skewed(y_mean + weight * gap, error, quantile, cubes, alpha, n, UNIT), weight


def _guarded(squares: float, degrees: int, largest: float) -> float:
    """Return the variance from a sum of squares and one more term of the largest variance."""
    return (squares + largest) / (degrees + 1)


def _skewed(
    mean: float,
    error: float,
    quantile: float,
    cubes: float,
    alpha: float,
    n: int,
    bounds: tuple[float, float],
) -> Interval:
    """Return mean +- quantile * error, moved for skewed residuals.

    Args:
        mean: Estimate.
        error: Standard error of the estimate.
        quantile: Quantile of the two-sided interval.
        cubes: Sum of the third powers of the `n` residuals.
        alpha: Error probability of the interval.
        n: Number of ratings.
        bounds: Range of the true value.
    """
    cumulant = cubes / n**3  # third cumulant of a mean of n values
    move = cumulant / (6 * error**2) * (1 + 2 * quantile**2)
    estimate = min(bounds[1], max(bounds[0], mean))  # a correction can leave the range
    low, high = estimate + move - quantile * error, estimate + move + quantile * error
    low, high = max(bounds[0], min(estimate, low)), min(bounds[1], max(estimate, high))
    return Interval(estimate, low, high, alpha, n)
