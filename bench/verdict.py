"""Errors and power of the verdict on the probe, on simulated rewards with a known truth.

    .venv/bin/python -m bench.verdict            # about a minute
    .venv/bin/python -m bench.verdict --quick    # a tenth of the runs, bars in proportion

64 prompts with eight samples each, at the baseline and at every look, as the probe takes them. The
rewards are right or wrong, a judge's scores, or a weighted sum of both; each prompt has a mean of
its own. A z-test with 5 % at every look runs beside the verdict on the same samples.
"""

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from bench.bars import Verdicts
from core.verdict.conclusion import Verdict, judge, judge_wins

PROMPTS, SAMPLES, LOOKS = 64, 8, 40
EFFECT = 0.20
KINDS = ("right or wrong", "judge", "sum")
Z95 = 1.959964

Table = npt.NDArray[np.float64]


class Policy:
    """Source of rewards with a known mean for each prompt."""

    def __init__(self, kind: str, rng: np.random.Generator) -> None:
        self._kind = kind
        self._rng = rng
        # From hopeless to nearly solved, with room for the effect: many prompts at both ends.
        self._means = 0.22 + 0.56 * rng.beta(0.7, 0.7, PROMPTS)

    def rewards(self, shift: float) -> Table:
        """Return samples at `shift` from the start, shape `(PROMPTS, SAMPLES)`, from 0 to 1."""
        return self._drawn(self._means + shift)

    def chasing(self, before: Table) -> Table:
        """Return samples of a policy that moved each prompt to its average among `before`.

        The mean over the prompts is that of the start: this policy knows the baseline's luck with
        each prompt, and is neither better nor worse.
        """
        means = before.mean(axis=1)
        for _ in range(20):
            means = np.clip(means + self._means.mean() - means.mean(), 0.001, 0.999)
        return self._drawn(means)

    def _drawn(self, prompt_means: Table) -> Table:
        means = prompt_means[:, None]
        shape = (PROMPTS, SAMPLES)
        right = (self._rng.random(shape) < means).astype(np.float64)
        scores = self._rng.beta(5 * means, 5 * (1 - means), shape)
        weight = {"right or wrong": 1.0, "judge": 0.0, "sum": 0.6}[self._kind]
        return weight * right + (1 - weight) * scores


def z_test(before: Table, now: Table) -> float:
    """Return the z of two independent means, as a script computes it: all samples as one list."""
    error = np.sqrt(before.var(ddof=1) / before.size + now.var(ddof=1) / now.size)
    return float((now.mean() - before.mean()) / error) if error else 0.0


def same_policy(runs: int, verdicts: Verdicts) -> None:
    """Count the runs in which a policy that does not change is called better or worse."""
    false = control = head_to_head = chasing = 0
    seconds = []
    for run in range(runs):
        rng = np.random.default_rng((1, run))
        policy = Policy(KINDS[run % len(KINDS)], rng)
        before = policy.rewards(0.0)
        baseline = before.tolist()
        wrong = wrong_z = wrong_wins = wrong_chase = False
        for look in range(1, LOOKS + 1):
            now = policy.rewards(0.0)
            samples = now.tolist()
            started = time.perf_counter()
            wrong |= judge(baseline, samples, look).outcome != "unknown"
            seconds.append(time.perf_counter() - started)
            wrong_z |= abs(z_test(before, now)) > Z95
            wins = (np.sign(now - before) + 1) / 2
            wrong_wins |= judge_wins(wins.tolist(), look).outcome != "unknown"
            chase = policy.chasing(before).tolist()
            wrong_chase |= judge(baseline, chase, look).outcome != "unknown"
        false, control = false + wrong, control + wrong_z
        head_to_head, chasing = head_to_head + wrong_wins, chasing + wrong_chase
    verdicts.at_most("same_policy_false", false, runs / 20, f"of {runs} runs of {LOOKS} looks")
    verdicts.at_most("same_policy_wins_false", head_to_head, runs / 20, f"of {runs} runs")
    verdicts.at_most("chasing_policy_false", chasing, runs / 20, f"of {runs} runs")
    verdicts.at_least("z_test_false", control, runs / 5, f"of {runs} runs, the control")
    verdicts.at_most("one_look", 1000 * statistics.median(seconds), 100, "ms")


def detections(shift: Callable[[int], float], seed: int, runs: int) -> list[int]:
    """Return the looks, up to the tenth, at which `better` came, for the runs in which it did."""
    looks = []
    for run in range(runs):
        policy = Policy(KINDS[run % len(KINDS)], np.random.default_rng((seed, run)))
        baseline = policy.rewards(0.0).tolist()
        for look in range(1, 11):
            outcome = judge(baseline, policy.rewards(shift(look)).tolist(), look).outcome
            if outcome == "better":
                looks.append(look)
                break
    return looks


def improvement(runs: int, verdicts: Verdicts) -> None:
    """Count the runs in which a step and a ramp to `EFFECT` are found within ten looks."""
    shapes: tuple[tuple[str, Callable[[int], float]], ...] = (
        ("step", lambda look: EFFECT),
        ("ramp", lambda look: EFFECT * look / 10),
    )
    for seed, (name, shift) in enumerate(shapes, start=2):
        looks = detections(shift, seed, runs)
        verdicts.at_least(f"{name}_found", len(looks), 0.8 * runs, f"of {runs} runs")
        verdicts.info(f"{name}_found_at", statistics.median(looks or [0]), "looks (median)")


def collapse(runs: int, verdicts: Verdicts) -> None:
    """Count how runs end that rise for eight looks and then fall back, or fall below the start."""
    for seed, (name, level) in enumerate((("back", 0.0), ("below", -EFFECT)), start=4):
        last: list[Verdict] = []
        risen = 0
        for run in range(runs):
            policy = Policy(KINDS[run % len(KINDS)], np.random.default_rng((seed, run)))
            baseline = policy.rewards(0.0).tolist()
            outcomes = [
                judge(baseline, policy.rewards(EFFECT if look <= 8 else level).tolist(), look)
                for look in range(1, 21)
            ]
            risen += any(verdict.outcome == "better" for verdict in outcomes[:8])
            last.append(outcomes[-1])
        ends = [verdict.outcome for verdict in last]
        verdicts.info(f"collapse_{name}_had_risen", risen, f"of {runs} runs")
        verdicts.at_most(f"collapse_{name}_ends_better", ends.count("better"), 0, "runs")
        verdicts.info(f"collapse_{name}_ends_worse", ends.count("worse"), f"of {runs} runs")


def main() -> None:
    """Measure all."""
    quick = "--quick" in sys.argv[1:]
    verdicts = Verdicts()
    same_policy(20 if quick else 200, verdicts)
    improvement(10 if quick else 100, verdicts)
    collapse(10 if quick else 100, verdicts)
    verdicts.close()


if __name__ == "__main__":
    main()
