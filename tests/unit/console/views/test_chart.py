"""Curves and sparklines as characters."""

import pytest

from console.models.reward_figures import Point
from console.views.chart import bounds, curve, sparkline, thin


@pytest.mark.parametrize("count", [1, 2, 3, 77, 1000])
def test_a_curve_accepts_any_number_of_points(count: int) -> None:
    points = [Point(step, (step * 37 % 11) / 11, 0.1) for step in range(1, count + 1)]
    assert len(curve(points, 60, 8)) == 8
    assert len(thin(points, 54)) <= 54


def test_equal_rewards_still_have_an_axis() -> None:
    low, high = bounds([Point(1, 0.5, 0.0)])
    assert low < 0.5 < high
    assert len(curve([Point(1, 0.5, 0.0), Point(2, 0.5, 0.0)], 30, 5)) == 5


def test_thinning_keeps_the_last_point() -> None:
    points = [Point(step, float(step), 0.0) for step in range(100)]
    assert thin(points, 10)[-1] == points[-1]


def test_a_sparkline_shows_nothing_as_dots() -> None:
    assert sparkline([0, 0]).plain == "··"
    assert sparkline([0, 1, 2]).plain == "·▄█"
