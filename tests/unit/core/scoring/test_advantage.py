"""Groups that teach, almost nothing and nothing."""

import pytest

from core.scoring.advantage import ALMOST_EQUAL, advantages, is_faint, lacks_signal

SHAPES = ((1, 0), (1, 0, 0, 0), (1, 1, 0, 0), (1, 1, 1, 0), (1, 0.5, 0.25, 0), (1, *(0,) * 31))
EMBEDDED = 0.2


@pytest.mark.parametrize("shape", SHAPES)
def test_a_spread_of_two_hundredths_teaches_almost_nothing(shape: tuple[float, ...]) -> None:
    rewards = [0.5 + 0.02 * place for place in shape]
    assert lacks_signal(rewards, EMBEDDED) == ALMOST_EQUAL
    assert lacks_signal([0.5 + 0.2 * place for place in shape], EMBEDDED) == ""


@pytest.mark.parametrize("shape", SHAPES)
def test_without_damping_any_difference_teaches_in_full(shape: tuple[float, ...]) -> None:
    rewards = [0.5 + 1e-4 * place for place in shape]
    assert lacks_signal(rewards, 0.0) == ""
    assert max(map(abs, advantages(rewards, 0.0))) >= 1 - 1e-6


def test_causes_of_groups_without_a_signal() -> None:
    assert lacks_signal([0.3], EMBEDDED) == "a single candidate"
    assert lacks_signal([0.1 + 0.2, 0.3, 0.3], EMBEDDED) == "equal rewards"
    assert is_faint([])
    assert not is_faint([0.1, -0.1])
