"""Intervals that hold at every reading, and the shares of the error of each look."""

import math
import random
from collections.abc import Iterator
from itertools import product

import pytest

from core.verdict.betting import (
    ALPHA,
    CAP,
    _adaptive,
    _even,
    difference_interval,
    mean_interval,
    running_interval,
    share,
    spent,
)
from core.verdict.samples import SampleError


def drawn(means: list[float], rounds: int, seed: int) -> list[list[float]]:
    rng = random.Random(seed)
    return [[float(rng.random() < mean) for _ in range(rounds)] for mean in means]


MEANS = [0.1, 0.3, 0.5, 0.9] * 4


def test_the_interval_of_a_mean_covers_it() -> None:
    missed = 0
    for seed in range(40):
        interval = mean_interval(drawn(MEANS, 4, seed), 0.2)
        missed += not interval.low <= 0.45 <= interval.high
        assert interval.low <= interval.estimate <= interval.high
    assert missed <= 8


def test_the_interval_of_a_difference_covers_it() -> None:
    now = [mean + 0.1 for mean in MEANS]
    missed = 0
    for seed in range(25):
        before, after = drawn(MEANS, 4, seed), drawn(now, 4, 1000 + seed)
        interval = difference_interval(before, after, 0.2)
        missed += not interval.low <= 0.1 <= interval.high
    assert missed <= 5


def outcomes(means: tuple[float, float]) -> Iterator[tuple[float, list[list[float]]]]:
    """Yield all results of two prompts with four rounds of 0 or 1, and their probabilities."""
    for bits in product((0.0, 1.0), repeat=8):
        table = [list(bits[at : at + 2]) for at in range(0, 8, 2)]
        yield (
            math.prod(
                mean if value else 1 - mean
                for row in table
                for value, mean in zip(row, means, strict=True)
            ),
            table,
        )


@pytest.mark.parametrize("means", [(0.2, 0.9), (0.5, 0.5), (0.01, 0.99), (0.9, 0.95)])
def test_the_capital_is_expected_to_be_at_most_one(means: tuple[float, float]) -> None:
    """Exact: two rounds before and two now of the same policy, both directions."""
    level = math.log(4)
    up = down = 0.0
    for chance, table in outcomes(means):
        first, forecast = _adaptive(table[:2], level, 2.0, CAP)
        second = _even(table[2:], first.stakes / 4, *forecast)
        up += chance * math.exp(second.up + first.down)
        down += chance * math.exp(second.down + first.up)
    assert 0.5 < up <= 1.0
    assert 0.5 < down <= 1.0


def test_the_interval_misses_within_its_error() -> None:
    missed = 0.0
    for chance, table in outcomes((0.4, 0.6)):
        before, now = zip(*table[:2], strict=True), zip(*table[2:], strict=True)
        interval = difference_interval(list(before), list(now), 0.5)
        missed += chance * (not interval.low <= 0.0 <= interval.high)
    assert 0.0 < missed <= 0.5


def test_a_smaller_error_gives_a_wider_interval() -> None:
    before, now = drawn(MEANS, 8, 1), drawn(MEANS, 8, 2)
    intervals = [difference_interval(before, now, share(look)) for look in (1, 3, 10, 40)]
    widths = [interval.high - interval.low for interval in intervals]
    assert widths == sorted(widths)
    assert widths[0] < widths[-1]


def test_more_samples_give_a_narrower_interval() -> None:
    widths = []
    for rounds in (2, 8, 32):
        interval = mean_interval(drawn(MEANS, rounds, 3), 0.05)
        widths.append(interval.high - interval.low)
    assert widths == sorted(widths, reverse=True)


def test_the_variance_between_prompts_does_not_count() -> None:
    """Prompts that are always or never solved, against prompts that are solved half the time."""
    split = [[1.0] * 8] * 16 + [[0.0] * 8] * 16
    mixed = [[1.0, 0.0] * 4] * 32
    narrow, wide = mean_interval(split, 0.05), mean_interval(mixed, 0.05)
    assert narrow.estimate == wide.estimate == 0.5
    assert narrow.high - narrow.low < 0.6 * (wide.high - wide.low)


def test_exchanging_the_rewards_mirrors_the_interval() -> None:
    before, now = drawn(MEANS, 4, 4), drawn(MEANS, 4, 5)
    plain = difference_interval(before, now, 0.05)
    flipped = difference_interval(
        [[1 - x for x in values] for values in before],
        [[1 - x for x in values] for values in now],
        0.05,
    )
    assert flipped.low == pytest.approx(-plain.high)
    assert flipped.high == pytest.approx(-plain.low)


def test_the_bounds_of_the_reward_scale_the_interval() -> None:
    before, now = drawn(MEANS, 4, 6), drawn(MEANS, 4, 7)
    unit = difference_interval(before, now, 0.05)
    wide = difference_interval(
        [[4 * x - 2 for x in values] for values in before],
        [[4 * x - 2 for x in values] for values in now],
        0.05,
        (-2.0, 2.0),
    )
    assert (wide.estimate, wide.low, wide.high) == pytest.approx(
        (4 * unit.estimate, 4 * unit.low, 4 * unit.high)
    )
    mean = mean_interval([[4 * x - 2 for x in values] for values in now], 0.05, (-2.0, 2.0))
    plain = mean_interval(now, 0.05)
    assert mean.low == pytest.approx(4 * plain.low - 2)


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_equal_samples_keep_a_width(value: float) -> None:
    same = [[value] * 8] * 16
    interval = mean_interval(same, 0.05)
    assert interval.low <= value <= interval.high
    assert 0 < interval.high - interval.low < 0.3
    difference = difference_interval(same, same, 0.05)
    assert difference.low < 0 < difference.high


