import math
import random

import pytest

from core.verdict.betting import running_interval
from core.verdict.samples import SampleError

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
def test_equal_samples_keep_a_width(value: float) -> None:
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
def test_invalid_samples_are_named(values: list[float], where: str) -> None:
    with pytest.raises(SampleError) as caught:
        running_interval(values)
    assert caught.value.where == where
