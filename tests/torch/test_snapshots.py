"""Copies of the weights of LoRA: sampling from them while the policy answers and is trained."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.interface import (
    Completion,
    Hyperparameters,
    NoSnapshots,
    PolicyClosedError,
    Prompt,
    SamplingParams,
    TrainSample,
    UnknownTokenError,
)
from engine.policy.answer import AnswerFailedError
from engine.policy.snapshots import LocalSnapshots
from engine.torch import policy as policies
from engine.torch.loading import Loaded, TrainingForm, load
from engine.torch.options import TorchOptions
from engine.torch.policy import TorchPolicy
from engine.torch.sampling.batch import GrowingBatch
from engine.torch.sampling.graphs import GraphBatch
from engine.torch.sampling.sampler import TorchSampler
from engine.torch.sampling.snapshots import OtherWeights, TorchCopies
from tests.support.engine.client import wait_for
from tests.torch.models import make_model
from tests.torch.test_out_of_memory import FullBatch

HYPER = Hyperparameters(lr=0.05, epochs=2, kl=0.01, adam_eps=1e-8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's folder."""
    return make_model(tmp_path_factory.mktemp("model"))


def loaded_of(folder: Path, rank: int = 4) -> Loaded:
    """A random model."""
    form = TrainingForm(rank, 2 * rank)
    return load(TorchOptions(model=str(folder), device="cpu"), form, None)


@pytest.fixture
async def policy(folder: Path) -> AsyncIterator[TorchPolicy]:
    """A policy that saves nothing."""
    opened = TorchPolicy(loaded_of(folder), None, "random")
    yield opened
    await opened.close()


def snapshots_of(policy: TorchPolicy) -> LocalSnapshots:
    """Those of LoRA."""
    snapshots = policy.snapshots
    assert isinstance(snapshots, LocalSnapshots)
    return snapshots


def prompt_of(policy: TorchPolicy, text: str = "abc") -> Prompt:
    """A short prompt."""
    return policy.render([{"role": "user", "content": text}], None, 40)


def seeded(count: int, seed: int = 0, **fields: Any) -> list[SamplingParams]:
    """Parameters of answers with the seeds from `seed` on."""
    return [SamplingParams(**{"max_tokens": 40, "seed": seed + i, **fields}) for i in range(count)]


async def live(policy: TorchPolicy, params: Sequence[SamplingParams]) -> list[Completion]:
    """Answers of the policy itself."""
    prompt = prompt_of(policy)
    return list(await asyncio.gather(*(policy.sample(prompt, param) for param in params)))


async def train(policy: TorchPolicy) -> None:
    """One update."""
    answers = await live(policy, seeded(4, 90))
    await policy.train(
        [
            TrainSample("t", answer.prompt_tokens, answer.tokens, answer.logprobs, float(i % 2))
            for i, answer in enumerate(answers)
        ],
        HYPER,
    )


def same(mine: Sequence[Completion], theirs: Sequence[Completion]) -> None:
    """Check that answers are those of the same weights."""
    assert [completion.tokens for completion in mine] == [their.tokens for their in theirs]
    assert [completion.text for completion in mine] == [their.text for their in theirs]
    for completion, other in zip(mine, theirs, strict=True):
        assert completion.logprobs == pytest.approx(other.logprobs, abs=1e-4)


async def test_a_snapshot_answers_as_its_weights_did(policy: TorchPolicy) -> None:
    snapshots, prompt = snapshots_of(policy), prompt_of(policy)
    params = [*seeded(5, frequency_penalty=0.3), *seeded(1, temperature=0.0)]
    before = await live(policy, params)
    old = await snapshots.take()
    assert old.step == 0
    assert await snapshots.take() == old
    same(await snapshots.sample(old.name, prompt, params), before)
    await train(policy)
    after = await snapshots.sample(old.name, prompt, params)
    same(after, before)
    assert {line.step for line in after} == {0}
    new = await snapshots.take()
    assert (new.step, new.name != old.name) == (1, True)
    trained = await snapshots.sample(new.name, prompt, params)
    same(trained, await live(policy, params))
    assert [answer.tokens for answer in trained] != [line.tokens for line in before]
    assert {answer.step for answer in trained} == {1}
    await policy.reset()
    assert await snapshots.take() == old
    same(await live(policy, params), before)


