"""Seconds of an update, against TRL with the same samples, model and optimizer."""

import statistics
from functools import partial
from tempfile import mkdtemp
from typing import Any

import torch

from bench.bars import Verdicts
from bench.own_gpu.models import make
from bench.own_gpu.work import KL, SAMPLES, free, learner_of, samples_of, seconds
from engine.interface import Hyperparameters, TrainSample

LENGTH = 512


def run(size: str, verdicts: Verdicts) -> None:
    """Measure an update of 32 samples of 512 ids: reference, loss, gradient, step."""
    loaded = make(size, 1024)
    learner = learner_of(loaded)
    samples = samples_of(LENGTH)
    hyper = Hyperparameters(epochs=1, kl=KL, kl_form="k3", adam_eps=1e-8, lr=1e-5)
    times = [seconds(partial(learner.update, samples, hyper, 1)) for _ in range(4)]
    mine = statistics.median(times[1:])
    print(
        f"  {size}: update {mine:.3f} s, micro-batches of {learner.budget} ids,"
        f" activations computed again: {loaded.memory.checkpointing}",
        flush=True,
    )
    model = loaded.model
    del learner
    free()
    try:
        other = _trl(model, loaded.tokenizer, samples)
    except ImportError as error:
        verdicts.skip(f"update-{size}", f"needs TRL ({error})", "<= 1")
        return
    print(f"  {size}: TRL {other:.3f} s", flush=True)
    verdicts.at_most(f"update-{size}", mine / other, 1.0, "of TRL")


def _trl(model: Any, tokenizer: Any, samples: list[TrainSample]) -> float:
    """Return the seconds of TRL for the same update: reference, loss, gradient, step."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    tokenizer.pad_token = tokenizer.eos_token
    config = GRPOConfig(
        output_dir=mkdtemp(prefix="own-gpu-trl-"),
        per_device_train_batch_size=SAMPLES,
        num_generations=8,
        beta=KL,
        use_bias_correction_kl=False,
        bf16=torch.cuda.is_available(),
        use_cpu=not torch.cuda.is_available(),
        gradient_checkpointing=False,
        loss_type="dapo",
        learning_rate=1e-5,
        report_to=[],
    )
    trainer = GRPOTrainer(
        model=model,
        args=config,
        processing_class=tokenizer,
        train_dataset=Dataset.from_dict({"prompt": ["a"] * SAMPLES}),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
    )
    trainer.current_gradient_accumulation_steps = 1
    trainer.create_optimizer()
    device = next(model.parameters()).device
    prompts = torch.tensor([sample.prompt_tokens for sample in samples], device=device)
    answers = torch.tensor([sample.tokens for sample in samples], device=device)
    inputs: dict[str, Any] = {
        "prompt_ids": prompts,
        "prompt_mask": torch.ones_like(prompts),
        "completion_ids": answers,
        "completion_mask": torch.ones_like(answers),
        "advantages": torch.tensor([sample.reward - 0.5 for sample in samples], device=device),
        "num_items_in_batch": torch.tensor(answers.numel(), device=device),
    }
    ids = torch.cat([prompts, answers], dim=1)

    def step() -> None:
        model.train()
        with torch.no_grad(), model.disable_adapter():
            logps, *_ = trainer._get_per_token_logps_and_entropies(
                model, ids, torch.ones_like(ids), answers.shape[1]
            )
        loss = trainer.compute_loss(model, {**inputs, "ref_per_token_logps": logps})
        trainer.accelerator.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()

    return statistics.median([seconds(step) for _ in range(4)][1:])
