"""Loss, gradient and update of the torch learner, against the numpy learner and against TRL."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.interface import Hyperparameters, TrainSample
from engine.policy.weights import CONFIG, shipped
from engine.tokenizer import CALL
from engine.torch.learner import Optimizer, TorchLearner
from engine.torch.loading import Loaded, TrainingForm, load
from engine.torch.memory import MemoryPlan
from engine.torch.options import TorchOptions
from engine.training.grpo import Learner
from engine.training.optimizer import Adam
from engine.training.state import State
from tests.torch.llama import as_llama, as_numpy, trained_of
from tests.torch.models import make_model

PLAN = MemoryPlan(
    weights=0,
    optimizer=0,
    cache=0,
    graphs=0,
    recording=0,
    activations=0,
    logits=0,
    slots=4,
    snapshots=0,
    snapshot_ids=0,
    budget=100,
    checkpointing=False,
    shared=False,
    available=0,
)
"""Micro-batches of 100 ids: several a batch."""
GROUPS, GROUP_SIZE = 3, 4


def learner_of(model: Any, trained: list[Any], plan: MemoryPlan = PLAN) -> TorchLearner:
    """A learner whose reference is the present state of the model."""
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in trained])
    optimizer = Optimizer(flat, torch.zeros_like(flat), torch.zeros_like(flat))
    return TorchLearner(model, trained, optimizer, plan)


def drawn_samples(vocab: int) -> list[TrainSample]:
    """Random samples of different lengths, some with ids that were not sampled."""
    rng = np.random.default_rng(0)
    samples = []
    for group in range(GROUPS):
        prompt = tuple(rng.integers(1, vocab, 5 + group).tolist())
        for _ in range(GROUP_SIZE):
            count = int(rng.integers(6, 20))
            tokens = tuple(rng.integers(1, vocab, count).tolist())
            mask = tuple((rng.random(count) < 0.8).tolist()) if group == 1 else None
            reward = float(rng.random())
            samples.append(TrainSample(f"t{group}", prompt, tokens, (0.0,) * count, reward, mask))
    return samples


def samples_with_tools() -> list[TrainSample]:
    """Samples for the shipped policy; each prompt offers tools, without which it calls none."""
    return [
        replace(sample, prompt_tokens=(CALL, *sample.prompt_tokens))
        for sample in drawn_samples(CONFIG.vocab)
    ]


def with_logprobs(samples: list[TrainSample], learner: TorchLearner, noise: float) -> Any:
    """The samples with log-probs at a distance from the present ones, and these by sample."""
    rng = np.random.default_rng(1)
    changed, old = [], []
    for sample, values in zip(samples, learner.logprobs(samples), strict=True):
        moved = values + noise * rng.standard_normal(len(values)).astype(np.float32)
        every = np.zeros(len(sample.tokens), np.float32)
        every[list(sample.mask or (True,) * len(sample.tokens))] = moved
        changed.append(replace(sample, logprobs=tuple(every.tolist())))
        old.append(moved)
    return changed, old


HYPER = Hyperparameters(kl=0.1, lr=1e-3, adam_eps=1e-6)
FORMS = [
    HYPER,
    replace(HYPER, kl_form="k3", advantage="standard"),
    replace(HYPER, kl=0.0, clip=0.05, dual_clip=1.1),
]


@pytest.fixture
def tiny() -> tuple[Learner, TorchLearner, Any]:
    """The shipped policy, moved a little from its reference, in both engines."""
    base = shipped().params.copy()
    model = as_llama(base)
    torch_learner = learner_of(model, list(trained_of(model).values()))
    moved = base.copy()
    noise = np.random.default_rng(2).standard_normal(len(base.flat)).astype(np.float32)
    moved.flat += 0.01 * noise
    with torch.no_grad():
        torch_learner.optimizer.flat.copy_(
            torch.cat([parameter.reshape(-1) for parameter in trained_of(as_llama(moved)).values()])
        )
    torch_learner.publish()
    return Learner(State(moved, Adam(moved.flat.size)), base), torch_learner, model


@pytest.mark.parametrize("hyper", FORMS)
def test_loss_and_gradient_equal_those_of_the_numpy_engine(
    tiny: tuple[Learner, TorchLearner, Any], hyper: Hyperparameters
) -> None:
    numpy_learner, torch_learner, model = tiny
    samples, old = with_logprobs(samples_with_tools(), torch_learner, 0.3)
    samples = [
        replace(sample, reward=0.5) if sample.task_id == "t2" else sample for sample in samples
    ]
    loss, grad = numpy_learner.gradient(samples, hyper)
    torch_loss, torch_grad = torch_learner.gradient(samples, hyper, old)
    assert torch_loss == pytest.approx(loss, abs=1e-4)
    converted = as_numpy(model, torch_grad, numpy_learner.state.params)
    assert np.abs(grad).max() > 1e-2
    np.testing.assert_allclose(converted, grad, atol=1e-4)


def test_an_update_equals_that_of_the_numpy_engine(tiny: tuple[Learner, TorchLearner, Any]) -> None:
    numpy_learner, torch_learner, model = tiny
    samples, _ = with_logprobs(samples_with_tools(), torch_learner, 0.0)
    before = numpy_learner.state.params.flat.copy()
    expected = numpy_learner.update(samples, HYPER)
    stats = torch_learner.update(samples, HYPER, 1)
    after = as_numpy(model, torch_learner.optimizer.flat, numpy_learner.state.params)
    assert np.abs(numpy_learner.state.params.flat - before).max() > 1e-3
    np.testing.assert_allclose(after, numpy_learner.state.params.flat, atol=1e-4)
    for name in ("kl", "entropy", "clip_fraction", "grad_norm", "reward_mean", "response_tokens"):
        assert getattr(stats, name) == pytest.approx(getattr(expected, name), rel=1e-3, abs=1e-4)
    for name, value in expected.extra.items():
        assert stats.extra[name] == pytest.approx(value, rel=1e-3, abs=1e-4)


def test_batches_without_a_signal_move_no_weight(tiny: tuple[Learner, TorchLearner, Any]) -> None:
    _, torch_learner, _ = tiny
    samples, _ = with_logprobs(samples_with_tools(), torch_learner, 0.0)
    torch_learner.update(samples, HYPER, 1, 0.01)
    optimizer = torch_learner.optimizer
    flat, momentum, steps = optimizer.flat.clone(), optimizer.m.clone(), optimizer.t
    assert momentum.abs().max() > 0
    equal = [replace(sample, reward=0.3) for sample in samples]
    for step in range(2, 7):
        stats = torch_learner.update(equal, HYPER, step, 0.01)
        assert (stats.step, stats.dead_groups, stats.grad_norm) == (step, GROUPS, 0)
    assert torch.equal(optimizer.flat, flat)
    assert torch.equal(optimizer.m, momentum)
    assert optimizer.t == steps
    trained = torch.cat([parameter.detach().reshape(-1) for parameter in torch_learner.trained])
    assert torch.equal(trained, flat)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's folder."""
    return make_model(tmp_path_factory.mktemp("model"))


