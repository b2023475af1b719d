"""The engine's own side of `bench.engine`, measured inside the engine's code."""

import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from ajet_swarm.common.tasks import Tasks
from bench.engine.naive_numpy import serve
from core.runtime.sockets import loop_factory
from engine.interface import Completion, Hyperparameters, Prompt, SamplingParams, TrainSample
from engine.policy import weights
from engine.policy.answer import Request
from engine.policy.chat_template import render
from engine.policy.sampler import Sampler
from engine.policy.tiny import TinyPolicy
from engine.tokenizer import CALL, END, TEMPLATE_ONLY, Tokenizer
from engine.training import threads
from engine.training.grpo import Learner
from engine.training.state import State

LATENESS_SECONDS = 4.0
QUESTIONS = (
    "How do I sleep better?", "Tell me a joke.", "What is 7 + 8?", "Why is the sky blue?",
    "How do I boil an egg?", "Tell me about cats.", "What is the capital of Japan?", "Hello",
)  # fmt: skip
TOKENIZER = Tokenizer.shipped()
HYPER = Hyperparameters()


def prompt(text: str) -> Prompt:
    """Return a rendered question."""
    return render(TOKENIZER, 512, [{"role": "user", "content": text}], None, 60)


def drain(sampler: Sampler, requests: list[Request]) -> list[Completion]:
    """Return the answers of all requests, in order."""
    for request in requests:
        sampler.add(request)
    completions: dict[Request, Completion] = {}
    while sampler.live or sampler.waiting:
        completions |= {done.request: done.completion for done in sampler.step(0)}
    return [completions[request] for request in requests]


def batch() -> list[TrainSample]:
    """Return 8 x 4 answers; the reward is higher the nearer an answer is to 20 tokens."""
    sampler = Sampler(weights.shipped().params, TOKENIZER)
    rollouts = []
    for which, question in enumerate(QUESTIONS):
        requests = [
            Request(prompt(question), SamplingParams(max_tokens=60, seed=which * 4 + i))
            for i in range(4)
        ]
        for done in drain(sampler, requests):
            reward = 1.0 / (1.0 + abs(len(done.tokens) - 20))
            rollouts.append(
                TrainSample(str(which), done.prompt_tokens, done.tokens, done.logprobs, reward)
            )
    return rollouts


def work(samples: list[TrainSample]) -> dict[str, Any]:
    """Write the input of the variants."""
    advantages = []
    for sample in samples:
        group = [other.reward for other in samples if other.task_id == sample.task_id]
        spread = statistics.pstdev(group) + HYPER.damping
        advantages.append((sample.reward - statistics.mean(group)) / spread)
    names = list(weights.shipped().params.names())
    trained = names[names.index(f"{HYPER.frozen - 1}.norm1") if HYPER.frozen else 0 :]
    blocked = [*TEMPLATE_ONLY, CALL]
    return {
        "base": str(weights.DATA / weights.BASE),
        "hyper": {
            "lr": HYPER.lr, "adam_eps": HYPER.adam_eps, "betas": HYPER.betas, "clip": HYPER.clip,
            "epochs": HYPER.epochs, "kl": HYPER.kl, "grad_clip": HYPER.grad_clip,
        },
        "blocked": blocked,
        "never": [*blocked, END],
        "trained": trained,
        "every": 37,
        "prompt": list(prompt(QUESTIONS[0]).tokens),
        "batch": [
            {
                "prompt": sample.prompt_tokens,
                "tokens": sample.tokens,
                "logprobs": sample.logprobs,
                "advantage": advantage,
            }
            for sample, advantage in zip(samples, advantages, strict=True)
        ],
    }  # fmt: skip


class Ours:
    """The engine's own code, without its server."""

    def __init__(self) -> None:
        threads.prepare()  # the bench has set the threads of BLAS as this would have
        self.samples = batch()
        self.work = work(self.samples)
        base = weights.shipped()
        self.state = State.fresh(base)
        self.learner = Learner(self.state, base.params)
        self.sampler = Sampler(base.params, TOKENIZER)
        self.seeds = self._long(64)

    def update(self) -> None:
        """Do one GRPO update."""
        self.learner.update(self.samples, HYPER)

    def work_file(self) -> str:
        """Write the work for the other variants."""
        with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
            json.dump(self.work, file)
        return file.name

    def answers(self) -> None:
        """Sample four answers of 60 tokens to one prompt."""
        self._draw([self._request(0, seed, 60) for seed in self.seeds[:4]])

    def alone(self) -> None:
        """Sample 64 answers of 24 to 60 tokens to eight prompts, one by one."""
        for request in self._mixed():
            self._draw([request])

    def together(self) -> None:
        """Sample the same answers in 32 slots."""
        self._draw(self._mixed())

    def lateness(self) -> float:
        """Return the p99 lateness of the event loop in milliseconds during continuous updates."""
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(self._lateness())

    async def _lateness(self) -> float:
        late: list[float] = []

        async def tick() -> None:
            while True:
                due = time.perf_counter() + 0.005
                await asyncio.sleep(0.005)
                late.append(time.perf_counter() - due)

        with tempfile.TemporaryDirectory() as folder:
            policy = TinyPolicy.open(Path(folder))
            async with Tasks("bench") as tasks:
                tasks.spawn(tick(), "tick")
                end = time.perf_counter() + LATENESS_SECONDS
                while time.perf_counter() < end:
                    await policy.train(self.samples, HYPER)
            await policy.close()
        return 1000 * float(np.quantile(late, 0.99))

    def _mixed(self) -> list[Request]:
        return [self._request(i % 8, seed, 24 + i * 7 % 37) for i, seed in enumerate(self.seeds)]

    def _request(self, question: int, seed: int, length: int) -> Request:
        # So hot that every token is as likely: what is measured does not depend on the policy.
        params = SamplingParams(max_tokens=length, seed=seed, temperature=1e6)
        return Request(prompt(QUESTIONS[question]), params)

    def _draw(self, requests: list[Request]) -> None:
        for request, done in zip(requests, drain(self.sampler, requests), strict=True):
            assert len(done.tokens) == request.params.max_tokens

    def _long(self, count: int) -> list[int]:
        """Return seeds whose answers have at least 60 tokens."""
        tried = [self._request(0, seed, 60) for seed in range(2 * count)]
        completions = drain(self.sampler, tried)
        long = [seed for seed, done in enumerate(completions) if len(done.tokens) == 60]
        assert len(long) >= count
        return long[:count]

    def changed(self) -> list[float]:
        base, params = weights.shipped().params, self.state.params
        parts = [(params[name] - base[name]).ravel() for name in self.work["trained"]]
        return [float(value) for value in np.concatenate(parts)[:: self.work["every"]]]


if __name__ == "__main__" and len(sys.argv) > 1:
    serve(Ours(), f"engine (numpy {np.__version__})")
