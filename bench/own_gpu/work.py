"""Samples, sampler and learner of the benchmarks, and their time."""

import gc
import time
from collections.abc import Callable

import torch

from engine.interface import TrainSample
from engine.torch.learner import Optimizer, TorchLearner
from engine.torch.loading import Loaded
from engine.torch.policy import new_batch
from engine.torch.sampling.sampler import TorchSampler
from engine.torch.text import ModelText

PROMPT = 128
"""Ids of a prompt."""
SAMPLES = 32
KL = 0.04


def sampler_of(loaded: Loaded) -> TorchSampler:
    """Return a sampler of a model."""
    text = ModelText(loaded.tokenizer)
    slots = loaded.memory.slots
    return TorchSampler(new_batch(loaded), text, loaded.ends, loaded.context, slots)


def learner_of(loaded: Loaded) -> TorchLearner:
    """Return a learner of a model with a fresh optimizer."""
    flat = torch.cat([weight.detach().float().reshape(-1) for weight in loaded.trained])
    optimizer = Optimizer(flat, torch.zeros_like(flat), torch.zeros_like(flat))
    return TorchLearner(loaded.model, loaded.trained, optimizer, loaded.memory)


def samples_of(length: int) -> list[TrainSample]:
    """Return `SAMPLES` samples of `length` ids in groups of 8."""
    prompt = tuple(range(1, PROMPT + 1))
    count = length - PROMPT
    return [
        TrainSample(
            f"t{i // 8}",
            prompt,
            tuple((i + j) % 900 + 1 for j in range(count)),
            (-1.0,) * count,
            float(i % 2),
        )
        for i in range(SAMPLES)
    ]


def seconds(work: Callable[[], object]) -> float:
    """Return the time of a call, with the work that it left to the card."""
    _wait()
    began = time.perf_counter()
    work()
    _wait()
    return time.perf_counter() - began


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def free() -> None:
    """Free unused memory, also of the card."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
