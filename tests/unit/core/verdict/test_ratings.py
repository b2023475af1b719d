import random
from typing import Any

import numpy as np
import pytest

from core.verdict.ratings import ENOUGH, correct, part_bias, student_quantile
from core.verdict.running import running_interval
from core.verdict.samples import SampleError


def world(
    rated: int, unrated: int, seed: int, noise: float = 0.3
) -> tuple[list[float], list[float], list[float]]:
    """Return ratings, scores of the rated items and scores of the others, of a friendly judge.

    `noise` is the standard deviation of the judge's errors.
    """
    rng = random.Random(seed)
    quality = [rng.betavariate(3, 1.5) for _ in range(rated + unrated)]
    ratings = [min(1.0, max(0.0, round(2 * (q + rng.gauss(0, 0.2))) / 2)) for q in quality]
    scores = [min(1.0, max(0.0, 0.2 + 0.8 * q + rng.gauss(0, noise))) for q in quality]
    return ratings[:rated], scores[:rated], scores[rated:]


def ppi(y: Any, f: Any, rest: Any) -> tuple[float, float, float]:
    """Return estimate, weight and asymptotic standard error of PPI++, by its formulas in numpy."""
    n, unrated = len(y), len(rest)
    weight = np.cov(y, f)[0, 1] / ((1 + n / unrated) * np.var(np.concatenate([f, rest]), ddof=1))
    weight = np.clip(weight, 0, 1)
    estimate = np.mean(y) + weight * (np.mean(rest) - np.mean(f))
    error = np.sqrt(
        np.var(np.subtract(y, weight * np.array(f))) / n + weight**2 * np.var(rest) / unrated
    )
    return float(estimate), float(weight), float(error)


@pytest.mark.parametrize(("rated", "unrated"), [(30, 482), (60, 60), (200, 1000)])
def test_the_estimate_is_that_of_the_formulas(rated: int, unrated: int) -> None:
    ratings, scores, rest = world(rated, unrated, rated)
    estimate, weight, error = ppi(ratings, scores, rest)
    correction = correct(ratings, scores, rest)
    assert correction.together is not None
    assert correction.together.estimate == pytest.approx(estimate, abs=1e-12)
    assert correction.weight == pytest.approx(weight, abs=1e-12)
    ratio = (correction.together.high - correction.together.low) / (2 * 1.959964 * error)
    assert 1.0 < ratio < 1 + 6 / rated


def test_the_stored_figures() -> None:
    """Of `ppi` above and of the corrections, so that neither changes unseen."""
    correction = correct(*world(40, 472, 7))
    assert correction.together is not None
    figures = (
        correction.automatic,
        correction.ratings.estimate,
        correction.together.estimate,
        correction.together.low,
        correction.together.high,
        correction.weight,
    )
    assert figures == pytest.approx(FIGURES, abs=5e-7)


FIGURES = (0.691396, 0.625000, 0.656763, 0.552449, 0.763441, 0.486131)


def test_together_is_narrower_than_the_ratings_alone() -> None:
    widths = together = 0.0
    for seed in range(10):
        correction = correct(*world(ENOUGH, 100, seed, 0.08))
        assert correction.together is not None
        widths += correction.ratings.high - correction.ratings.low
        together += correction.together.high - correction.together.low
    assert together < 0.97 * widths


def test_few_ratings_stand_alone() -> None:
    ratings, scores, rest = world(ENOUGH - 1, 200, 1)
    correction = correct(ratings, scores, rest)
    assert correction.together is None
    assert correction.best == correction.ratings == running_interval(ratings)
    assert correction.weight == 0.0
    assert correct(*world(ENOUGH, 200, 1)).together is not None


def test_all_items_rated_need_no_correction() -> None:
    ratings, scores, _ = world(40, 0, 1)
    assert correct(ratings, scores, []).together is None


def test_a_useless_score_is_ignored() -> None:
    ratings, _, _ = world(40, 0, 2)
    correction = correct(ratings, [0.5] * 40, [0.5] * 100)
    assert correction.weight == 0.0
    assert correction.together is not None
    assert correction.together.estimate == correction.ratings.estimate


def test_a_score_against_the_ratings_is_ignored() -> None:
    ratings, _, _ = world(40, 0, 3)
    rest = [0.1, 0.9] * 50
    assert correct(ratings, [1 - rating for rating in ratings], rest).weight == 0.0


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_equal_ratings_keep_a_width(value: float) -> None:
    correction = correct([value] * 40, [0.5] * 40, [0.6] * 100)
    for interval in (correction.ratings, correction.best):
        assert interval.low <= value <= interval.high
        assert interval.high - interval.low > 0.02


def test_a_correction_stays_within_the_range_of_ratings() -> None:
    together = correct([1.0] * 38 + [0.9, 0.8], [0.9] * 38 + [0.1, 0.0], [1.0] * 100).together
    assert together is not None
    assert 0.0 < together.low < together.estimate <= together.high <= 1.0


def test_the_bias_of_each_part() -> None:
    ratings, scores, _ = world(60, 0, 5)
    bias = part_bias(ratings, {"judge": scores, "exact": ratings})
    assert bias["judge"].low > 0  # the judge is friendly
    assert bias["exact"].estimate == 0.0
    assert bias["exact"].low < 0 < bias["exact"].high
    few = part_bias(ratings[:5], {"judge": scores[:5]})["judge"]
    assert few.samples == 5
    assert few.high - few.low > bias["judge"].high - bias["judge"].low


@pytest.mark.parametrize(
    ("p", "degrees", "quantile"),
    [(0.975, 10, 2.228139), (0.975, 28, 2.048407), (0.975, 100, 1.983972), (0.995, 28, 2.763262)],
)
def test_quantiles_are_those_of_the_tables(p: float, degrees: int, quantile: float) -> None:
    assert student_quantile(p, degrees) == pytest.approx(quantile, abs=1e-4)
    assert student_quantile(1 - p, degrees) == pytest.approx(-quantile, abs=1e-4)


@pytest.mark.parametrize(
    ("ratings", "scores", "rest", "where"),
    [
        ([], [], [0.5], "ratings"),
        ([1.0], [], [0.5], "scores"),
        ([5.0], [0.5], [0.5], "ratings, sample 1"),
        ([1.0], [0.5], [0.5, -1.0], "scores of unrated items, sample 2"),
    ],
)
def test_invalid_ratings_are_named(
    ratings: list[float], scores: list[float], rest: list[float], where: str
) -> None:
    with pytest.raises(SampleError) as caught:
        correct(ratings, scores, rest)
    assert caught.value.where == where


def test_a_part_needs_a_score_for_each_rating() -> None:
    with pytest.raises(SampleError) as caught:
        part_bias([1.0, 0.0], {"judge": [1.0]})
    assert caught.value.where == "part judge"
