"""The torch policy on a tiny random model: sampling, training, saving."""

import asyncio
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.interface import Hyperparameters, SamplingParams, TrainSample
from engine.policy.answer import Request
from engine.torch.checkpoints import TorchCheckpoints
from engine.torch.loading import TrainingForm, load
from engine.torch.memory import OutOfSpaceError
from engine.torch.options import TorchOptions
from engine.torch.policy import TorchPolicy
from engine.torch.store import TorchStore
from tests.torch.models import make_model

HYPER = Hyperparameters(lr=0.05, epochs=2, kl=0.01, adam_eps=1e-8)
MESSAGES = [{"role": "user", "content": "abc"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's folder."""
    return make_model(tmp_path_factory.mktemp("model"))


def opened(folder: Path, home: Path | None = None, rank: int = 4) -> TorchPolicy:
    """The policy of a folder."""
    options = TorchOptions(model=str(folder), device="cpu")
    loaded = load(options, TrainingForm(rank, 2 * rank), None)
    return TorchPolicy(loaded, None if home is None else TorchStore(home), "random")


@pytest.fixture
def policy(folder: Path) -> Iterator[TorchPolicy]:
    """A policy that saves nothing."""
    policy = opened(folder)
    yield policy
    asyncio.run(policy.close())


def batch(answers: list[Any]) -> list[TrainSample]:
    """One group; a longer share of the letter `e` is better."""
    return [
        TrainSample(
            "t", answer.prompt_tokens, answer.tokens, answer.logprobs, float(i % 2), episode=str(i)
        )
        for i, answer in enumerate(answers)
    ]


async def answers_of(policy: TorchPolicy, count: int = 4, **fields: Any) -> list[Any]:
    """Answers with the seeds 0, 1, ..."""
    prompt = policy.render(MESSAGES, None, 16)
    params = [SamplingParams(max_tokens=16, seed=seed, **fields) for seed in range(count)]
    return await asyncio.gather(*(policy.sample(prompt, param) for param in params))


async def test_an_answer_depends_on_its_seed_and_not_on_the_other_rows(policy: TorchPolicy) -> None:
    together = await answers_of(policy)
    prompt = policy.render(MESSAGES, None, 16)
    other = policy.render([{"role": "user", "content": "a longer prompt"}], None, 16)
    alone = SamplingParams(max_tokens=16, seed=2)
    mixed, _ = await asyncio.gather(policy.sample(prompt, alone), policy.sample(other, alone))
    assert mixed.tokens == together[2].tokens
    assert len({answer.tokens for answer in together}) == 4


async def test_stored_log_probs_equal_those_of_a_second_forward_pass(policy: TorchPolicy) -> None:
    for answer in await answers_of(policy):
        again = await policy.logprobs(answer.prompt_tokens, answer.tokens)
        assert again == pytest.approx(answer.logprobs, abs=1e-4)


async def test_greedy_answers_equal_those_of_generate(policy: TorchPolicy) -> None:
    (answer,) = await answers_of(policy, 1, temperature=0.0)
    ids = torch.tensor([answer.prompt_tokens])
    model = policy._loaded.model
    made = model.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=16, do_sample=False
    )
    assert tuple(made[0, ids.shape[1] :].tolist()) == answer.tokens


async def test_pieces_together_are_the_text(policy: TorchPolicy) -> None:
    pieces: list[str] = []
    prompt = policy.render(MESSAGES, None, 16)
    answer = await policy.sample(prompt, SamplingParams(max_tokens=16, seed=1), pieces.append)
    assert "".join(pieces) == answer.text
    assert len(pieces) > 1


async def test_a_stop_text_ends_the_answer(policy: TorchPolicy) -> None:
    (whole,) = await answers_of(policy, 1)
    stop = whole.text[3:5]
    (cut,) = await answers_of(policy, 1, stop=(stop,))
    assert cut.text == whole.text[: whole.text.index(stop)]
    assert (cut.finish_reason, cut.stop_reason) == ("stop", stop)


async def test_updates_raise_the_probability_of_the_better_answers(policy: TorchPolicy) -> None:
    answers = await answers_of(policy)
    samples = batch(answers)

    async def better() -> float:
        scored = [await policy.logprobs(answer.prompt_tokens, answer.tokens) for answer in answers]
        return sum(scored[1] + scored[3]) - sum(scored[0] + scored[2])

    before = await better()
    for step in range(1, 4):
        stats = await policy.train(samples, HYPER)
        assert stats.step == policy.step == step
    assert await better() > before + 1.0
    hardware = policy.hardware
    assert hardware.update_seconds == stats.seconds > 0
    parts = stats.extra["publish_seconds"], stats.extra["save_seconds"]
    assert hardware.sync_seconds == sum(parts)
    assert parts[0] > 0
    assert stats.kl > 0
    assert math.isfinite(stats.grad_norm)


async def test_the_policy_continues_from_its_saved_state(folder: Path, tmp_path: Path) -> None:
    policy = opened(folder, tmp_path)
    answers = await answers_of(policy)
    await policy.train(batch(answers), HYPER)
    await policy.checkpoint("mine")
    trained = await answers_of(policy)
    await policy.close()

    again = opened(folder, tmp_path)
    assert again.step == 1
    assert [answer.tokens for answer in await answers_of(again)] == [
        answer.tokens for answer in trained
    ]
    await again.reset()
    assert again.step == 0
    assert [answer.tokens for answer in await answers_of(again)] == [
        answer.tokens for answer in answers
    ]
    await again.close()

    checkpoints = TorchCheckpoints(tmp_path)
    assert "mine" in [checkpoint.name for checkpoint in checkpoints.list_all()]
    checkpoints.restore("mine")
    restored = opened(folder, tmp_path)
    assert restored.step == 1
    await restored.close()


@pytest.mark.parametrize("saves", [False, True])
@pytest.mark.parametrize("rank", [0, 4])
async def test_a_failed_update_changes_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int, saves: bool
) -> None:
    policy = opened(folder, tmp_path if saves else None, rank)
    samples = batch(await answers_of(policy))
    await policy.train(samples, HYPER)
    trained = await answers_of(policy)
    before = policy._state()
    learner, calls = policy._learner, 0
    publish = learner.publish

    def fail_once() -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise RuntimeError("interrupted")
        publish()

    monkeypatch.setattr(learner, "publish", fail_once)
    with pytest.raises(RuntimeError, match="interrupted"):
        await policy.train(samples, HYPER)
    after = policy._state()
    assert (policy.step, after.t) == (1, before.t)
    for name in ("flat", "m", "v"):
        assert (getattr(after, name) == getattr(before, name)).all()
    assert [answer.tokens for answer in await answers_of(policy)] == [
        answer.tokens for answer in trained
    ]
    await policy.close()