async def test_the_speed_of_a_look_is_among_the_hardware_facts(policy: TorchPolicy) -> None:
    snapshots, prompt = snapshots_of(policy), prompt_of(policy)
    assert policy.hardware.look_tokens_per_second is None
    taken = await snapshots.take()
    await snapshots.sample(taken.name, prompt, seeded(3))
    speed = policy.hardware.look_tokens_per_second
    assert speed is not None
    assert speed > 0
    assert policy.hardware.sampling_seconds == 0.0


async def test_nothing_else_meets_the_weights_of_a_snapshot(folder: Path) -> None:
    """Two policies are trained alike, one of them beside a snapshot."""
    plain, beside = (TorchPolicy(loaded_of(folder), None, "random") for _ in range(2))
    snapshots, prompt = snapshots_of(beside), prompt_of(beside)
    for policy in (plain, beside):
        await train(policy)
    old = await snapshots.take()
    for policy in (plain, beside):
        await train(policy)
    names = [name for name, _ in beside._loaded.model.named_parameters()]
    parameters = [id(parameter) for parameter in beside._loaded.model.parameters()]
    async with asyncio.TaskGroup() as group:
        group.create_task(snapshots.sample(old.name, prompt, seeded(30)))
        group.create_task(train(beside))
    await train(plain)
    assert [name for name, _ in beside._loaded.model.named_parameters()] == names
    assert [id(parameter) for parameter in beside._loaded.model.parameters()] == parameters
    mine, other = beside._state(), plain._state()
    assert (mine.flat == other.flat).all()
    assert (mine.m == other.m).all()
    same(await live(beside, seeded(3)), await live(plain, seeded(3)))
    for policy in (plain, beside):
        await policy.close()


async def test_answers_of_policy_and_snapshot_run_beside_each_other(policy: TorchPolicy) -> None:
    snapshots, prompt = snapshots_of(policy), prompt_of(policy)
    first = await live(policy, seeded(4))
    old = await snapshots.take()
    await train(policy)
    second = await live(policy, seeded(4))
    together = await asyncio.gather(
        snapshots.sample(old.name, prompt, seeded(4)),
        live(policy, seeded(4)),
        snapshots.sample(old.name, prompt, seeded(4)),
        live(policy, seeded(4)),
    )
    for mine, expected in zip(together, (first, second, first, second), strict=True):
        same(mine, expected)


