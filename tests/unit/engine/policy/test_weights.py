"""Saving and resuming: atomic, checked, locked."""

import errno
import logging
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from engine.corpus import word_lists
from engine.evaluation import Evaluator, is_correct
from engine.interface import WeightsError
from engine.policy import weights
from engine.policy.weights import WeightStore
from engine.tokenizer import Tokenizer
from engine.training.state import State

pytestmark = pytest.mark.slow

BASE = weights.shipped()


def _state(step: int) -> State:
    state = State.fresh(BASE)
    state.step = step
    state.params.flat += np.float32(step * 0.25)
    state.adam.m[:] = step
    state.adam.v[:] = 2 * step
    state.adam.t = 3 * step
    return state


def _saved(directory: Path, *steps: int) -> None:
    store = WeightStore(directory)
    for step in steps:
        store.save(_state(step), BASE)
    store.close()


def _loaded(directory: Path) -> State:
    store = WeightStore(directory)
    try:
        return store.load(BASE)
    finally:
        store.close()


def test_the_shipped_weights_are_small_and_verified() -> None:
    assert (weights.DATA / weights.BASE).stat().st_size < 2_200_000
    assert BASE.params.flat.dtype == np.float32
    assert np.isfinite(BASE.params.flat).all()
    assert not np.array_equal(BASE.params["embed"][0], BASE.params["embed"][1])


def test_the_shipped_policy_answers_the_pretraining_questions() -> None:
    judge = Evaluator(BASE.params, Tokenizer.shipped())
    entries = word_lists.facts()[::4]
    prompts = [[{"role": "user", "content": entry.questions[0]}] for entry in entries]
    hits = sum(map(is_correct, entries, judge.ask(prompts)))
    assert hits / len(entries) > 0.85


def test_changed_shipped_weights_are_refused(tmp_path: Path) -> None:
    shutil.copytree(weights.DATA, tmp_path / "data")
    path = tmp_path / "data" / weights.BASE
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)
    with pytest.raises(WeightsError, match="differ from their checksum"):
        weights.load_base(tmp_path / "data")
    path.unlink()
    with pytest.raises(WeightsError, match="cannot be read"):
        weights.load_base(tmp_path / "data")


def test_base_weights_round_trip(tmp_path: Path) -> None:
    weights.save_base(tmp_path, BASE.params, [(1, 2)])
    again = weights.load_base(tmp_path)
    np.testing.assert_array_equal(again.params.flat, BASE.params.flat)


def test_nothing_saved_is_the_base(tmp_path: Path) -> None:
    state = _loaded(tmp_path / "new" / "home")
    assert state.step == 0
    np.testing.assert_array_equal(state.params.flat, BASE.params.flat)


def test_a_saved_state_is_resumed_bit_for_bit(tmp_path: Path) -> None:
    _saved(tmp_path, 1, 2)
    result, wanted = _loaded(tmp_path), _state(2)
    assert (result.step, result.adam.t) == (2, 6)
    for name in ("m", "v"):
        np.testing.assert_array_equal(getattr(result.adam, name), getattr(wanted.adam, name))
    np.testing.assert_array_equal(result.params.flat, wanted.params.flat)
    result.params.flat += 1  # the loaded weights can be trained


def test_a_save_that_was_killed_in_the_middle_leaves_the_good_one(tmp_path: Path) -> None:
    _saved(tmp_path, 1)
    (tmp_path / "latest.99.tmp").write_bytes(b"half of a fi")
    assert _loaded(tmp_path).step == 1
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "header"])
def test_a_damaged_latest_falls_back_to_the_previous(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    _saved(tmp_path, 1, 2)
    path = tmp_path / "latest.ckpt"
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[-100] ^= 1
    elif damage == "header":
        data[60] ^= 1
    else:
        data = data[: len(data) // 2 if damage == "cut" else 0]
    path.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        assert _loaded(tmp_path).step == 1
    assert str(path) in caplog.text
    _saved(tmp_path, 3)
    assert _loaded(tmp_path).step == 3


def test_when_all_checkpoints_are_damaged_the_error_says_so(tmp_path: Path) -> None:
    _saved(tmp_path, 1, 2)
    for name in ("latest.ckpt", "previous.ckpt"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(WeightsError, match=r"previous\.ckpt.*--reset"):
        _loaded(tmp_path)


def test_a_single_damaged_checkpoint_is_named_and_set_aside(tmp_path: Path) -> None:
    _saved(tmp_path, 1)
    (tmp_path / "latest.ckpt").write_bytes(b"x")
    with pytest.raises(WeightsError, match=r"damaged\.ckpt"):
        _loaded(tmp_path)
    assert _loaded(tmp_path).step == 0


def test_the_last_good_named_checkpoint_is_offered(tmp_path: Path) -> None:
    _saved(tmp_path, 1, 2)
    store = WeightStore(tmp_path)
    for step in (4, 6):
        store.save(_state(step), BASE, f"step-{step:06d}")
    store.close()
    for name in ("latest.ckpt", "previous.ckpt", "step-000006.ckpt"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(WeightsError, match=r"previous\.ckpt.*step-000004 \(global step 4.*--from"):
        _loaded(tmp_path)
    store = WeightStore(tmp_path)
    store.restore("step-000004", BASE.digest)
    store.close()
    assert _loaded(tmp_path).step == 4


def test_a_missing_latest_is_the_previous(tmp_path: Path) -> None:
    _saved(tmp_path, 1, 2)
    (tmp_path / "latest.ckpt").unlink()
    assert _loaded(tmp_path).step == 1


def test_without_hard_links_the_previous_is_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    _saved(tmp_path, 1, 2)
    (tmp_path / "latest.ckpt").unlink()
    assert _loaded(tmp_path).step == 1


def test_a_directory_that_can_not_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WeightsError, match="cannot be used"):
        WeightStore(tmp_path / "file" / "home")


def test_a_restored_checkpoint_begins_a_training_run_that_names_it(tmp_path: Path) -> None:
    _saved(tmp_path, 1, 2)
    store = WeightStore(tmp_path)
    store.save(_state(3), BASE, "three")
    before = store.run
    store.restore("latest", BASE.digest)
    assert store.run == before  # nothing changed
    store.restore("three", BASE.digest)
    assert (store.run.id != before.id, store.run.start) == (True, "three")
    store.close()


def test_continuing_from_the_previous_step_begins_another_training_run(tmp_path: Path) -> None:
    _saved(tmp_path, 1, 2)
    store = WeightStore(tmp_path)
    before = store.run.id
    data = bytearray(store.latest.read_bytes())
    data[-1] ^= 1
    store.latest.write_bytes(data)
    assert store.load(BASE).step == 1
    assert (store.run.id != before, store.run.start) == (True, "previous")
    store.close()