def loaded_model(folder: Path, rank: int, dtype: str = "float32") -> Loaded:
    """A random model, with LoRA or all weights trained."""
    options = TorchOptions(model=str(folder), device="cpu", dtype=dtype)
    return load(options, TrainingForm(rank, 2 * rank), None)


def test_a_loss_that_is_not_finite_is_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = loaded_model(folder, 4)
    learner, samples = learner_of(loaded.model, list(loaded.trained), PLAN), drawn_samples(200)
    forward = learner._forward

    def infinite(part: Any) -> Any:
        parts, entropy = forward(part)
        return [logprobs * float("nan") for logprobs in parts], entropy

    monkeypatch.setattr(learner, "_forward", infinite)
    with pytest.raises(ValueError, match="not finite"):
        learner.update(samples, HYPER, 1)
    assert learner.optimizer.t == 0


def test_checkpointing_computes_the_same_gradient_without_deprecated_calls(folder: Path) -> None:
    samples, trained = drawn_samples(200), []
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        for plan in (PLAN, replace(PLAN, checkpointing=True)):
            loaded = loaded_model(folder, 4)
            trained.append(learner_of(loaded.model, list(loaded.trained), plan))
    plain, again = (learner.gradient(samples, HYPER)[1] for learner in trained)
    torch.testing.assert_close(again, plain, atol=1e-6, rtol=0)


