"""The policy in training: plans with their rewards, one run of a seed, and all runs of a plan."""

import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from random import Random
from statistics import mean

import numpy as np

from bench.learning import tasks
from bench.learning.tasks import Prompts, Question
from engine.interface import Completion, Hyperparameters, SamplingParams, TrainSample, UpdateStats
from engine.policy import weights
from engine.policy.answer import Request
from engine.policy.chat_template import render
from engine.policy.sampler import Sampler
from engine.tokenizer import Tokenizer
from engine.training.grpo import Learner
from engine.training.state import State

GROUPS, REPEATS, UPDATES, MAX_TOKENS = 8, 4, 40, 60
LOOKS = (0, 5, 10, 15, 20, 25, 30, 40)
"""Updates after which the held-out prompts are sampled."""
FINE = 12
"""Answers to a held-out prompt before the first and after the last update, else `REPEATS`."""
HAND_LR = 8e-4
"""Learning rate of the preset for rating by hand."""

Reward = Callable[[Question, Sequence[Completion], Random], list[float]]


def _enthusiasm(question: Question, group: Sequence[Completion], rng: Random) -> list[float]:
    return [tasks.enthusiasm(done) for done in group]


def _exact(question: Question, group: Sequence[Completion], rng: Random) -> list[float]:
    return [tasks.exact(question, done) for done in group]


def _shortest(question: Question, group: Sequence[Completion], rng: Random) -> list[float]:
    return tasks.shortest(group)


def _by_hand(question: Question, group: Sequence[Completion], rng: Random) -> list[float]:
    return tasks.best_of([tasks.enthusiasm(done) for done in group])


def _constant(question: Question, group: Sequence[Completion], rng: Random) -> list[float]:
    return [1.0] * len(group)


def _random(question: Question, group: Sequence[Completion], rng: Random) -> list[float]:
    return [rng.random() for _ in group]


@dataclass(frozen=True, slots=True)
class Plan:
    """One reward and its training parameters."""

    name: str
    reward: Reward
    prompts: Callable[[], Prompts]
    measure: Callable[[Question, Completion], float]
    """Return the measure by which held-out answers are averaged."""
    groups: int = GROUPS
    updates: int = UPDATES
    lr: float | None = None
    taught: int = 0
    """Updates by *enthusiasm* before those of the reward."""


def _loudness(question: Question, done: Completion) -> float:
    return tasks.enthusiasm(done)


def _characters(question: Question, done: Completion) -> float:
    return float(len(done.text))


PLANS = (
    Plan("enthusiasm", _enthusiasm, tasks.facts, _loudness),
    Plan("arithmetic", _exact, tasks.sums, tasks.exact),
    Plan("shortest", _shortest, tasks.facts, _characters),
    Plan("hand", _by_hand, tasks.facts, _loudness, groups=1, updates=25, lr=HAND_LR),
    Plan("constant", _constant, tasks.facts, _loudness, updates=10, taught=5),
    Plan("random", _random, tasks.facts, _loudness),
)


@dataclass(slots=True)
class Run:
    """Result of one seed of one plan."""

    values: dict[int, float] = field(default_factory=dict)
    """Updates done -> mean measure of the held-out answers."""
    intelligible: dict[int, float] = field(default_factory=dict)
    stats: list[UpdateStats] = field(default_factory=list)
    moved: float = 0.0
    """Change of the weights by the plan's reward, as a share of that by `Plan.taught`; norms."""
    spoken: list[str] = field(default_factory=list)
    """Some held-out answers at the end."""
    sampling: float = 0.0
    """Seconds of sampling per update."""

    @property
    def kl(self) -> float:
        """Return the KL to the shipped weights over the last five updates."""
        return mean(stats.kl for stats in self.stats[-5:])


