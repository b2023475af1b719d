"""Win rate of the current policy in blind pairs: by raters, by reward, and their agreement."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from core.verdict.agreement import Agreement, result_agreement
from core.verdict.betting import Interval, running_interval

LOSS, TIE, WIN = 0.0, 0.5, 1.0
"""Results of a pair: the answer before is better, neither is, the current answer is."""


class PairFigures(msgspec.Struct, frozen=True):
    """Estimates of the win rate: the mean result over all pairs of two different texts."""

    human: Interval
    """The ratings alone, with an interval that is valid after every rating."""
    automatic: float | None
    """The win rate by the rewards of the same pairs; None where the reward only compares."""
    agreement: Agreement | None
    """How often reward and raters give a pair the same result; None without automatic results."""
    parts: tuple[tuple[str, Interval], ...] = ()
    """For each part of the reward its win rate in the rated pairs minus the raters', from -1 to 1,
    with an interval that is valid after every rating."""

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
    names = dict.fromkeys(name for values in parts for name in values)
    return _figures(
        tuple(results),
        tuple(automatic),
        tuple((name, tuple(values.get(name) for values in parts)) for name in names),
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
    biases = []
    for name, values in parts:
        gaps = [f - y for y, f in zip(results, values, strict=True) if f is not None]
        biases.append((name, running_interval(gaps, bounds=(-1.0, 1.0))))
    scores = [result for result in automatic if result is not None]
    scored = len(scores) == len(results) and sum(every) > 0
    lost, tied, won = every
    return PairFigures(
        human=running_interval(results),
        automatic=(WIN * won + TIE * tied) / (lost + tied + won) if scored else None,
        agreement=result_agreement(results, scores) if scored else None,
        parts=tuple(biases),
    )


def pair_sentence(figures: PairFigures) -> str:
    """Return the estimates in one line, each that is measured with its interval.

    `automatic 0.84, 40 ratings 0.71 (0.50 to 0.90), same result 78 % (59 to 90 %), by chance 45 %`
    """
    count, human = figures.ratings, figures.human
    head = f"automatic {figures.automatic:.2f}, " if figures.automatic is not None else ""
    limits = f"({human.low:.2f} to {human.high:.2f})"
    ratings = f"{count} rating{'' if count == 1 else 's'} {human.estimate:.2f} {limits}"
    same = f", same result {figures.agreement.text}" if figures.agreement is not None else ""
    return f"{head}{ratings}{same}"
