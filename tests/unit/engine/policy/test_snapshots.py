"""Snapshots of a policy and its weights."""

import asyncio
import errno
import logging
import os
import shutil
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ajet_swarm.common.tasks import Tasks
from engine.corpus import word_lists
from engine.evaluation import Evaluator, is_correct
from engine.interface import (
    Completion,
    Hyperparameters,
    Prompt,
    SamplingParams,
    TrainSample,
    WeightsError,
    WeightSnapshots,
)
from engine.policy import snapshots, weights
from engine.policy.sampler import Sampler
from engine.policy.snapshots import MOST, SLOTS, CopySampler, LocalSnapshots
from engine.policy.tiny import TinyPolicy
from engine.policy.weights import WeightStore
from engine.tokenizer import Tokenizer
from engine.training.state import State
from tests.support.engine.client import wait_for

pytestmark = pytest.mark.slow

HYPER = Hyperparameters(lr=5e-3)


@pytest.fixture
async def policy() -> AsyncIterator[TinyPolicy]:
    opened = TinyPolicy.open(None)
    yield opened
    await opened.close()


def _copies(policy: TinyPolicy) -> LocalSnapshots:
    copies = policy.snapshots
    assert isinstance(copies, LocalSnapshots)
    _: WeightSnapshots = copies
    return copies


def _prompt(policy: TinyPolicy, text: str = "Write a story about the sea.") -> Prompt:
    return policy.render([{"role": "user", "content": text}], None, 60)


def _params(count: int, seed: int = 1, **params: float) -> list[SamplingParams]:
    return [
        SamplingParams(max_tokens=60, temperature=params.get("temperature", 1.0), seed=seed + i)
        for i in range(count)
    ]


async def _train(policy: TinyPolicy) -> None:
    prompt = _prompt(policy, "Hi")
    group = [await policy.sample(prompt, param) for param in _params(4, 90)]
    samples = [
        TrainSample("t", done.prompt_tokens, done.tokens, done.logprobs, i / 3)
        for i, done in enumerate(group)
    ]
    await policy.train(samples, HYPER)


async def test_the_speed_of_a_snapshot_is_known_while_it_is_sampled(policy: TinyPolicy) -> None:
    copies, prompt = _copies(policy), _prompt(policy)
    assert copies.speed.tokens_per_second is None
    taken = await copies.take()
    await copies.sample(taken.name, prompt, _params(4))
    speed = copies.speed.tokens_per_second
    assert speed is not None
    assert speed > 0


async def test_equal_weights_give_the_same_snapshot(policy: TinyPolicy) -> None:
    copies = _copies(policy)
    first = await copies.take()
    assert await copies.take() == first
    await _train(policy)
    second = await copies.take()
    assert second.name != first.name
    await policy.reset()
    assert await copies.take() == first


async def test_a_reset_to_other_weights_of_the_same_step_gives_another_snapshot(
    policy: TinyPolicy,
) -> None:
    copies = _copies(policy)
    await _train(policy)
    first = await copies.take()
    policy._state.params.flat[0] += 1
    other = await copies.take()
    assert (other.step, first.step) == (1, 1)
    assert other.name != first.name


