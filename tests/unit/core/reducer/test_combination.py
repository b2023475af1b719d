"""Combination of the votes of several raters."""

import pytest

from core.state.rating import Rating, combine


def best(index: int) -> Rating:
    """A vote for one of three answers."""
    rewards = tuple(float(place == index) for place in range(3))
    return Rating(rating="best", order=(index,), rewards=rewards)


def test_the_reward_of_an_answer_is_its_mean_over_the_votes() -> None:
    ranking = Rating(rating="ranking", order=(1, 0, 2), rewards=(0.5, 1.0, 0.0))
    mixed = combine([best(0), ranking])
    assert (mixed.rating, mixed.order) == ("scores", ())
    assert mixed.rewards == mixed.scores == (0.75, 0.5, 0.0)
    three = combine([best(0), best(1), best(1)])
    assert three.rewards == pytest.approx((1 / 3, 2 / 3, 0.0))


def test_equal_votes_remain_that_vote() -> None:
    same = combine([best(2), best(2)])
    assert (same.rating, same.order, same.scores) == ("best", (2,), ())
    bad = Rating(rating="bad", rewards=(0.0, 0.0, 0.0))
    tie = Rating(rating="tie", rewards=(0.5, 0.5, 0.5))
    assert combine([bad, bad]).rating == "bad"
    assert combine([bad, tie]) == Rating(rating="scores", scores=(0.25,) * 3, rewards=(0.25,) * 3)


def test_a_skip_judges_nothing() -> None:
    skip = Rating(rating="skip")
    assert combine([skip, best(1)]).rewards == (0.0, 1.0, 0.0)
    assert combine([skip, skip]) == Rating(rating="skip")
