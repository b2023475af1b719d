"""Whether a policy became better, win rates of blind pairs, agreement of judges."""

import random
from random import Random

import pytest

from core.verdict.agreement import best_agreement, order_agreement, result_agreement
from core.verdict.betting import ALPHA, difference_interval, running_interval, share, spent
from core.verdict.conclusion import against_best, judge, judge_wins, sentence
from core.verdict.pairs import pair_figures, pair_sentence, result_of
from core.verdict.samples import SampleError


def drawn(mean: float, seed: int, prompts: int = 32) -> list[list[float]]:
    rng = random.Random(seed)
    return [[float(rng.random() < mean) for _ in range(8)] for _ in range(prompts)]


def test_a_clear_rise_is_better_and_a_clear_fall_worse() -> None:
    low, high = drawn(0.2, 1), drawn(0.8, 2)
    better, worse = judge(low, high, 1), judge(high, low, 1)
    assert (better.outcome, worse.outcome) == ("better", "worse")
    assert better.low > 0 > worse.high
    assert better.effect == pytest.approx(-worse.effect)
    assert better.more == worse.more == 0


def test_the_same_policy_is_not_known_at_any_look() -> None:
    baseline = drawn(0.5, 1)
    outcomes = {judge(baseline, drawn(0.5, 10 + look), look).outcome for look in range(1, 9)}
    assert outcomes == {"unknown"}


def test_a_collapse_takes_the_verdict_back() -> None:
    baseline = drawn(0.3, 1)
    assert judge(baseline, drawn(0.8, 2), 4).outcome == "better"
    assert judge(baseline, drawn(0.3, 3), 5).outcome == "unknown"
    assert judge(baseline, drawn(0.01, 4), 6).outcome == "worse"


def test_the_verdict_states_its_samples_and_its_error() -> None:
    verdict = judge(drawn(0.5, 1), drawn(0.5, 2), 3)
    assert (verdict.prompts, verdict.samples, verdict.look) == (32, 512, 3)
    assert verdict.alpha == share(3)
    assert verdict.spent == spent(3) < ALPHA
    assert verdict.reference == 0.0
    assert verdict.low <= verdict.effect <= verdict.high


