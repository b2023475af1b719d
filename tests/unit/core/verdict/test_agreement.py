"""Percent agreement: share, interval, and what chance gives."""

from random import Random

import pytest

from core.verdict.agreement import best_agreement, order_agreement, result_agreement


def test_two_judges_who_agree_always_are_above_chance() -> None:
    results = [0.0, 0.5, 1.0, 1.0] * 10
    agreement = result_agreement(results, results)
    assert agreement is not None
    assert (agreement.share, agreement.high, agreement.compared) == (1.0, 1.0, 40)
    assert agreement.chance == pytest.approx(0.25**2 + 0.25**2 + 0.5**2)
    assert agreement.chance < agreement.low < 1.0


def test_two_judges_with_nothing_in_common_agree_by_chance() -> None:
    random = Random(3)
    first, second = (random.choices([0.0, 0.5, 1.0], [1, 1, 3], k=400) for _ in range(2))
    agreement = result_agreement(first, second)
    assert agreement is not None
    assert agreement.low < agreement.chance < agreement.high
    assert agreement.chance == pytest.approx(0.2**2 + 0.2**2 + 0.6**2, abs=0.03)


def test_a_judge_who_always_says_the_same_agrees_by_chance_alone() -> None:
    agreement = result_agreement([1.0] * 30, [1.0] * 20 + [0.0] * 10)
    assert agreement is not None
    assert agreement.share == pytest.approx(agreement.chance) == pytest.approx(2 / 3)


def test_nothing_judged_twice_has_no_agreement() -> None:
    assert result_agreement([], []) is None
    assert best_agreement([]) is None
    assert order_agreement([]) is None
    assert order_agreement([[(1.0,), (0.0,)]]) is None, "one answer has no order"


def chosen(best: int) -> tuple[float, ...]:
    return tuple(float(place == best) for place in range(4))


@pytest.mark.parametrize(
    ("votes", "best", "order"),
    [
        ([chosen(1), chosen(1)], 1.0, 1.0),
        ([chosen(1), chosen(2)], 0.0, 1 / 6),
        ([chosen(1), chosen(1), chosen(2)], 1 / 3, (1 + 1 / 6 + 1 / 6) / 3),
        ([(0.0,) * 4, (0.5,) * 4], 0.0, 1.0),  # all bad is not a tie
        ([(0.9, 0.5, 0.1), (0.9, 0.1, 0.5)], 1.0, 2 / 3),
    ],
)
def test_a_group_counts_by_the_share_of_its_pairs_of_raters(
    votes: list[tuple[float, ...]], best: float, order: float
) -> None:
    same, ordered = best_agreement([votes]), order_agreement([votes])
    assert same is not None
    assert ordered is not None
    assert (same.share, same.compared) == (pytest.approx(best), 1)
    assert (ordered.share, ordered.compared) == (pytest.approx(order), 1)


def test_raters_who_choose_at_random_agree_by_chance() -> None:
    random = Random(7)
    choice = [[chosen(random.randrange(4)) for _ in range(2)] for _ in range(500)]
    ranking = [[tuple(random.sample(range(4), 4)) for _ in range(2)] for _ in range(500)]
    two_best = [
        [tuple(random.sample([1.0, 1.0, 0.0, 0.0], 4)) for _ in range(2)] for _ in range(500)
    ]
    for judged, chance in ((choice, 1 / 4), (two_best, 1 / 6)):
        agreement = best_agreement(judged)
        assert agreement is not None
        assert agreement.chance == pytest.approx(chance)
        assert agreement.low < chance < agreement.high
    agreement = order_agreement(ranking)
    assert agreement is not None
    assert agreement.chance == 0.5
    assert agreement.low < 0.5 < agreement.high
    assert agreement.text.endswith("by chance 50 %")


def test_an_agreement_in_words() -> None:
    agreement = result_agreement([1.0] * 3 + [0.0], [1.0] * 3 + [0.5])
    assert agreement is not None
    assert agreement.text.startswith("75 % (")
    assert agreement.text.endswith(" %), by chance 56 %")
