"""Whether rewards teach the embedded policy, and only rewards do.

    .venv/bin/python bench/learning.py [--plot docs/img/learning.svg]

Three rewards and three seeds through sampler and learner, without HTTP: 8 prompts x 4 answers an
update, 40 updates, evaluated on held-out prompts; then a person's single ratings, a constant and a
random reward. About three minutes on two quiet cores.
"""

# ruff: noqa: E402 - BLAS threads are set before numpy comes in.
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from engine.training import threads

threads.prepare()

import argparse
import multiprocessing
import textwrap
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from random import Random
from statistics import mean, median

import numpy as np

from bench import learning_plot, learning_tasks
from bench.bars import Verdicts
from bench.learning_tasks import Prompts, Question
from engine.interface import Completion, Hyperparameters, SamplingParams, TrainSample, UpdateStats
from engine.policy import weights
from engine.policy.chat_template import render
from engine.policy.sampler import Request, Sampler
from engine.tokenizer import Tokenizer
from engine.training.grpo import Learner
from engine.training.state import State

GROUPS, REPEATS, UPDATES, MAX_TOKENS = 8, 4, 40, 60
SEEDS = (1, 2, 3)
LOOKS = (0, 5, 10, 15, 20, 25, 30, 40)
"""Updates after which the held-out prompts are sampled."""
FINE = 12
"""Answers to a held-out prompt before the first and after the last update, else `REPEATS`."""
HAND_LR = 8e-4
"""Learning rate of the preset for rating by hand."""

Reward = Callable[[Question, Sequence[Completion], Random], list[float]]


def _enthusiasm(question: Question, group: Sequence[Completion], rng: Random) -> list[float]:
    return [learning_tasks.enthusiasm(done) for done in group]


def _exact(question: Question, group: Sequence[Completion], rng: Random) -> list[float]:
    return [learning_tasks.exact(question, done) for done in group]


def _shortest(question: Question, group: Sequence[Completion], rng: Random) -> list[float]:
    return learning_tasks.shortest(group)


def _by_hand(question: Question, group: Sequence[Completion], rng: Random) -> list[float]:
    return learning_tasks.best_of([learning_tasks.enthusiasm(done) for done in group])


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


def _loudness(question: Question, done: Completion) -> float:
    return learning_tasks.enthusiasm(done)


def _characters(question: Question, done: Completion) -> float:
    return float(len(done.text))


PLANS = (
    Plan("enthusiasm", _enthusiasm, learning_tasks.facts, _loudness),
    Plan("arithmetic", _exact, learning_tasks.sums, learning_tasks.exact),
    Plan("shortest", _shortest, learning_tasks.facts, _characters),
    Plan("hand", _by_hand, learning_tasks.facts, _loudness, groups=1, updates=25, lr=HAND_LR),
    Plan("constant", _constant, learning_tasks.facts, _loudness, updates=5),
    Plan("random", _random, learning_tasks.facts, _loudness),
)


@dataclass(slots=True)
class Run:
    """Result of one seed of one plan."""

    values: dict[int, float] = field(default_factory=dict)
    """Updates done -> mean measure of the held-out answers."""
    intelligible: dict[int, float] = field(default_factory=dict)
    stats: list[UpdateStats] = field(default_factory=list)
    moved: float = 0.0
    """Largest change of a weight."""
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
        start = time.perf_counter()
        questions = rng.sample(prompts.training, plan.groups)
        groups = student.ask(questions, REPEATS, seed * 1000 + number)
        run.sampling += (time.perf_counter() - start) / plan.updates
        samples = [
            TrainSample(f"{number}-{place}", done.prompt_tokens, done.tokens, done.logprobs, reward)
            for place, (question, group) in enumerate(zip(questions, groups, strict=True))
            for done, reward in zip(group, plan.reward(question, group, rng), strict=True)
        ]
        run.stats.append(student.learner.update(samples, hyper))
    run.moved = float(np.abs(student.state.params.flat - student.base.flat).max())
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
    run.intelligible[step] = mean(learning_tasks.intelligible(q, done) for q, done in pairs)
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


def at(runs: Sequence[Run], step: int) -> float:
    """Return the median over the seeds of the held-out measure after `step` updates."""
    return median(run.values[step] for run in runs)