@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param(
            "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a card")
        ),
    ],
)
async def test_a_policy_that_samples_in_one_block_keeps_its_weights(
    folder: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a card its token steps are recorded: they hold the addresses of its own weights."""

    def block(loaded: Loaded) -> GraphBatch:
        return GraphBatch(loaded.model, 8, loaded.context, 8 if device == "cuda" else 0)

    monkeypatch.setattr(policies, "new_batch", block)
    options = TorchOptions(model=str(folder), device=device, dtype="float32")
    policy = TorchPolicy(load(options, TrainingForm(4, 8), None), None, "random")
    snapshots, prompt = snapshots_of(policy), prompt_of(policy)
    first = await live(policy, seeded(4))
    old = await snapshots.take()
    await train(policy)
    second = await live(policy, seeded(4))
    for _ in range(2):
        mine, theirs = await asyncio.gather(
            live(policy, seeded(4)), snapshots.sample(old.name, prompt, seeded(4))
        )
        same(mine, second)
        same(theirs, first)
    await policy.close()


async def test_a_snapshot_is_sampled_while_the_policy_always_answers(policy: TorchPolicy) -> None:
    snapshots, prompt = snapshots_of(policy), prompt_of(policy)
    name = (await snapshots.take()).name
    expected = await snapshots.sample(name, prompt, seeded(2))
    ended = asyncio.Event()

    async def user() -> int:
        answers = 0
        while not ended.is_set():
            answers += len(await live(policy, seeded(1, 70, max_tokens=100)))
        return answers

    async with asyncio.TaskGroup() as group:
        users = [group.create_task(user()) for _ in range(3)]
        same(await snapshots.sample(name, prompt, seeded(2)), expected)
        ended.set()
    assert all(user.result() > 0 for user in users)


async def test_an_update_interrupts_nothing(
    policy: TorchPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Updates that share the memory with sampling free that of a snapshot too; its answers
    continue."""
    plan = replace(policy._loaded.memory, shared=True)
    policy._loaded = replace(policy._loaded, memory=plan)
    snapshots, prompt = snapshots_of(policy), prompt_of(policy)
    name = (await snapshots.take()).name
    params = seeded(3, max_tokens=80)
    expected = await snapshots.sample(name, prompt, params)
    interrupted: list[int] = []
    interrupt = TorchSampler.interrupt

    def noted(sampler: TorchSampler) -> None:
        interrupt(sampler)
        interrupted.append(sampler.live)
        assert sampler._batch.logits is None

    monkeypatch.setattr(TorchSampler, "interrupt", noted)
    async with asyncio.TaskGroup() as group:
        call = group.create_task(snapshots.sample(name, prompt, params))
        while not call.done() and len(interrupted) < 3:
            await train(policy)
    same(call.result(), expected)
    assert max(interrupted) == 3, "answers in progress"


async def test_a_prompt_that_cannot_be_continued_is_refused(policy: TorchPolicy) -> None:
    snapshots = snapshots_of(policy)
    name = (await snapshots.take()).name
    for tokens in ((), (5,) * policy.context):
        with pytest.raises(ValueError, match="tokens, the policy reads 1 to"):
            await snapshots.sample(name, Prompt(tokens), seeded(1))
    with pytest.raises(UnknownTokenError):
        await snapshots.sample(name, Prompt((10**6,)), seeded(1))


async def test_closing_ends_a_call_between_two_tokens(policy: TorchPolicy) -> None:
    snapshots, prompt = snapshots_of(policy), prompt_of(policy)
    name = (await snapshots.take()).name
    copies = policy._copies
    assert copies is not None
    call = asyncio.gather(
        snapshots.sample(name, prompt, seeded(10, max_tokens=100)), return_exceptions=True
    )
    await wait_for(lambda: copies._sampler is not None and copies._sampler.live > 0)
    await policy.close()
    (result,) = await call
    assert isinstance(result, PolicyClosedError)


def with_batch(policy: TorchPolicy, most: int, monkeypatch: pytest.MonkeyPatch) -> list[FullBatch]:
    """Let the snapshots have memory for a number of ids; their batches."""
    made: list[FullBatch] = []

    def new_batch(model: Any) -> FullBatch:
        made.append(FullBatch(model, most))
        return made[-1]

    monkeypatch.setattr(policy._copies, "_new_batch", new_batch)
    return made


async def test_the_answers_of_a_snapshot_survive_a_full_memory(
    policy: TorchPolicy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    snapshots, prompt = snapshots_of(policy), prompt_of(policy)
    params = seeded(6, max_tokens=20)
    expected = await live(policy, params)
    name = (await snapshots.take()).name
    made = with_batch(policy, 3 * (len(prompt.tokens) + 20), monkeypatch)
    slots = policy.hardware.slots
    same(await snapshots.sample(name, prompt, params), expected)
    assert made[0].sizes, "the memory ran out"
    assert "while answers of a snapshot were sampled" in caplog.text
    same(await snapshots.sample(name, prompt, params), expected)
    assert not made[1].sizes, "as many as fitted"
    await train(policy)
    await snapshots.sample((await snapshots.take()).name, prompt, params)
    assert made[2].sizes, "tried again with another copy"
    assert policy.hardware.slots == slots, "the policy samples as many as before"


async def test_an_answer_that_does_not_fit_alone_fails_its_call(
    policy: TorchPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots, prompt = snapshots_of(policy), prompt_of(policy)
    name = (await snapshots.take()).name
    with monkeypatch.context() as patch:
        with_batch(policy, 10, patch)
        with pytest.raises(AnswerFailedError, match="too small for this answer alone"):
            await snapshots.sample(name, prompt, seeded(3))
    same(await snapshots.sample(name, prompt, seeded(3)), await live(policy, seeded(3)))


async def test_a_copy_that_does_not_fit_on_the_device_fails_its_call(
    policy: TorchPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots, prompt = snapshots_of(policy), prompt_of(policy)
    name = (await snapshots.take()).name

    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")

    with monkeypatch.context() as patch:
        patch.setattr(policy._copies, "_begin", full)
        with pytest.raises(AnswerFailedError, match="too small for the weights of a snapshot"):
            await snapshots.sample(name, prompt, seeded(3))
    assert len(await snapshots.sample(name, prompt, seeded(3))) == 3


async def test_a_failure_leaves_the_weights_of_the_policy(
    policy: TorchPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots, prompt = snapshots_of(policy), prompt_of(policy)
    old = await snapshots.take()
    await train(policy)
    expected = await live(policy, seeded(3))
    forward = GrowingBatch.decode

    def fail(batch: GrowingBatch, tokens: Sequence[int]) -> None:
        if isinstance(batch._model, OtherWeights):
            raise RuntimeError("no kernel")
        forward(batch, tokens)

    with monkeypatch.context() as patch:
        patch.setattr(GrowingBatch, "decode", fail)
        with pytest.raises(RuntimeError, match="no kernel"):
            await snapshots.sample(old.name, prompt, seeded(3))
    same(await live(policy, seeded(3)), expected)
    assert {answer.step for answer in await snapshots.sample(old.name, prompt, seeded(3))} == {0}


@pytest.mark.parametrize(
    ("room", "together", "last"),
    [(10**6, True, 4), (160, True, 2), (1, False, 1)],
    ids=["much", "some", "little"],
)
async def test_as_many_answers_at_a_time_as_have_memory(
    policy: TorchPolicy, monkeypatch: pytest.MonkeyPatch, room: int, together: bool, last: int
) -> None:
    """They begin together; when they get longer than there is room, some continue later."""
    snapshots, prompt = snapshots_of(policy), prompt_of(policy)
    params = seeded(6, max_tokens=40)
    expected = await live(policy, params)
    assert min(len(answer.tokens) for answer in expected[:2]) == 40
    name = (await snapshots.take()).name
    copies = policy._copies
    assert isinstance(copies, TorchCopies)
    await snapshots.sample(name, prompt, seeded(1, max_tokens=1))
    monkeypatch.setattr(copies, "_room", room)
    seen: list[tuple[int, int]] = []
    decode = GrowingBatch.decode

    def noted(batch: GrowingBatch, tokens: Sequence[int]) -> None:
        decode(batch, tokens)
        if isinstance(batch._model, OtherWeights):
            seen.append(batch._mask.shape)

    monkeypatch.setattr(GrowingBatch, "decode", noted)
    same(await snapshots.sample(name, prompt, params), expected)
    assert all(rows == 1 or rows * width <= room for rows, width in seen)
    longer = sum(len(answer.tokens) > 1 for answer in expected)
    assert seen[0][0] == (longer if together else 1)
    longest = max(width for _, width in seen)
    assert max(rows for rows, width in seen if width == longest) == last
    assert copies._room == room


async def test_a_policy_that_trains_all_weights_takes_none(folder: Path) -> None:
    policy = TorchPolicy(loaded_of(folder, 0), None, "random")
    refused = policy.snapshots
    assert isinstance(refused, NoSnapshots)
    assert "takes no snapshots: all of its weights are trained" in refused.reason
    await policy.close()
