"""Win rate of now against before from blind pairs: automatic, by raters, and both together."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from core.verdict.betting import Interval
from core.verdict.ratings import ENOUGH, correct, part_bias
from core.verdict.running import running_interval

LOSS, TIE, WIN = 0.0, 0.5, 1.0
"""Results of a pair: the answer before is better, neither is, the answer of now is."""


class PairFigures(msgspec.Struct, frozen=True):
    """Estimates of the win rate: the mean result over all pairs of two different texts."""

    human: Interval
    """The ratings alone, with an interval that is valid after every rating."""
    automatic: float | None
    """The win rate by the rewards of the same pairs; None where the reward only compares."""
    together: Interval | None
    """The automatic win rate corrected by the ratings (`core.verdict.ratings.correct`); an interval
    for one reading. None below `ENOUGH` ratings."""
    parts: tuple[tuple[str, Interval], ...] = ()
    """For each part of the reward its win rate in the rated pairs minus the raters'."""

    @property
    def ratings(self) -> int:
        """Number of rated pairs."""
        return self.human.samples


def result_of(before: float, now: float) -> float:
    """Return the result of a pair by the scores of its answers."""
    return TIE if now == before else WIN if now > before else LOSS


def pair_figures(
    results: Sequence[float],
    automatic: Sequence[float | None],
    parts: Sequence[Mapping[str, float]],
    every: tuple[int, int, int],
) -> PairFigures | None:
    """Return the estimates from rated pairs that were drawn at random.

    Args:
        results: The raters' results, in order of arrival.
        automatic: The results by reward of the same pairs; None without rewards.
        parts: The results by part of the same pairs; a part may be missing where it does not apply.
        every: Numbers of pairs, rated or not, that are lost, tied and won by their rewards.

    Returns:
        The estimates; None without a rating.
    """
    if not results:
        return None
    names = dict.fromkeys(name for one in parts for name in one)
    return _figures(
        tuple(results),
        tuple(automatic),
        tuple((name, tuple(one.get(name) for one in parts)) for name in names),
        every,
    )


_Values = tuple[float | None, ...]


@lru_cache(maxsize=16)
def _figures(
    results: tuple[float, ...],
    automatic: _Values,
    parts: tuple[tuple[str, _Values], ...],
    every: tuple[int, int, int],
) -> PairFigures:
    """Return the estimates; cached, because a screen asks for them at each repaint."""
    human = running_interval(results)
    biases = []
    for name, values in parts:
        pairs = [(y, f) for y, f in zip(results, values, strict=True) if f is not None]
        bias = part_bias([y for y, _ in pairs], {name: [f for _, f in pairs]})
        biases.append((name, bias[name]))
    scores = [one for one in automatic if one is not None]
    rest = [
        kind
        for kind, number in zip((LOSS, TIE, WIN), every, strict=True)
        for _ in range(number - scores.count(kind))
    ]
    if len(scores) < len(results):
        return PairFigures(human, None, None, tuple(biases))
    result = correct(results, scores, rest)
    return PairFigures(human, result.automatic, result.together, tuple(biases))


def pair_sentence(figures: PairFigures) -> str:
    """Return the estimates in one line, each that is measured with its interval.

    `automatic 0.84, 40 ratings 0.71 (0.50 to 0.90), together 0.73 ± 0.10`
    """
    count, human = figures.ratings, figures.human
    head = f"automatic {figures.automatic:.2f}, " if figures.automatic is not None else ""
    limits = f"({human.low:.2f} to {human.high:.2f})"
    ratings = f"{count} rating{'' if count == 1 else 's'} {human.estimate:.2f} {limits}"
    if (one := figures.together) is not None:
        width = max(one.high - one.estimate, one.estimate - one.low)
        return f"{head}{ratings}, together {one.estimate:.2f} ± {width:.2f}"
    later = f"; together from {ENOUGH} ratings on" if head and count < ENOUGH else ""
    return f"{head}{ratings}{later}"
