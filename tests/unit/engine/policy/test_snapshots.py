"""Copies of the tiny policy's weights: sampling from them while the policy is trained."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ajet_swarm.common.tasks import Tasks
from engine.interface import (
    Completion,
    Hyperparameters,
    Prompt,
    SamplingParams,
    TrainSample,
    WeightSnapshots,
)
from engine.policy import snapshots
from engine.policy.sampler import Sampler
from engine.policy.snapshots import MOST, SLOTS, CopySampler, LocalSnapshots
from engine.policy.tiny import TinyPolicy
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