def test_the_estimate_of_missing_samples_suffices() -> None:
    """With as many samples of the same frequencies as the estimate states, there is a verdict."""
    before, now = [[1.0, 0.0] * 4] * 8, [[1.0, 1.0, 0.0, 1.0] * 2] * 8
    verdict = judge(before, now, 2)
    assert verdict.outcome == "unknown"
    assert verdict.more is not None
    times = 1 + -(-verdict.more // verdict.samples)
    assert judge([line * times for line in before], [line * times for line in now], 3).outcome == (
        "better"
    )
    fewer = max(1, times // 4)
    assert judge([line * fewer for line in before], [line * fewer for line in now], 3).outcome == (
        "unknown"
    )


def test_a_later_look_misses_more_samples() -> None:
    before, now = drawn(0.5, 1, 16), drawn(0.6, 2, 16)
    missing = [judge(before, now, look).more for look in (1, 10, 40)]
    assert all(count is not None for count in missing)
    assert missing == sorted(count for count in missing if count is not None)


def test_no_effect_gives_no_estimate() -> None:
    same = [[1.0, 0.0] * 4] * 8
    verdict = judge(same, same, 1)
    assert (verdict.outcome, verdict.effect, verdict.more) == ("unknown", 0.0, None)


def test_the_bounds_of_the_reward_scale_the_effect() -> None:
    low, high = drawn(0.2, 1), drawn(0.8, 2)
    scale = [[[10 * x - 5 for x in values] for values in arm] for arm in (low, high)]
    verdict = judge(*scale, 1, (-5.0, 5.0))
    assert verdict.outcome == "better"
    assert verdict.effect == pytest.approx(10 * judge(low, high, 1).effect)


def test_comparisons_are_judged_against_one_half() -> None:
    assert judge_wins([[1.0] * 8] * 32, 1).outcome == "better"
    assert judge_wins([[0.0] * 8] * 32, 1).outcome == "worse"
    ties = judge_wins([[0.5] * 8] * 32, 1)
    assert (ties.outcome, ties.effect, ties.reference, ties.more) == ("unknown", 0.5, 0.5, None)
    assert ties.samples == 256


@pytest.mark.parametrize(
    ("before", "now", "text"),
    [
        ([[0.0] * 8] * 64, [[1.0] * 8] * 64, "better by 1.00 (0.95 to 1.00)"),
        ([[1.0] * 8] * 64, [[0.0] * 8] * 64, "worse by 1.00 (0.95 to 1.00)"),
        ([[0.0, 1.0]] * 2, [[1.0, 0.0]] * 2, "not known yet: +0.00 (-1.00 to +1.00)"),
    ],
)
def test_the_sentence(before: list[list[float]], now: list[list[float]], text: str) -> None:
    assert sentence(judge(before, now, 1)) == text


def test_the_sentence_rounds_the_missing_samples() -> None:
    verdict = judge([[1.0, 0.0] * 4] * 8, [[1.0, 1.0, 0.0, 1.0] * 2] * 8, 2)
    assert verdict.more is not None
    text = sentence(verdict)
    assert text.startswith("not known yet: +0.25 (")
    samples = int(text.partition("about ")[2].split()[0].replace(",", ""))
    assert verdict.more <= samples <= 1.1 * verdict.more + 1


def test_the_sentence_of_comparisons() -> None:
    assert sentence(judge_wins([[1.0] * 8] * 64, 1)).startswith("better: wins 1.00 of the compar")


def test_invalid_looks_and_samples_are_refused() -> None:
    with pytest.raises(SampleError):
        judge([[1.0]], [[1.0]], 0)
    with pytest.raises(SampleError) as caught:
        judge([[1.0], [1.0]], [[1.0], []], 1)
    assert "cut short" in caught.value.todo
    with pytest.raises(SampleError):
        judge_wins([], 1)
    with pytest.raises(SampleError):
        judge_wins([[2.0]], 1)


def graded(sums: float, seed: int) -> list[list[float]]:
    """Rewards of 32 facts and 32 sums: 0.8 times a correct answer, and a part that differs little.

    Args:
        sums: Share of the sums that are correct; some are always, the others half of the time.
        seed: Seed of the samples.
    """
    rng = random.Random(seed)
    always = round(32 * (2 * sums - 1))
    means = [0.97] * 32 + [1.0] * always + [0.5] * (32 - always)
    return [
        [0.8 * (rng.random() < mean) + 0.2 * rng.uniform(0.65, 0.85) for _ in range(16)]
        for mean in means
    ]


@pytest.mark.parametrize("look", [17, 40])
def test_a_fall_from_the_best_look_is_found_where_the_baseline_says_nothing(look: int) -> None:
    baseline, best, now = graded(0.66, 1), graded(0.869, 2), graded(0.695, 3)
    assert judge(baseline, best, 9).outcome == "better"
    assert judge(baseline, now, look).outcome == "unknown"
    interval = against_best(best, now, look)
    assert interval.low < interval.estimate < interval.high < 0
    assert interval.alpha == share(look) / (look - 1)


@pytest.mark.slow
def test_a_policy_that_stays_the_same_is_seldom_below_its_best_look() -> None:
    """The best look is selected by its mean, more sharply than by a verdict: at 5 % for each look,
    more than 5 % of the policies that stay the same would be called worse than their best look."""
    runs, looks = 60, 20
    found, uncorrected = 0, 0
    for seed in range(runs):
        rng = random.Random(seed)
        taken = [[[float(rng.random() < 0.5) for _ in range(8)] for _ in range(4)]]
        below = naive = False
        for look in range(2, looks + 1):
            now = [[float(rng.random() < 0.5) for _ in range(8)] for _ in range(4)]
            best = max(taken, key=lambda look_taken: sum(map(sum, look_taken)))
            below |= against_best(best, now, look).high < 0
            naive |= difference_interval(best, now, ALPHA).high < 0
            taken.append(now)
        found += below
        uncorrected += naive
    assert found <= ALPHA * runs < uncorrected


Drawn = tuple[list[float], list[float | None], tuple[int, int, int]]


def drawn_pairs(ratings: int, seed: int = 1) -> Drawn:
    """Ratings of pairs among 1,000, and their automatic results; 200 lost, 100 tied, 700 won."""
    random = Random(seed)
    every = [0.0] * 200 + [0.5] * 100 + [1.0] * 700
    automatic = random.sample(every, ratings)
    human = [result if random.random() < 0.8 else 0.0 for result in automatic]
    return human, list(automatic), (200, 100, 700)


def test_no_rating_has_no_figures() -> None:
    assert pair_figures([], [], [], (1, 2, 3)) is None


@pytest.mark.parametrize(("before", "now", "result"), [(0.1, 0.2, 1), (0.2, 0.1, 0), (1, 1, 0.5)])
def test_the_higher_score_wins(before: float, now: float, result: float) -> None:
    assert result_of(before, now) == result


def test_the_estimates_have_the_interval_of_every_rating_and_the_agreement() -> None:
    human, automatic, every = drawn_pairs(40)
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
    human, _, _ = drawn_pairs(40)
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