def table(results: dict[str, list[Run]]) -> str:
    """Return a Markdown table: lowest, median and highest seed."""
    steps = [step for step in LOOKS if any(step in run[0].values for run in results.values())]
    lines = [
        "| reward | " + " | ".join(map(str, steps)) + " | intelligible, before and after | KL |",
        "|---" * (len(steps) + 3) + "|",
    ]
    for name, runs in results.items():
        digits = 0 if name == "shortest" else 2
        cells = []
        for step in steps:
            values = sorted(run.values[step] for run in runs if step in run.values)
            cells.append(
                f"{values[0]:.{digits}f} **{median(values):.{digits}f}** {values[-1]:.{digits}f}"
                if values
                else ""
            )
        last = max(runs[0].values)
        clear = " -> ".join(f"{median(r.intelligible[n] for r in runs):.3f}" for n in (0, last))
        clear = "" if name == "arithmetic" else clear
        cells += [clear, f"{median(run.kl for run in runs):.3f}"]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def show_prompts() -> None:
    """Print the prompts of training and evaluation."""
    for name, prompts in (("facts", learning_tasks.facts()), ("sums", learning_tasks.sums())):
        prompts.check()
        for use, questions in (("training", prompts.training), ("evaluation", prompts.evaluation)):
            text = " | ".join(question.text for question in questions)
            print(f"\n{name}, {use} ({len(questions)} prompts):\n{textwrap.fill(text, 160)}")


def judge(results: dict[str, list[Run]]) -> Verdicts:
    """Compare the medians of the seeds with the bars."""
    verdicts = Verdicts()
    glad, right, short = (results[name] for name in ("enthusiasm", "arithmetic", "shortest"))
    hand, same, noise = (results[name] for name in ("hand", "constant", "random"))

    def clear(runs: Sequence[Run]) -> float:
        return median(run.intelligible[max(run.intelligible)] for run in runs)

    verdicts.at_least("enthusiasm gain at 15", at(glad, 15) - at(glad, 0), 0.3, "reward")
    verdicts.at_least("enthusiasm at 20", at(glad, 20), 0.7, "reward")
    verdicts.at_least("arithmetic gain at 15", at(right, 15) - at(right, 0), 0.2, "share right")
    verdicts.at_most("shortest at 20", at(short, 20) / at(short, 0), 2 / 3, "of the characters")
    verdicts.at_least("enthusiasm intelligible at 40", 100 * clear(glad), 97, "%")
    verdicts.at_least("shortest intelligible at 40", 100 * clear(short), 93, "%")
    gain = median(run.values[25] - run.values[0] for run in hand)
    verdicts.at_least("25 ratings by hand gain", gain, 0.15, "reward")
    dead = mean(stats.dead_groups / stats.groups for run in same for stats in run.stats)
    verdicts.at_least("constant reward no signal", dead, 1.0, "of the groups")
    verdicts.at_most("constant reward moves", max(run.moved for run in same), 1e-6, "in a weight")
    verdicts.at_most("random reward KL", max(run.kl for run in noise), 0.05, "nats a token")
    lost = median(run.intelligible[0] - run.intelligible[UPDATES] for run in noise)
    verdicts.at_most("random reward intelligible lost", 100 * lost, 3, "points")
    return verdicts


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Whether rewards teach the embedded policy.")
    parser.add_argument("--plot", type=Path, help="write the curves as SVG")
    options = parser.parse_args()
    start = time.perf_counter()
    show_prompts()
    results = run_all([plan.name for plan in PLANS], SEEDS, Hyperparameters())
    print(f"\nHeld-out prompts, lowest **median** highest of {len(SEEDS)} seeds:\n")
    print(table(results))
    glad = results["enthusiasm"]
    seconds = median(stats.seconds for run in glad for stats in run.stats)
    print(
        f"\nupdate of {GROUPS}x{REPEATS} answers {seconds:.2f} s, sampling them "
        f"{median(run.sampling for run in glad):.2f} s, all {time.perf_counter() - start:.0f} s\n"
    )
    for name in ("enthusiasm", "shortest", "hand"):
        print("\n".join(f"{name}: {line}" for line in results[name][0].spoken))
    if options.plot is not None:
        options.plot.parent.mkdir(parents=True, exist_ok=True)
        curves = {name: [run.values for run in results[name]] for name in learning_plot.PANELS}
        options.plot.write_text(learning_plot.draw(curves), encoding="utf-8")
    print()
    judge(results).close()


if __name__ == "__main__":
    main()