class Student:
    """A policy in training."""

    def __init__(self) -> None:
        base = weights.shipped()
        self._tokenizer = Tokenizer.shipped()
        self.base = base.params
        self.state = State.fresh(base)
        self.sampler = Sampler(self.state.params, self._tokenizer)
        self.learner = Learner(self.state, base.params)

    def ask(self, questions: Sequence[Question], repeats: int, seed: int) -> list[list[Completion]]:
        """Sample answers to each question at temperature 1."""
        context = self.state.params.config.context
        requests: list[Request] = []
        for question in questions:
            messages = [{"role": "user", "content": question.text}]
            prompt = render(self._tokenizer, context, messages, None, MAX_TOKENS)
            for _ in range(repeats):
                drawn = SamplingParams(max_tokens=MAX_TOKENS, seed=seed * 1_000_003 + len(requests))
                requests.append(Request(prompt, drawn))
        for request in requests:
            self.sampler.add(request)
        completions: dict[Request, Completion] = {}
        while self.sampler.live or self.sampler.waiting:
            done = self.sampler.step(self.state.step)
            completions |= {finished.request: finished.completion for finished in done}
        answers = [completions[request] for request in requests]
        return [answers[i : i + repeats] for i in range(0, len(answers), repeats)]


def train(plan: Plan, seed: int, hyper: Hyperparameters) -> Run:
    """Train one seed of a plan from the shipped weights."""
    prompts = plan.prompts()
    prompts.check()
    student, rng, run = Student(), Random(seed), Run()
    if plan.lr is not None:
        hyper = replace(hyper, lr=plan.lr)
    for number in range(plan.updates + 1):
        if number in LOOKS or number == plan.updates:
            _look(plan, prompts, student, seed, run)
        if number == plan.updates:
            break
        if number == plan.taught:
            weights_before = student.state.params.flat.copy()
        reward_of = _enthusiasm if number < plan.taught else plan.reward
        start = time.perf_counter()
        questions = rng.sample(prompts.training, plan.groups)
        groups = student.ask(questions, REPEATS, seed * 1000 + number)
        run.sampling += (time.perf_counter() - start) / plan.updates
        samples = [
            TrainSample(f"{number}-{place}", done.prompt_tokens, done.tokens, done.logprobs, reward)
            for place, (question, group) in enumerate(zip(questions, groups, strict=True))
            for done, reward in zip(group, reward_of(question, group, rng), strict=True)
        ]
        run.stats.append(student.learner.update(samples, hyper))
    taught = np.linalg.norm(weights_before - student.base.flat) or 1.0
    run.moved = float(np.linalg.norm(student.state.params.flat - weights_before) / taught)
    student.learner.close()
    return run


def _look(plan: Plan, prompts: Prompts, student: Student, seed: int, run: Run) -> None:
    """Sample the held-out prompts without training on them."""
    held = prompts.evaluation
    fine = student.state.step in (0, plan.updates)
    groups = student.ask(held, FINE if fine else REPEATS, 900_000 + seed)
    pairs = [(q, done) for q, group in zip(held, groups, strict=True) for done in group]
    step = student.state.step
    run.values[step] = mean(plan.measure(question, done) for question, done in pairs)
    run.intelligible[step] = mean(tasks.intelligible(q, done) for q, done in pairs)
    run.spoken = [f"{q.text} -> {group[0].text}" for q, group in zip(held, groups, strict=True)][:3]


def _job(job: tuple[str, int, Hyperparameters]) -> Run:
    name, seed, hyper = job
    return train(next(plan for plan in PLANS if plan.name == name), seed, hyper)


def run_all(
    names: Sequence[str], seeds: Sequence[int], hyper: Hyperparameters
) -> dict[str, list[Run]]:
    """Run all seeds of some plans on two processes."""
    jobs = [(name, seed, hyper) for name in names for seed in seeds]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        runs = list(pool.map(_job, jobs))
    return {
        name: [run for job, run in zip(jobs, runs, strict=True) if job[0] == name] for name in names
    }