def test_from_never_to_always() -> None:
    interval = difference_interval([[0.0] * 8] * 64, [[1.0] * 8] * 64, share(1))
    assert interval.estimate == interval.high == 1.0
    assert interval.low > 0.9


def test_one_prompt_with_one_sample_shows_nothing() -> None:
    interval = difference_interval([[0.0]], [[1.0]], 0.05)
    assert (interval.low, interval.high, interval.samples) == (-1.0, 1.0, 2)


def test_arms_may_differ_in_rounds() -> None:
    interval = difference_interval(drawn(MEANS, 2, 8), drawn(MEANS, 12, 9), 0.05)
    assert interval.low < 0 < interval.high
    assert interval.samples == 14 * 16


def test_every_prompt_counts_the_same() -> None:
    """A prompt with a sample more than the others does not weigh more."""
    assert mean_interval([[1.0, 1.0, 1.0], [0.0]], 0.05).estimate == 0.5


@pytest.mark.parametrize(
    ("baseline", "look", "where"),
    [
        ([], [], "baseline"),
        ([[1.0]], [[]], "look, prompt 1"),
        ([[1.0]], [[1.0], [0.0]], "look"),
        ([[1.0]], [[1.5]], "look, prompt 1, sample 1"),
        ([[1.0, math.nan]], [[1.0]], "baseline, prompt 1, sample 2"),
        ([[1.0, math.inf]], [[1.0]], "baseline, prompt 1, sample 2"),
    ],
)
def test_invalid_samples_are_named(
    baseline: list[list[float]], look: list[list[float]], where: str
) -> None:
    with pytest.raises(SampleError) as caught:
        difference_interval(baseline, look, 0.05)
    assert caught.value.where == where


def test_invalid_bounds_and_errors_are_named() -> None:
    with pytest.raises(SampleError) as caught:
        mean_interval([[1.0]], 0.05, (1.0, 0.0))
    assert caught.value.where == "bounds"
    for alpha in (0.0, 1.0, math.nan):
        with pytest.raises(SampleError) as caught:
            mean_interval([[1.0]], alpha)
        assert caught.value.where == "alpha"


BITS = [1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0]
RAMP = [index % 10 / 10 for index in range(50)]

FIGURES = [
    (BITS, 0.05, 0.34592, 0.99393),
    (BITS * 5, 0.05, 0.56764, 0.88530),
    (BITS * 5, 0.01, 0.53436, 0.90818),
    (RAMP, 0.05, 0.32573, 0.56172),
    ([1.0] * 30, 0.05, 0.79259, 1.00000),
    ([0.5] * 30, 0.05, 0.39629, 0.60371),
]
"""Series with the limits of `ville.BettingCS(alpha, intersect=False, grid=100_001)` of the package
ville 0.1.0; its grid widens an interval by up to 2e-5."""


@pytest.mark.parametrize(("values", "alpha", "low", "high"), FIGURES)
def test_the_limits_are_those_of_ville(
    values: list[float], alpha: float, low: float, high: float
) -> None:
    interval = running_interval(values, alpha)
    assert interval.low == pytest.approx(low, abs=3e-5)
    assert interval.high == pytest.approx(high, abs=3e-5)


def test_ville_itself_agrees() -> None:
    ville = pytest.importorskip("ville")
    rng = random.Random(1)
    values = [rng.betavariate(2, 1) for _ in range(80)]
    low, high = ville.BettingCS(intersect=False, grid=10_001).fit(values).interval()
    interval = running_interval(values)
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=3e-4)


def test_repeated_readings_cover_the_mean() -> None:
    """Six readings of one series: a series has a wrong one at most once in five."""
    missed = 0
    for seed in range(10):
        rng = random.Random(seed)
        values = [float(rng.random() < 0.7) for _ in range(20)]
        readings = (running_interval(values[:n], 0.2) for n in range(5, 21, 3))
        missed += any(not reading.low <= 0.7 <= reading.high for reading in readings)
    assert missed <= 2


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_equal_samples_keep_a_width_at_every_reading(value: float) -> None:
    interval = running_interval([value] * 20)
    assert interval.estimate == value
    assert 0.05 < interval.high - interval.low < 0.5
    assert interval.low <= value <= interval.high


def test_bounds_scale_the_interval() -> None:
    unit, wide = running_interval(BITS), running_interval([2 * x - 1 for x in BITS], 0.05, (-1, 1))
    assert wide.low == pytest.approx(2 * unit.low - 1)
    assert wide.high == pytest.approx(2 * unit.high - 1)


@pytest.mark.parametrize(
    ("values", "where"), [([], "samples"), ([1.0, math.nan], "samples, sample 2")]
)
def test_invalid_samples_of_a_series_are_named(values: list[float], where: str) -> None:
    with pytest.raises(SampleError) as caught:
        running_interval(values)
    assert caught.value.where == where


def test_the_shares_of_all_looks_stay_within_the_error() -> None:
    shares = [share(look) for look in range(1, 10_001)]
    assert math.fsum(shares) == pytest.approx(spent(10_000))
    assert 0.999 * ALPHA < spent(10_000) < ALPHA
    assert shares == sorted(shares, reverse=True)


def test_spent_is_the_sum_of_the_shares() -> None:
    assert spent(0) == 0.0
    assert spent(3, 0.1) == pytest.approx(share(1, 0.1) + share(2, 0.1) + share(3, 0.1))


def test_looks_count_from_one() -> None:
    with pytest.raises(SampleError) as caught:
        share(0)
    assert caught.value.where == "look"
