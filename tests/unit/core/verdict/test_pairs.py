"""Win rate from blind pairs: human, automatic, their agreement, and bias by part."""

from random import Random

import pytest

from core.verdict.betting import running_interval
from core.verdict.pairs import pair_figures, pair_sentence, result_of

Drawn = tuple[list[float], list[float | None], tuple[int, int, int]]


def drawn(ratings: int, seed: int = 1) -> Drawn:
    """Ratings of pairs among 1,000, and their automatic results; 200 lost, 100 tied, 700 won."""
    random = Random(seed)
    every = [0.0] * 200 + [0.5] * 100 + [1.0] * 700
    automatic = random.sample(every, ratings)
    human = [one if random.random() < 0.8 else 0.0 for one in automatic]
    return human, list(automatic), (200, 100, 700)


def test_no_rating_has_no_figures() -> None:
    assert pair_figures([], [], [], (1, 2, 3)) is None


@pytest.mark.parametrize(("before", "now", "result"), [(0.1, 0.2, 1), (0.2, 0.1, 0), (1, 1, 0.5)])
def test_the_higher_score_wins(before: float, now: float, result: float) -> None:
    assert result_of(before, now) == result


def test_the_estimates_have_the_interval_of_every_rating_and_the_agreement() -> None:
    human, automatic, every = drawn(40)
    result = pair_figures(human, automatic, [{}] * 40, every)
    assert result is not None
    assert result.human == running_interval(human)
    assert result.automatic == pytest.approx(0.75)
    same = [float(mine == theirs) for mine, theirs in zip(human, automatic, strict=True)]
    assert result.agreement is not None
    assert result.agreement.share == pytest.approx(sum(same) / 40)
    limits = running_interval(same)
    assert (result.agreement.low, result.agreement.high) == (limits.low, limits.high)
    assert pair_sentence(result) == (
        f"automatic 0.75, 40 ratings {result.human.estimate:.2f} "
        f"({result.human.low:.2f} to {result.human.high:.2f}), "
        f"same result {result.agreement.text}"
    )


def test_without_rewards_the_ratings_stand_alone() -> None:
    human, _, _ = drawn(40)
    result = pair_figures(human, [None] * 40, [{}] * 40, (0, 0, 0))
    assert result is not None
    assert (result.automatic, result.agreement) == (None, None)
    assert "automatic" not in pair_sentence(result)
    assert "same result" not in pair_sentence(result)


def test_a_part_that_favours_now_has_a_positive_bias() -> None:
    human = [0.0, 1.0] * 30
    parts = [{"long": 1.0} | ({"right": one} if at < 40 else {}) for at, one in enumerate(human)]
    result = pair_figures(human, [None] * 60, parts, (0, 0, 0))
    assert result is not None
    bias = dict(result.parts)
    assert bias["long"].estimate == pytest.approx(0.5)
    assert bias["long"] == running_interval([1.0, 0.0] * 30, bounds=(-1.0, 1.0))
    assert bias["long"].low > 0.25
    assert bias["right"].estimate == 0.0
    assert bias["right"].low < 0.0 < bias["right"].high
    assert bias["right"].samples == 40, "only the pairs to which the part applies"


def test_one_rating_is_written_in_the_singular() -> None:
    result = pair_figures([1.0], [1.0], [{}], (0, 0, 5))
    assert result is not None
    assert pair_sentence(result).startswith("automatic 1.00, 1 rating 1.00 (")
