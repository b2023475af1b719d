"""Better, worse or not known yet: what a look at the probe shows against its baseline."""

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from core.verdict.betting import ALPHA, Interval, difference_interval, mean_interval, share, spent
from core.verdict.samples import UNIT, Bounds

Outcome = Literal["better", "worse", "unknown"]

CHANCE = 0.5
"""Win rate of a policy against itself."""

MOST = 100.0
"""Largest estimate of the samples that are missing, as a multiple of those taken."""


class Verdict(msgspec.Struct, frozen=True):
    """What one look shows about the present policy against the baseline, on these prompts.

    The journal has it in `core.events.LookEnded`: a released field stays.
    """

    outcome: Outcome
    effect: float
    """Mean reward now minus before; for comparisons the win rate of the current policy."""
    low: float
    """Lower confidence limit of `effect`, at the error probability `alpha`."""
    high: float
    reference: float
    """Effect of no change: 0, for comparisons 1/2."""
    prompts: int
    samples: int
    """Number of samples: those of the baseline and of the look, or the comparisons."""
    look: int
    """Number of looks against this baseline so far, this one included."""
    alpha: float
    """Error probability of this look's interval."""
    spent: float
    """Error probability of all looks so far together; below `ALPHA` however many follow."""
    more: int | None = None
    """Estimate of the samples missing to a verdict at this effect, spread as those taken are: half
    of them in the baseline, or all of them comparisons. 0 with a verdict; None if the effect is
    too small beside its interval for an estimate (over `MOST` times the samples taken)."""


def judge(
    baseline: Sequence[Sequence[float]],
    samples: Sequence[Sequence[float]],
    look: int,
    bounds: Bounds = UNIT,
    alpha: float = ALPHA,
) -> Verdict:
    """Return the verdict of a look on the rewards of the probe prompts.

    Over all looks of a comparison, a verdict contradicts the truth (`better` although the mean
    reward is not larger, `worse` although it is not smaller) with probability at most `alpha`. The
    verdict is about the policy of this look: it has no memory of earlier verdicts. Parts of a
    reward that are judged one by one each have the error probability `alpha`.

    Args:
        baseline: For each prompt its rewards before, shape `(prompts, rounds)`; taken once.
        samples: For each prompt its rewards now, in the same order; fresh ones at each look.
        look: Number of this look against this baseline, from 1. A look that was cut short before
            its rewards were read does not count. A new baseline (with samples of its own), a
            changed reward or changed prompts start a new comparison at 1.
        bounds: Lowest and highest possible reward.
        alpha: Error probability of the whole comparison.

    Raises:
        SampleError: A prompt without samples, different prompts, a value outside the bounds, or a
            look below 1.
    """
    interval = difference_interval(baseline, samples, share(look, alpha), bounds)
    return _verdict(interval, 0.0, len(samples), look, alpha)


def judge_wins(wins: Sequence[Sequence[float]], look: int, alpha: float = ALPHA) -> Verdict:
    """Return the verdict of a look on comparisons of a current answer with one of before.

    For rewards that only compare. Each baseline answer takes part in one comparison of the look.
    The claim is about the probability that a current answer beats one of before, ties half, on
    average over the prompts. While the policy stays the baseline's, a verdict at any look has the
    probability `alpha` at most. A policy that is chosen by how it does against these very baseline
    answers can win against them alone; then take fresh ones.

    Args:
        wins: For each prompt its comparisons: 1 if now wins, 0 if before wins, 0.5 for a tie.
        look: Number of this look, as in `judge`.
        alpha: Error probability of the whole comparison.

    Raises:
        SampleError: A prompt without comparisons, a value outside 0 to 1, or a look below 1.
    """
    interval = mean_interval(wins, share(look, alpha))
    return _verdict(interval, CHANCE, len(wins), look, alpha)


def against_best(
    best: Sequence[Sequence[float]],
    samples: Sequence[Sequence[float]],
    look: int,
    bounds: Bounds = UNIT,
    alpha: float = ALPHA,
) -> Interval:
    """Return the mean reward of a look minus that of the best earlier look of its comparison.

    The best look was selected because of its samples, so the interval of this pair alone would be
    too narrow. Its error probability is therefore the share of the look divided by the number of
    earlier looks: by the union bound, the intervals of all pairs of this look with an earlier one
    hold together, so the one with the selected look holds as well, however it was selected. The
    samples of each look are fresh, as `core.verdict.betting` demands. Over all looks of a
    comparison, an interval that misses the difference, such as a wrong "below its best", has a
    probability of at most `alpha`: a second 5 % beside that of the verdicts.

    Args:
        best: For each prompt its rewards in the best earlier look, shape `(prompts, rounds)`.
        samples: For each prompt its rewards now, in the same order.
        look: Number of this look against its baseline, from 1, as in `judge`.
        bounds: Lowest and highest possible reward.
        alpha: Error probability of the whole comparison.

    Raises:
        SampleError: A prompt without samples, different prompts, a value outside the bounds, or a
            look below 1.
    """
    return difference_interval(best, samples, share(look, alpha) / max(look - 1, 1), bounds)


def sentence(verdict: Verdict) -> str:
    """Return the verdict in words: `better by 0.21 (0.12 to 0.30)`, `not known yet: +0.04 ...`."""
    limits = f"{verdict.low:.2f} to {verdict.high:.2f}"
    if verdict.outcome == "unknown":
        figure = f"{verdict.effect:.2f}"
        if verdict.reference != CHANCE:
            figure = f"{verdict.effect:+.2f}"
            limits = f"{verdict.low:+.2f} to {verdict.high:+.2f}"
        more = "" if verdict.more is None else f", about {_rounded(verdict.more):,} more samples"
        return f"not known yet: {figure} ({limits}){more}"
    if verdict.reference == CHANCE:
        return f"{verdict.outcome}: wins {verdict.effect:.2f} of the comparisons ({limits})"
    low, high = sorted((abs(verdict.low), abs(verdict.high)))
    return f"{verdict.outcome} by {abs(verdict.effect):.2f} ({low:.2f} to {high:.2f})"


def _rounded(count: int) -> int:
    """Return `count` with two significant digits, rounded up."""
    step: int = 10 ** max(0, len(str(count)) - 2)
    return -(-count // step) * step


def _verdict(
    interval: Interval, reference: float, prompts: int, look: int, alpha: float
) -> Verdict:
    outcome: Outcome = "unknown"
    if interval.low > reference:
        outcome = "better"
    elif interval.high < reference:
        outcome = "worse"
    return Verdict(
        outcome=outcome,
        effect=interval.estimate,
        low=interval.low,
        high=interval.high,
        reference=reference,
        prompts=prompts,
        samples=interval.samples,
        look=look,
        alpha=interval.alpha,
        spent=spent(look, alpha),
        more=0 if outcome != "unknown" else _missing(interval, reference, look, alpha),
    )


def _missing(interval: Interval, reference: float, look: int, alpha: float) -> int | None:
    """Return how many more samples would make the next look's interval exclude the reference.

    The distance from the estimate to a limit shrinks with the square root of the samples and grows
    with that of the logarithm of the share.
    """
    gain = interval.estimate - reference
    reach = interval.estimate - interval.low if gain > 0 else interval.high - interval.estimate
    if gain == 0.0:
        return None
    growth = math.log(2 / share(look + 1, alpha)) / math.log(2 / interval.alpha)
    missing = interval.samples * (growth * (reach / gain) ** 2 - 1.0)
    if missing > MOST * interval.samples:
        return None
    return max(1, math.ceil(missing))
