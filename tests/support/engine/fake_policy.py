"""A policy for tests: answers at once and always the same for the same seed, learns nothing."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.interface import (
    Completion,
    Hardware,
    Hyperparameters,
    NoSnapshots,
    PolicyBackend,
    Prompt,
    SamplingParams,
    TrainingRun,
    TrainSample,
    UpdateStats,
)

ANSWER, END = 2, 3
_WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight")


@dataclass
class Bench:
    """What outlives one opening of the policy, and the levers of a test."""

    step: int = 0
    turns: bool = False
    """Answers are drawn as their letters, so that a second turn's prompt extends the first's."""
    drifts: bool = False
    """With `turns`: letters are drawn as ids that no prompt is rendered with."""
    opened: int = 0
    closed: int = 0
    params: list[SamplingParams] = field(default_factory=list)
    trained: list[list[TrainSample]] = field(default_factory=list)
    hypers: list[Hyperparameters] = field(default_factory=list)
    resets: list[bool] = field(default_factory=list)
    checkpoints: list[str] = field(default_factory=list)
    checkpoint_error: Exception | None = None
    open_gate: asyncio.Event | None = None
    sample_gate: asyncio.Event | None = None
    train_gate: asyncio.Event | None = None
    close_gate: asyncio.Event | None = None
    sampling: int = 0
    training: int = 0
    open_error: Exception | None = None
    sample_error: Exception | None = None
    train_error: Exception | None = None

    async def factory(self, reset: bool) -> PolicyBackend:
        """A `PolicyFactory`."""
        await _pass(self.open_gate)
        if self.open_error is not None:
            raise self.open_error
        assert self.opened == self.closed, "two policies are open on the same files"
        self.opened += 1
        self.resets.append(reset)
        if reset:
            self.step = 0
        return FakePolicy(self)


class FakePolicy:
    """See `Bench` for the levers."""

    name = "fake"
    context = 256
    snapshots = NoSnapshots("The fake policy takes no snapshots.")
    hardware: Hardware | None = None

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    @property
    def step(self) -> int:
        return self.bench.step

    @property
    def run(self) -> TrainingRun:
        return TrainingRun(f"run{sum(self.bench.resets)}")

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        max_tokens: int,
    ) -> Prompt:
        text = "\n".join(f"{message['role']}: {message['content']}" for message in messages)
        if "unrenderable" in text:
            raise ValueError("unrenderable")
        room = self.context - max_tokens
        tokens = rendered_turns(messages) if self.bench.turns else tuple(text.encode())
        length = len(tokens) if len(tokens) > room else 0
        return Prompt(tokens=tokens[:room], truncated=bool(length), length=length)

    def token_texts(self, tokens: Sequence[int]) -> list[str]:
        return [f"<{token}>" for token in tokens]

    def decode(self, tokens: Sequence[int]) -> str:
        return decode(tokens)

    async def sample(
        self,
        prompt: Prompt,
        params: SamplingParams,
        on_text: Callable[[str], None] | None = None,
    ) -> Completion:
        bench = self.bench
        bench.params.append(params)
        bench.sampling += 1
        try:
            await _pass(bench.sample_gate)
        finally:
            bench.sampling -= 1
        if bench.sample_error is not None:
            raise bench.sample_error
        draw = random.Random(len(bench.params) if params.seed is None else params.seed)
        words = [draw.choice(_WORDS) for _ in range(min(3, params.max_tokens))]
        for place, word in enumerate(words):
            if on_text is not None:
                on_text(f" {word}" if place else word)
                await asyncio.sleep(0)
        tokens = tuple(map(len, words))
        if bench.turns:
            tokens = (*(letter + 256 * bench.drifts for letter in " ".join(words).encode()), END)
        return Completion(
            text=" ".join(words),
            prompt_tokens=prompt.tokens,
            tokens=tokens,
            logprobs=tuple(-1.0 for _ in tokens),
            finish_reason="stop",
            truncated=prompt.truncated,
            step=bench.step,
        )

    async def logprobs(self, prompt_tokens: Sequence[int], tokens: Sequence[int]) -> list[float]:
        return [-2.0 for _ in tokens]

    async def train(self, samples: Sequence[TrainSample], hyper: Hyperparameters) -> UpdateStats:
        bench = self.bench
        bench.training += 1
        try:
            await _pass(bench.train_gate)
        finally:
            bench.training -= 1
        if bench.train_error is not None:
            raise bench.train_error
        bench.trained.append(list(samples))
        bench.hypers.append(hyper)
        bench.step += 1
        rewards = [sample.reward for sample in samples]
        groups: dict[str, set[float]] = {}
        for sample in samples:
            groups.setdefault(sample.task_id, set()).add(sample.reward)
        return UpdateStats(
            step=bench.step,
            samples=len(samples),
            tokens=sum(len(sample.tokens) for sample in samples),
            groups=len(groups),
            dead_groups=sum(len(values) == 1 for values in groups.values()),
            reward_mean=sum(rewards) / len(rewards),
            reward_std=0.0,
            kl=float("nan"),
            clip_fraction=0.0,
            entropy=1.0,
            grad_norm=1.0,
            response_tokens=3.0,
            seconds=0.0,
        )

    async def checkpoint(self, name: str) -> None:
        if self.bench.checkpoint_error is not None:
            raise self.bench.checkpoint_error
        self.bench.checkpoints.append(name)

    async def reset(self) -> None:
        self.bench.step = 0

    async def close(self) -> None:
        await _pass(self.bench.close_gate)
        self.bench.closed += 1


def rendered_turns(messages: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    """Each answer between its tags, and the tag that the next one begins with."""
    ids: list[int] = []
    for message in messages:
        text = str(message["content"]).encode()
        if message["role"] == "assistant":
            ids += [ANSWER, *text, END]
        else:
            ids += [*message["role"].encode(), *b": ", *text, *b"\n"]
    return (*ids, ANSWER)


def decode(tokens: Sequence[int]) -> str:
    """Letters, also those drawn under other ids; tags are nothing."""
    letters = bytes(token % 256 for token in tokens if token not in (ANSWER, END))
    return letters.decode("utf-8", "ignore")


async def _pass(gate: asyncio.Event | None) -> None:
    if gate is not None:
        await gate.wait()
