"""The change of the mean reward beside the noise of a step."""

import random

import pytest

from console.models.reward_trend import reward_trend
from core.state import RunPoint
from tests.support.checks import present


def points(means: list[float], first: int = 1) -> list[RunPoint]:
    return [RunPoint(first + place, mean) for place, mean in enumerate(means)]


def test_the_newest_steps_are_compared_with_the_first_ones_of_which_none_is_in_both() -> None:
    trend = present(reward_trend(points([0.2, 0.3, 0.4, 0.9, 0.6, 0.7, 0.8], first=5)))
    assert (trend.since, trend.change) == (5, pytest.approx(0.4))
    assert trend.error == pytest.approx(2 * (0.01 / 3 + 0.01 / 3) ** 0.5)
    assert (trend.certain, trend.words, trend.tone) == (True, "▲ up 0.40", "$reward-up")
    fallen = present(reward_trend(points([0.8, 0.7, 0.6, 0.4, 0.3, 0.2])))
    assert (fallen.words, fallen.tone) == ("▼ down 0.40", "$reward-down")


def test_at_most_ten_steps_are_compared_at_either_end() -> None:
    trend = present(reward_trend(points([0.25] * 10 + [9.0] * 40 + [0.5] * 10)))
    assert (trend.change, trend.error) == (0.25, 0.0)


def test_two_unlike_steps_are_no_trend() -> None:
    """The newest step is 0.21 above the first one, as it may be by chance."""
    trend = present(reward_trend(points([0.51, 0.9, 0.4, 0.8, 0.3, 0.72])))
    assert not trend.certain
    assert (trend.words, trend.tone) == ("≈ +0.00 ± 0.43", "")


@pytest.mark.parametrize("count", range(6))
def test_below_six_steps_there_is_no_change(count: int) -> None:
    assert reward_trend(points([0.1 * one for one in range(count)])) is None


def test_equal_rewards_did_not_change() -> None:
    trend = present(reward_trend(points([0.1] * 9)))
    assert (trend.certain, trend.words) == (False, "≈ +0.00 ± 0.00")
    trend = present(reward_trend(points([0.103] * 3 + [0.1] * 3)))
    assert trend.words == "≈ +0.00 ± 0.00", "no minus for a change that rounds to nothing"


def test_means_of_several_steps_count_by_their_steps() -> None:
    joined = [RunPoint(8, 0.2, 8), RunPoint(16, 0.3, 8), RunPoint(24, 0.4, 8)]
    newest = [RunPoint(step, 0.6) for step in range(25, 30)]
    trend = present(reward_trend([*joined, *newest]))
    assert trend.change == pytest.approx(0.3), "three points at least, although they are 24 steps"
    assert trend.error == pytest.approx(2 * (8 * 0.02 / 2 / 24) ** 0.5)
    ten = [RunPoint(5, 0.2, 5), RunPoint(8, 0.2, 3), RunPoint(10, 0.2, 2), RunPoint(20, 9.0, 10)]
    trend = present(reward_trend([*ten, *ten[::-1]]))
    assert trend.change == 0.0, "the window is full with ten steps"


@pytest.mark.parametrize("steps", [8, 20, 60])
def test_a_reward_that_stays_the_same_is_seldom_called_a_change(steps: int) -> None:
    runs, found = 400, 0
    for seed in range(runs):
        dice = random.Random(seed)
        trend = present(reward_trend(points([dice.gauss(0.5, 0.2) for _ in range(steps)])))
        found += trend.certain
    assert found <= 0.12 * runs, "two standard errors, from windows of as few as four steps"
