"""Penalties: which logits change, and how."""

import numpy as np
import pytest

from engine.interface import SamplingParams
from engine.policy.penalties import LARGEST, TokenPenalties, changed_logits, new_penalties
from engine.training.model import Array

LOGITS = np.array([[2.0, -2.0, 1.0, 0.5], [2.0, -2.0, 1.0, 0.5]], np.float32)


def _changed(rows: list[TokenPenalties | None], logits: Array = LOGITS) -> Array:
    result: Array = changed_logits(logits, rows, np.asarray, np.where)
    return result


def _penalties(prompt: tuple[int, ...], answer: tuple[int, ...], **fields: float) -> TokenPenalties:
    made = new_penalties(SamplingParams(**fields), prompt, 4)  # type: ignore[arg-type]
    assert made is not None
    for token in answer:
        made.add(token)
    return made


def test_without_penalties_nothing_is_computed() -> None:
    assert new_penalties(SamplingParams(top_k=1, min_p=0.5), (1, 2), 4) is None
    assert _changed([None, None]) is LOGITS


def test_presence_and_frequency_count_the_answer_only() -> None:
    row = _penalties((0, 0), (1, 1, 2), presence_penalty=0.5, frequency_penalty=0.25)
    np.testing.assert_allclose(_changed([None, row])[1], [2.0, -3.0, 0.25, 0.5])
    np.testing.assert_array_equal(_changed([None, row])[0], LOGITS[0])


def test_repetition_counts_prompt_and_answer_once() -> None:
    row = _penalties((0, 0), (1, 1), repetition_penalty=2.0)
    np.testing.assert_allclose(_changed([row, None])[0], [1.0, -4.0, 1.0, 0.5])


def test_all_three_together_apply_repetition_first() -> None:
    row = _penalties(
        (3,), (0,), repetition_penalty=2.0, presence_penalty=-1.0, frequency_penalty=0.5
    )
    np.testing.assert_allclose(_changed([row, None])[0], [1.5, -2.0, 1.0, 0.25])


def test_the_logits_of_the_model_stay_as_they_are() -> None:
    before = LOGITS.copy()
    _changed([_penalties((), (0, 1), presence_penalty=2.0), None])
    np.testing.assert_array_equal(LOGITS, before)


@pytest.mark.parametrize("penalty", [1e-45, 1e38])
def test_an_extreme_penalty_stays_finite(penalty: float) -> None:
    with np.errstate(all="ignore"):
        changed = _changed([_penalties((0, 1), (), repetition_penalty=penalty), None])
    assert np.isfinite(changed).all()
    assert np.abs(changed).max() <= LARGEST


def test_a_row_without_ids_yet_changes_nothing() -> None:
    row = _penalties((1, 2), (), presence_penalty=1.0)
    assert _changed([row, None]) is LOGITS
