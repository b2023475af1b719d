"""The arithmetic from parts to a reward, and its errors."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.events import Part
from core.scoring.advantage import RewardError, advantages, is_dead, spread
from proxy.rewards.model.spec import combine

numbers = st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=8)


def test_combine_multiplies_gates_with_the_weighted_sum() -> None:
    parts = [
        Part("a", 0.5, 0.4),
        Part("b", 1.0, 0.6),
        Part("g", 0.5, gate=True),
        Part("h", 0.5, gate=True),
        Part("shown", 9.0, 0.0),
    ]
    assert combine(parts) == pytest.approx(0.25 * 0.8)


def test_combine_without_gates_is_the_sum() -> None:
    assert combine([Part("a", -1.0), Part("b", 0.25)]) == -0.75


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e308])
def test_combine_names_the_part_that_is_not_a_number(bad: float) -> None:
    with pytest.raises(RewardError, match="part odd"):
        combine([Part("a", 1.0), Part("odd", bad)])


def test_combine_refuses_an_overflow_of_usable_parts() -> None:
    with pytest.raises(RewardError, match="combine to"):
        combine([Part("a", 1e9, 1e9)])


def test_advantages_by_hand() -> None:
    assert advantages([1.0, 0.0], 0.0) == pytest.approx([1.0, -1.0])
    assert advantages([1.0, 0.0], 0.5) == pytest.approx([0.5, -0.5])
    assert advantages([0.0, 0.0, 0.0, 1.0], 0.0)[3] == pytest.approx(math.sqrt(3))


@pytest.mark.parametrize("rewards", [[], [0.7], [0.1] * 3, [0.3, 0.1 + 0.2]])
@pytest.mark.parametrize("damping", [0.0, 1e-6])
def test_dead_groups_have_no_advantage(rewards: list[float], damping: float) -> None:
    assert is_dead(rewards)
    assert advantages(rewards, damping) == [0.0] * len(rewards)


def test_a_small_difference_is_not_dead() -> None:
    assert not is_dead([0.5, 0.5001])
    assert spread([0.5, 0.5001]) == pytest.approx(0.0001)
    assert spread([0.5]) == 0.0


def test_advantages_refuse_nan() -> None:
    with pytest.raises(RewardError, match="reward 1"):
        advantages([0.0, math.nan], 0.0)


@pytest.mark.slow
@given(numbers, st.floats(0, 10))
def test_advantages_are_finite_centred_and_keep_the_order(
    rewards: list[float], damping: float
) -> None:
    result = advantages(rewards, damping)
    assert all(map(math.isfinite, result))
    assert abs(math.fsum(result)) < 1e-4 * len(result)
    if not is_dead(rewards):
        assert result[rewards.index(max(rewards))] == max(result) > 0