async def test_an_update_keeps_the_requests_that_wait(policy: TorchPolicy) -> None:
    samples = batch(await answers_of(policy))
    request = Request(policy.render(MESSAGES, None, 16), SamplingParams(max_tokens=4))

    def update() -> int:
        policy._sampler.add(request)
        policy._update(samples, HYPER)
        return policy._sampler.waiting

    assert await policy._worker.run(update, alone=True) == 1


async def test_a_full_memory_lowers_the_micro_batches_also_of_the_next_start(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, reference = opened(folder, tmp_path), opened(folder)
    samples = batch(await answers_of(policy))
    learner = policy._learner
    forward, sizes = learner._forward, []

    def small(parts: Any) -> Any:
        sizes.append(len(parts))
        if len(parts) > 1:
            raise torch.OutOfMemoryError("out of memory")
        return forward(parts)

    monkeypatch.setattr(learner, "_forward", small)
    halved, whole = await policy.train(samples, HYPER), await reference.train(samples, HYPER)
    assert learner.budget < 128
    assert halved.grad_norm == pytest.approx(whole.grad_norm, rel=1e-3)
    assert halved.samples == 4
    assert sizes[:3] == [4, 2, 1], "the next size is half of the one that failed"
    await policy.close()
    again = opened(folder, tmp_path)
    assert again._learner.budget == learner.budget
    await again.close()
    other = opened(folder, tmp_path / "other")
    assert other._learner.budget == other._loaded.memory.budget
    await other.close()
    await reference.close()


async def test_a_sample_that_does_not_fit_alone_is_tried_twice(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = opened(folder)
    samples = batch(await answers_of(policy))
    learner, calls = policy._learner, 0
    before = learner.budget

    def full(parts: Any) -> Any:
        nonlocal calls
        calls += 1
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(learner, "_forward", full)
    with pytest.raises(torch.OutOfMemoryError):
        await policy.train(samples, HYPER)
    assert calls == 4
    assert learner.budget == before
    await policy.close()


@pytest.mark.parametrize("failures", [1, 2])
async def test_a_full_memory_while_an_episode_is_read_interrupts_answers_only(
    policy: TorchPolicy, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    whole = await answers_of(policy)
    read = whole[0].prompt_tokens, whole[0].tokens
    learner, sampler, left, live = policy._learner, policy._sampler, failures, []
    forward = learner._forward

    def full(samples: Any) -> Any:
        nonlocal left
        live.append(len(sampler._rows))
        if left:
            left -= 1
            raise torch.OutOfMemoryError("CUDA out of memory.\nMore")
        return forward(samples)

    monkeypatch.setattr(learner, "_forward", full)
    prompt = policy.render(MESSAGES, None, 16)

    def work() -> list[tuple[int, ...]]:
        for seed in range(4):
            sampler.add(Request(prompt, SamplingParams(max_tokens=16, seed=seed)))
        done = sampler.step(0)
        if failures == 1:
            assert policy._score(*read) == pytest.approx(whole[0].logprobs, abs=1e-4)
        else:
            with pytest.raises(OutOfSpaceError, match=r"log-probs of \d+ tokens \(CUDA out of me"):
                policy._score(*read)
        assert live == [4, 0]
        while sampler.live:
            done += sampler.step(0)
        return [row.completion.tokens for row in done]

    tokens = await policy._worker.run(work, alone=True)
    assert sorted(tokens) == sorted(answer.tokens for answer in whole)
    assert policy.hardware.slots == policy._loaded.memory.slots


async def test_a_failed_pass_leaves_a_model_that_samples(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = opened(folder)
    answers = await answers_of(policy)
    learner = policy._learner
    learner._checkpointing = True

    def fail(*_: Any) -> Any:
        raise ValueError("no loss")

    monkeypatch.setattr("engine.torch.learner.token_loss", fail)
    with pytest.raises(ValueError, match="no loss"):
        await policy.train(batch(answers), HYPER)
    assert not policy._loaded.model.training
    assert all(parameter.grad is None for parameter in policy._loaded.trained)
    assert [answer.tokens for answer in await answers_of(policy)] == [
        answer.tokens for answer in answers
    ]
    await policy.close()
