"""Learning of SmolLM2-135M from its GGUF file.

The reward is the enthusiasm of `bench.learning`, on questions that are new in each update.
"""

import asyncio
import multiprocessing
import re
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from random import Random
from statistics import mean
from typing import Any

import psutil

from bench.bars import Verdicts
from bench.learning import tasks
from bench.learning.tasks import Question
from engine.interface import (
    Completion,
    Hyperparameters,
    PolicyBackend,
    SamplingParams,
    TrainSample,
    UpdateStats,
)
from engine.torch.loading import TrainingForm, load
from engine.torch.options import TorchOptions
from engine.torch.policy import TorchPolicy
from engine.torch.recipe import recipe

UPDATES, GROUPS, REPEATS, MAX_TOKENS = 15, 8, 4, 40
TEMPERATURE = 0.7
"""Of the answers, as of a job that sets none."""
BAR = 0.5
"""Mean enthusiasm to reach."""
CANDIDATES = 16
LOOKED_AT = 12
"""Held-out questions that are answered greedily at the end."""
_WORDS = re.compile(r"[A-Za-z']+")


@dataclass(slots=True)
class Curve:
    """Result of one seed."""

    rewards: list[float] = field(default_factory=list)
    """Mean of the answers that each update was made from, which were sampled before it."""
    stats: list[UpdateStats] = field(default_factory=list)
    sampling: list[float] = field(default_factory=list)
    """Seconds of sampling."""

    @property
    def reached(self) -> int | None:
        """Number of updates after which the mean reached the bar."""
        return next((i for i, value in enumerate(self.rewards) if value >= BAR), None)


def opened(gguf: str) -> tuple[PolicyBackend, Hyperparameters]:
    """Return the policy and its hyperparameters."""
    loaded = load(TorchOptions(model=gguf, context=256), TrainingForm(), None)
    return TorchPolicy(loaded, None, "smollm2"), recipe(full=False)


def run(gguf: str, seeds: Sequence[int], changes: dict[str, Any], out: Verdicts) -> None:
    """Train from the published weights, once with each seed.

    Args:
        gguf: The model file.
        seeds: Of the questions and the answers.
        changes: Hyperparameters that differ from the recipe.
        out: Takes the figures.
    """
    for seed in seeds:
        curve, clear = asyncio.run(_learn(gguf, seed, changes))
        print("  curve", " ".join(f"{value:.2f}" for value in curve.rewards), flush=True)
        out.at_least(f"learning-{seed}", max(curve.rewards), BAR, "enthusiasm")
        out.at_least(f"intelligible-{seed}", clear, 0.9, "answers")


def speed(gguf: str, verdicts: Verdicts) -> None:
    """Measure 16 candidates and an update of them in a process of its own, without a bar."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        rate, update, memory = pool.submit(_measured, gguf).result()
    verdicts.info("smollm2-tokens-16-candidates", rate, "tokens/s")
    verdicts.info("smollm2-update-16-samples", update, "s an epoch")
    verdicts.info("smollm2-rss", memory, "MB")


def _measured(gguf: str) -> tuple[float, float, float]:
    return asyncio.run(_speed(gguf))


async def _speed(gguf: str) -> tuple[float, float, float]:
    """Return tokens per second, seconds of an epoch, and the resident memory in MB."""
    policy, hyper = opened(gguf)
    await policy.reset()
    question = tasks.facts().training[0]
    rates, updates = [], []
    for number in range(3):
        began = time.perf_counter()
        answers = await _ask(policy, [question], CANDIDATES, number)
        tokens = sum(len(one.tokens) for one in answers)
        rates.append(tokens / (time.perf_counter() - began))
        samples = _samples(str(number), [question], answers, CANDIDATES)
        updates.append((await policy.train(samples, hyper)).seconds / hyper.epochs)
    memory = psutil.Process().memory_info().rss / 1e6
    await policy.close()
    return max(rates), min(updates), memory


async def _learn(gguf: str, seed: int, changes: dict[str, Any]) -> tuple[Curve, float]:
    policy, hyper = opened(gguf)
    hyper = replace(hyper, **changes)
    prompts, rng, curve = tasks.facts(), Random(seed), Curve()
    print(f"  seed {seed}: {hyper}", flush=True)
    for number in range(UPDATES + 1):
        questions = rng.sample(prompts.training, GROUPS)
        began = time.perf_counter()
        answers = await _ask(policy, questions, REPEATS, seed * 1000 + number)
        curve.sampling.append(time.perf_counter() - began)
        samples = _samples(str(number), questions, answers, REPEATS)
        curve.rewards.append(mean(one.reward for one in samples))
        if number < UPDATES and curve.reached is None:
            stats = await policy.train(samples, hyper)
            curve.stats.append(stats)
            print(
                f"    {number}: enthusiasm {curve.rewards[-1]:.2f}, kl {stats.kl:.3f}, entropy"
                f" {stats.entropy:.2f}, norm {stats.grad_norm:.2f}, {curve.sampling[-1]:.1f} +"
                f" {stats.seconds:.1f} s  {answers[0].text[:60]!r}",
                flush=True,
            )
            continue
        break
    held = prompts.evaluation[:LOOKED_AT]
    greedy = await _ask(policy, held, 1, 0, temperature=0.0)
    for question, answer in zip(held, greedy, strict=True):
        print(f"    {question.text} -> {answer.text!r}", flush=True)
    await policy.close()
    return curve, mean(intelligible(one) for one in greedy)


def intelligible(answer: Completion) -> bool:
    """Return whether an answer is text: at least 3 words, and no word more than a third of it."""
    words = [one.lower() for one in _WORDS.findall(answer.text)]
    return len(words) >= 3 and max(words.count(one) for one in set(words)) <= max(
        2, len(words) // 3
    )


async def _ask(
    policy: PolicyBackend,
    questions: list[Question] | tuple[Question, ...],
    repeats: int,
    seed: int,
    temperature: float = TEMPERATURE,
) -> list[Completion]:
    calls: list[Coroutine[Any, Any, Completion]] = []
    for question in questions:
        messages = [{"role": "user", "content": question.text}]
        prompt = policy.render(messages, None, MAX_TOKENS)
        for _ in range(repeats):
            number = seed * 1_000_003 + len(calls)
            params = SamplingParams(max_tokens=MAX_TOKENS, temperature=temperature, seed=number)
            calls.append(policy.sample(prompt, params))
    return await asyncio.gather(*calls)


def _samples(
    name: str, questions: list[Question], answers: list[Completion], repeats: int
) -> list[TrainSample]:
    return [
        TrainSample(
            f"{name}-{i // repeats}",
            one.prompt_tokens,
            one.tokens,
            one.logprobs,
            tasks.liveliness(one.text),
        )
        for i, one in enumerate(answers)
    ]
