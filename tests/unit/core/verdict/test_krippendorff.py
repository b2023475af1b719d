"""Krippendorff's alpha, against his own worked examples and an independent implementation."""

import math
import random
from collections.abc import Sequence

import pytest

from core.verdict.krippendorff import Level, alpha_of, reliability

_ = None
MEG, OWEN = (0, 1, 0, 0, 0, 0, 0, 0, 1, 0), (1, 1, 1, 0, 0, 1, 0, 0, 0, 0)
BEN, GERRY = "aabbdcccedda", "babbbccceddd"
FOUR: Sequence[Sequence[int | None]] = (
    (1, 2, 3, 3, 2, 1, 4, 1, 2, _, _, _),
    (1, 2, 3, 3, 2, 2, 4, 1, 2, 5, _, 3),
    (_, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, _),
    (1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, _),
)
"""Four observers, twelve units, missing data."""


def units(raters: Sequence[Sequence[int | None]]) -> list[list[float]]:
    """The values of each unit."""
    return [[one for one in unit if one is not None] for unit in zip(*raters, strict=True)]


@pytest.mark.parametrize(
    ("raters", "level", "published"),
    [
        ((MEG, OWEN), "nominal", 0.095),  # section A
        (([*map(ord, BEN)], [*map(ord, GERRY)]), "nominal", 0.692),  # section B
        (FOUR, "nominal", 0.743),  # sections C and D
        (FOUR, "ordinal", 0.815),
        (FOUR, "interval", 0.849),
    ],
)
def test_the_examples_of_krippendorff_2011(
    raters: Sequence[Sequence[int | None]], level: Level, published: float
) -> None:
    """K. Krippendorff, Computing Krippendorff's Alpha-Reliability, 2011."""
    alpha = alpha_of(units(raters), level)
    assert alpha is not None
    assert round(alpha, 3) == published


def test_an_independent_implementation_gives_the_same() -> None:
    oracle = pytest.importorskip("krippendorff")
    draw = random.Random(3)
    for level in ("nominal", "ordinal", "interval"):
        for _try in range(40):
            raters, many = draw.randint(2, 4), draw.randint(3, 30)
            data = [
                [
                    draw.choice([0.0, 0.25, 0.5, 1.0]) if draw.random() > 0.2 else None
                    for _ in "x" * many
                ]
                for _ in range(raters)
            ]
            table = [[math.nan if one is None else one for one in row] for row in data]
            ours = alpha_of(
                [[one for one in unit if one is not None] for unit in zip(*data, strict=True)],
                level,
            )
            try:
                theirs = oracle.alpha(reliability_data=table, level_of_measurement=level)
            except ValueError:
                assert ours is None
                continue
            assert ours == pytest.approx(theirs, abs=1e-9)


def test_alpha_is_not_defined_without_variation_or_pairs() -> None:
    assert alpha_of([[1.0, 1.0], [1.0, 1.0]], "interval") is None
    assert alpha_of([[1.0], [2.0]], "nominal") is None
    assert alpha_of([], "ordinal") is None
    assert alpha_of([[1.0, 1.0], [2.0, 2.0]], "ordinal") == pytest.approx(1.0)


def test_the_interval_is_reproducible_and_narrows_with_more_groups() -> None:
    draw = random.Random(1)

    def groups(many: int) -> list[list[list[float]]]:
        """Two raters who choose one of four answers; they agree in 7 of 10 groups or by chance."""
        clusters = []
        for _group in range(many):
            first = draw.randrange(4)
            second = first if draw.random() < 0.7 else draw.randrange(4)
            clusters.append([[float(first), float(second)]])
        return clusters

    few, many = groups(100), groups(1600)
    some = reliability(few, "nominal")
    assert some == reliability(few, "nominal")
    assert some.clusters == 100
    assert some.alpha is not None
    assert some.low is not None
    assert some.high is not None
    assert some.low < some.alpha < some.high
    assert some.low < 0.7 < some.high
    more = reliability(many, "nominal", resamples=200)
    assert more.low is not None
    assert more.high is not None
    assert more.high - more.low < (some.high - some.low) / 2
    assert reliability(few[:9], "nominal").low is None
