"""Peak memory of a card at the planned load, against the estimate."""

from dataclasses import replace

import torch

from bench.bars import Verdicts
from bench.own_gpu.models import make
from bench.own_gpu.work import KL, free, learner_of, sampler_of, samples_of
from engine.interface import Hyperparameters, Prompt, SamplingParams
from engine.policy.answer import Request
from engine.torch.memory import RUNTIME

CONTEXT = 1024
BUDGET = 16 * CONTEXT
"""Ids of a micro-batch; less than what would fill the card."""


def run(size: str, verdicts: Verdicts) -> None:
    """Fill all slots, then run an update with full micro-batches."""
    if not torch.cuda.is_available():
        verdicts.skip(f"memory-{size}", "needs an NVIDIA card", "0.85..1.15")
        return
    free()
    before = torch.cuda.memory_reserved()
    loaded = make(size, CONTEXT)
    plan = loaded.memory
    activations = (plan.activations - plan.logits) // plan.budget * BUDGET + plan.logits
    plan = replace(plan, budget=BUDGET, activations=activations, snapshots=0)  # none is taken
    loaded = replace(loaded, memory=plan)
    torch.cuda.reset_peak_memory_stats()
    outside = _outside()
    sampler, learner = sampler_of(loaded), learner_of(loaded)
    for _ in range(plan.slots):
        sampler.add(Request(Prompt(tuple(range(1, 769))), SamplingParams(max_tokens=255)))
    while sampler.live or sampler.waiting:
        sampler.step(0)
    sampling = torch.cuda.max_memory_allocated() - before
    driver = _outside() - outside
    hyper = Hyperparameters(epochs=1, kl=KL, adam_eps=1e-8, lr=1e-5)
    torch.cuda.reset_peak_memory_stats()
    learner.update(samples_of(CONTEXT), hyper, 1)
    updating = torch.cuda.max_memory_allocated() - before
    print(
        f"  {size}: estimated weights {plan.weights / 1e9:.2f}, optimizer"
        f" {plan.optimizer / 1e9:.2f}, cache {plan.cache / 1e9:.2f}, recorded steps"
        f" {plan.recording / 1e9:.2f}, activations {plan.activations / 1e9:.2f} GB; outside of"
        f" torch's allocator {driver / 1e9:.2f} GB more after sampling; peak of sampling"
        f" {sampling / 1e9:.2f}, of the update {updating / 1e9:.2f} GB",
        flush=True,
    )
    ratio = (max(sampling, updating) + RUNTIME) / plan.total
    verdicts.at_least(f"memory-{size}-least", ratio, 0.85, "of the estimate")
    verdicts.at_most(f"memory-{size}-most", ratio, 1.15, "of the estimate")


def _outside() -> int:
    """Return the used bytes of the card that torch's allocator does not hold: those of the driver,
    with its recorded graphs, and of other processes."""
    free_now, total = torch.cuda.mem_get_info()
    return int(total - free_now - torch.cuda.memory_reserved())
