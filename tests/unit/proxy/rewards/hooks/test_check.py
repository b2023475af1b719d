"""Validation of what hooks return."""

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from proxy.rewards.hooks.functions import BadResultError, checked_rewards, notes_of


@pytest.mark.parametrize(
    "result", [[1, 0.5], (True, False), [Fraction(1, 2), -1], [1e9, -1e9], [0.0, -0.0]]
)
def test_good_results(result: Any) -> None:
    rewards = checked_rewards(result, 2)
    assert rewards == [float(value) for value in result]
    assert all(type(reward) is float for reward in rewards)


class Tensor:
    """As torch's: no number by its type, and it lists what it holds."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def tolist(self) -> Any:
        return self.held


@pytest.mark.parametrize(
    "result",
    [
        np.array([0.25, 1.0]),
        np.array([0.25, 1], dtype=np.float32),
        [np.float32(0.25), np.int64(1)],
        [np.array(0.25), Tensor(1.0)],
        Tensor([0.25, 1.0]),
        (Tensor(0.25), 1),
    ],
)
def test_arrays_and_tensors_count_as_the_numbers_they_hold(result: Any) -> None:
    rewards = checked_rewards(result, 2)
    assert rewards == [0.25, 1.0]
    assert all(type(reward) is float for reward in rewards)
    before = {"role": "assistant"}
    held = [Tensor(0.25), np.float32(0.25)]
    assert [notes_of([before], [{**before, "warm": one}])[0].values for one in held] == [
        {"warm": 0.25}
    ] * 2


@pytest.mark.parametrize(
    ("result", "actual"),
    [
        (np.array([[0.5], [1.0]]), "reward 0 is list [0.5]"),
        (np.array(0.5), "returned float 0.5"),
        (np.array([0.5, np.nan]), "reward 1 is nan"),
        (np.array(["a", "b"]), "reward 0 is str 'a'"),
        (Tensor([0.5]), "returned 1 rewards for 2 answers"),
        (None, "returned None"),
        (0.5, "returned float 0.5"),
        ("ab", "returned str 'ab'"),
        ({0: 1.0, 1: 0.0}, "returned dict"),
        ([1.0], "returned 1 rewards for 2 answers"),
        ([1.0, 0.5, 0.0], "returned 3 rewards for 2 answers"),
        ([], "returned 0 rewards for 2 answers"),
        ([1.0, math.nan], "reward 1 is nan"),
        ([math.inf, 1.0], "reward 0 is inf"),
        ([1.0, 1e308], "reward 1 is 1e+308"),
        ([1.0, 10**400], "reward 1 is inf"),
        ([1.0, "0.5"], "reward 1 is str '0.5'"),
        ([None, 1.0], "reward 0 is None"),
        ([[1.0], 1.0], "reward 0 is list [1.0]"),
        ([Decimal(1), 1.0], "one for each answer; write float(...)"),
        ([1j, 1.0], "reward 0 is complex 1j"),
        (iter([1.0, 0.5]), "returned list_iterator"),
    ],
)
def test_bad_results_report_the_value_and_what_was_expected(result: Any, actual: str) -> None:
    with pytest.raises(BadResultError) as caught:
        checked_rewards(result, 2)
    assert actual in str(caught.value)
    assert "expected a list of 2 numbers" in str(caught.value)


def test_notes_are_what_the_hook_added() -> None:
    before = {"role": "assistant", "content": "x"}
    after = {
        **before,
        "content": "changed",
        "quality": 1,
        "why": "short",
        "odd": math.nan,
        "list": [1],
        "text": "y" * 5_000,
    }
    (note,) = notes_of([before], [after])
    assert note.values == {"quality": 1.0}
    assert note.texts["why"] == "short"
    assert note.texts["odd"].startswith("nan")
    assert len(note.texts["text"]) == 2_000
    assert "list" not in {**note.values, **note.texts}


def test_notes_are_bounded() -> None:
    (note,) = notes_of([{}], [{f"k{n}": n for n in range(1_000)}])
    assert len(note.values) == 64