def trainer_of(loaded: Loaded, hyper: Hyperparameters, folder: Path) -> Any:
    """TRL's trainer of a model."""
    trl = pytest.importorskip("trl")
    datasets = pytest.importorskip("datasets")
    loaded.tokenizer.pad_token = loaded.tokenizer.eos_token
    trainer = trl.GRPOTrainer(
        model=loaded.model,
        args=trl.GRPOConfig(
            output_dir=str(folder),
            per_device_train_batch_size=GROUPS * GROUP_SIZE,
            num_generations=GROUP_SIZE,
            beta=hyper.kl,
            use_bias_correction_kl=hyper.kl_form == "k3+",
            epsilon=hyper.clip,
            loss_type="dapo",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            report_to=[],
        ),
        processing_class=loaded.tokenizer,
        train_dataset=datasets.Dataset.from_dict({"prompt": ["a"] * GROUPS * GROUP_SIZE}),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
    )
    trainer.current_gradient_accumulation_steps = 1
    return trainer


def padded(rows: list[Any], left: bool, dtype: Any) -> tuple[Any, Any]:
    """The rows as one array, and a mask of what is no padding."""
    width = max(map(len, rows))
    values, mask = torch.zeros((len(rows), width), dtype=dtype), torch.zeros((len(rows), width))
    for i, row in enumerate(rows):
        part = slice(width - len(row), None) if left else slice(0, len(row))
        values[i, part] = torch.tensor(row, dtype=dtype)
        mask[i, part] = 1
    return values, mask.long()


@pytest.mark.parametrize("kl_form", ["k3", "k3+"])
@pytest.mark.parametrize("rank", [0, 4])
def test_loss_and_gradient_equal_those_of_trl(
    folder: Path, tmp_path: Path, rank: int, kl_form: str
) -> None:
    hyper = replace(HYPER, kl_form=kl_form, advantage="standard", dual_clip=1e6)
    loaded = loaded_model(folder, rank)
    samples = [replace(sample, mask=None) for sample in drawn_samples(200)]
    prompts, prompt_mask = padded([sample.prompt_tokens for sample in samples], True, torch.long)
    answers, mask = padded([sample.tokens for sample in samples], False, torch.long)
    ids, attention = torch.cat([prompts, answers], 1), torch.cat([prompt_mask, mask], 1)
    trainer = trainer_of(loaded, hyper, tmp_path)
    with torch.no_grad():
        reference, *_ = trainer._get_per_token_logps_and_entropies(
            loaded.model, ids, attention, answers.shape[1]
        )

    learner = learner_of(loaded.model, list(loaded.trained))
    noise = torch.randn(len(learner.optimizer.flat), generator=torch.Generator().manual_seed(3))
    learner.optimizer.flat += 0.05 * noise
    learner.publish()
    samples, old = with_logprobs(samples, learner, 0.2)
    loss, grad = learner.gradient(samples, hyper, old)

    rewards = torch.tensor([sample.reward for sample in samples]).view(GROUPS, GROUP_SIZE)
    centred = rewards - rewards.mean(dim=1, keepdim=True)
    loaded.model.train()
    theirs = trainer.compute_loss(
        loaded.model,
        {
            "prompt_ids": prompts,
            "prompt_mask": prompt_mask,
            "completion_ids": answers,
            "completion_mask": mask,
            "advantages": (centred / (rewards.std(dim=1, keepdim=True) + 1e-4)).reshape(-1),
            "old_per_token_logps": padded(old, False, torch.float32)[0],
            "ref_per_token_logps": reference,
            "num_items_in_batch": mask.sum(),
        },
    )
    theirs.backward()
    expected = torch.cat([parameter.grad.reshape(-1) for parameter in loaded.trained])
    assert loss == pytest.approx(float(theirs.detach()), abs=1e-5)
    assert float(expected.abs().max()) > 1e-2
    torch.testing.assert_close(grad, expected, atol=1e-5, rtol=0)