async def test_a_call_that_waits_keeps_its_weights_when_the_snapshot_is_dropped(
    policy: TinyPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies, prompt = _copies(policy), _prompt(policy)
    old = await copies.take()
    expected = await copies.sample(old.name, prompt, _params(2))
    gate = _hold(copies, monkeypatch)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(copies.sample(old.name, prompt, _params(2)))
        await asyncio.sleep(0)
        for _ in range(MOST):
            await _train(policy)
            await copies.take()
        gate.set()
    assert [done.tokens for done in waiting.result()] == [done.tokens for done in expected]


async def test_more_answers_than_slots_come_in_order_and_repeat(policy: TinyPolicy) -> None:
    copies, prompt = _copies(policy), _prompt(policy)
    snapshot = await copies.take()
    count = 3 * SLOTS + 1
    first = await copies.sample(snapshot.name, prompt, _params(count))
    again = await copies.sample(snapshot.name, prompt, _params(count))
    assert [done.tokens for done in first] == [done.tokens for done in again]
    assert len({done.tokens for done in first}) > count // 2
    alone = await copies.sample(snapshot.name, prompt, _params(1, 1 + count - 1))
    assert alone[0].tokens == first[-1].tokens


async def test_calls_wait_for_each_other_and_users_do_not_wait(
    policy: TinyPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies, prompt = _copies(policy), _prompt(policy, "Hi")
    snapshot = await copies.take()
    gate = _hold(copies, monkeypatch)
    async with asyncio.TaskGroup() as group:
        calls = [
            group.create_task(copies.sample(snapshot.name, prompt, _params(2, 10 * i)))
            for i in range(3)
        ]
        assert (await policy.sample(prompt, SamplingParams())).tokens
        await _train(policy)
        assert not any(call.done() for call in calls)
        gate.set()
    assert [len(call.result()) for call in calls] == [2, 2, 2]


async def test_a_caller_who_leaves_frees_the_sampler(
    policy: TinyPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies, prompt = _copies(policy), _prompt(policy)
    snapshot = await copies.take()
    gate = _hold(copies, monkeypatch)
    async with Tasks("test") as tasks:
        left = [
            tasks.spawn(copies.sample(snapshot.name, prompt, _params(64)), "look") for _ in range(3)
        ]
        await wait_for(lambda: copies._sampler is not None)
    assert all(call.cancelled() for call in left)
    gate.set()
    assert len(await copies.sample(snapshot.name, prompt, _params(1))) == 1
    sampler = copies._sampler
    assert isinstance(sampler, Sampler)
    assert (sampler.live, sampler.waiting) == (0, 0)


async def test_a_failure_ends_one_call_only(
    policy: TinyPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies, prompt = _copies(policy), _prompt(policy)
    snapshot = await copies.take()

    def fail(*_: object) -> None:
        raise MemoryError("no memory for the cache")

    with monkeypatch.context() as patch:
        patch.setattr(Sampler, "step", fail)
        with pytest.raises(MemoryError, match="no memory"):
            await copies.sample(snapshot.name, prompt, _params(4))
    assert len(await copies.sample(snapshot.name, prompt, _params(4))) == 4


async def test_a_token_step_waits_for_a_working_policy(
    policy: TinyPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the worker works, a token step is followed by a wait that only the worker's end cuts
    short."""
    copies, prompt = _copies(policy), _prompt(policy)
    snapshot = await copies.take()
    monkeypatch.setattr(snapshots, "YIELD", 1e9)
    monkeypatch.setattr(copies, "_longest_yield", 1e6)
    steps: list[int] = []
    step = Sampler.step

    def counted(sampler: Sampler, number: int, admit: bool = True) -> object:
        if sampler is copies._sampler:
            steps.append(number)
        return step(sampler, number, admit)

    monkeypatch.setattr(Sampler, "step", counted)
    busy, release = threading.Event(), threading.Event()

    def work() -> None:
        busy.set()
        release.wait(60)

    async with asyncio.TaskGroup() as group:
        working = group.create_task(policy._worker.run(work, alone=False))
        await wait_for(busy.is_set)
        look = group.create_task(copies.sample(snapshot.name, prompt, _params(2)))
        try:
            await wait_for(lambda: steps)
            for _ in range(50):
                await asyncio.sleep(0)
            assert len(steps) == 1
        finally:
            release.set()
    assert working.done()
    assert [type(done) for done in look.result()] == [Completion, Completion]
    assert len(steps) > 1


def _hold(copies: LocalSnapshots, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Hold the thread before its next call samples; it then has a sampler."""
    gate = threading.Event()
    sampler_of = copies._source.sampler

    def held(*arguments: Any) -> CopySampler:
        sampler = sampler_of(*arguments)
        copies._sampler = sampler
        assert gate.wait(60)
        return sampler

    monkeypatch.setattr(copies._source, "sampler", held)
    return gate


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
