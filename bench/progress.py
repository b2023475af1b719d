"""Whether looks at the probe set find what training does to the embedded policy, and nothing else.

    .venv/bin/python -m bench.progress            # about five minutes on two quiet cores
    .venv/bin/python -m bench.progress --quick    # three runs of the rewards without a signal

The rewards of `bench.learning` train the policy for 15 updates. After every third one a look
samples 64 held-out prompts eight times and compares them with the baseline, as the proxy does.
Rewards that only compare are scored head to head. A constant and a random reward train nothing: a
verdict about them is a false one.
"""

# ruff: noqa: E402 - BLAS threads are set before numpy comes in.
import sys

from engine.training import threads

threads.prepare()

import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from random import Random

from bench.bars import Verdicts
from bench.learning.tasks import Question
from bench.learning.training import PLANS, REPEATS, Plan, Student
from core.verdict.conclusion import Verdict, judge, judge_wins
from engine.interface import Completion, Hyperparameters, TrainSample

UPDATES = 15
EVERY = 3
"""Updates between two looks."""
SAMPLES = 8
"""Answers to each prompt of a look."""
SEEDS = (1, 2, 3)
NULL_RUNS = 20
"""Runs of each reward without a signal."""
TEACHING = ("enthusiasm", "arithmetic", "shortest", "hand")
NULL = ("constant", "random")
COMPARING = frozenset({"shortest", "hand"})
"""Rewards that only compare the answers of a group."""


@dataclass(slots=True)
class Run:
    """The verdicts of one run."""

    verdicts: dict[int, Verdict] = field(default_factory=dict)
    """Updates done -> verdict of the look."""
    seconds: list[float] = field(default_factory=list)
    """Duration of each look."""

    @property
    def first_better(self) -> int | None:
        """Updates after which the policy was first better; None if it never was."""
        better = [done for done, one in self.verdicts.items() if one.outcome == "better"]
        return min(better, default=None)


Answers = list[list[Completion]]


def run(job: tuple[str, int]) -> Run:
    """Train one seed of a reward, with looks."""
    name, seed = job
    plan = next(one for one in PLANS if one.name == name)
    prompts = plan.prompts()
    prompts.check()
    hyper = Hyperparameters() if plan.lr is None else Hyperparameters(lr=plan.lr)
    student, rng, result = Student(), Random(seed), Run()
    baseline: Answers = []
    for done in range(UPDATES + 1):
        if done % EVERY == 0:
            began = time.perf_counter()
            answers = student.ask(prompts.evaluation, SAMPLES, 7_000_000 + seed * 1_000 + done)
            if not done:
                baseline = answers
                before = [
                    _rewards(plan, q, row, rng) for q, row in _rows(prompts.evaluation, answers)
                ]
            else:
                number = done // EVERY
                if name in COMPARING:
                    wins = [
                        _wins(plan, question, old, row, rng)
                        for (question, row), old in zip(
                            _rows(prompts.evaluation, answers), baseline, strict=True
                        )
                    ]
                    verdict = judge_wins(wins, number)
                else:
                    now = [
                        _rewards(plan, q, row, rng) for q, row in _rows(prompts.evaluation, answers)
                    ]
                    verdict = judge(before, now, number)
                result.verdicts[done] = verdict
            result.seconds.append(time.perf_counter() - began)
        if done == UPDATES:
            break
        questions = rng.sample(prompts.training, plan.groups)
        groups = student.ask(questions, REPEATS, seed * 1000 + done)
        samples = [
            TrainSample(f"{done}-{place}", one.prompt_tokens, one.tokens, one.logprobs, reward)
            for place, (question, group) in enumerate(zip(questions, groups, strict=True))
            for one, reward in zip(group, plan.reward(question, group, rng), strict=True)
        ]
        student.learner.update(samples, hyper)
    student.learner.close()
    return result


def _rows(
    questions: Sequence[Question], answers: Answers
) -> list[tuple[Question, list[Completion]]]:
    return list(zip(questions, answers, strict=True))


def _rewards(
    plan: Plan, question: Question, answers: Sequence[Completion], rng: Random
) -> list[float]:
    """Return the reward of each answer by itself."""
    return [plan.reward(question, [one], rng)[0] for one in answers]


def _wins(
    plan: Plan,
    question: Question,
    before: Sequence[Completion],
    now: Sequence[Completion],
    rng: Random,
) -> list[float]:
    """Return 1, 0 or, for a tie, 0.5 for each answer of now against one of before."""
    wins = []
    for pair in zip(before, now, strict=True):
        old, new = plan.reward(question, pair, rng)
        wins.append(0.5 if old == new else float(new > old))
    return wins


def main() -> None:
    """Run the command line."""
    quick = "--quick" in sys.argv[1:]
    null_runs = 3 if quick else NULL_RUNS
    jobs = [(name, seed) for name in TEACHING for seed in SEEDS]
    jobs += [(name, seed) for name in NULL for seed in range(1, null_runs + 1)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        results = dict(zip(jobs, pool.map(run, jobs), strict=True))
    verdicts = Verdicts()
    for name in TEACHING:
        runs = [results[name, seed] for seed in SEEDS]
        for seed, one in zip(SEEDS, runs, strict=True):
            effects = ", ".join(
                f"{done}: {verdict.outcome} {verdict.effect:+.2f}"
                for done, verdict in one.verdicts.items()
            )
            print(f"{name} seed {seed}: {effects}")
        result = [one.first_better or UPDATES + 1 for one in runs]
        verdicts.at_most(f"{name} found better after", max(result), UPDATES, "updates")
    for name in NULL:
        runs = [results[name, seed] for seed in range(1, null_runs + 1)]
        better = sum(one.first_better is not None for one in runs)
        verdicts.at_most(f"{name} reward better", better, 1, f"of {null_runs} runs")
        worse = sum(any(v.outcome == "worse" for v in one.verdicts.values()) for one in runs)
        verdicts.info(f"{name} reward worse", worse, f"of {null_runs} runs")
    seconds = sorted(second for one in results.values() for second in one.seconds)
    verdicts.info("median look", seconds[len(seconds) // 2], "s, two at a time")
    verdicts.close()


if __name__ == "__main__":
    main()
