"""The figures of the monitor: traits of answers, correlations, outliers, lack of a signal."""

import random
import time

import pytest

from proxy.alerts import alert_raised
from proxy.rewards.monitor import hacking as traits
from proxy.rewards.monitor.hacking import (
    MIN_ANSWERS,
    TRAITS,
    WINDOW,
    HackingMonitor,
    interval,
    lengths,
    reference_grams,
)
from proxy.rewards.monitor.watcher import RewardDistribution, SignalMonitor
from tests.support.alerts import cause_of

REFERENCE = "Water boils at a lower temperature on a mountain because the air is thinner there."


def traits_of(text: str, reference: str | None = None) -> dict[str, float]:
    values = traits.traits_of(text, float(len(text)), reference_grams(reference))
    return dict(zip(TRAITS, values, strict=True))


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("the quick brown fox jumps over the lazy dog", 0, 0),
        ("so it goes so it goes so it goes so it goes", 0.5, 1),
        ("Yes, yes, yes! Take a walk.", 0.2, 1),
        ("Yes, take a walk.", 0, 0),
        ("", 0, 0),
    ],
)
def test_repetition_is_the_share_of_repeated_phrases_and_words(
    text: str, low: float, high: float
) -> None:
    assert low <= traits_of(text)["repetition"] <= high


@pytest.mark.parametrize(
    ("text", "refuses"),
    [
        ("I'm sorry, but no.", 1),
        ("I can’t do that.", 1),
        ("As an AI, I", 1),
        ("I do not know.", 1),
        ("Sorry, no idea.", 1),
        ("I can not answer that honestly.", 1),
        ("I can not wait to hear more!", 0),
        ("I had the idea to walk.", 0),
        ("The sorry state of the roads", 0),
        ("", 0),
    ],
)
def test_refusals_at_the_beginning(text: str, refuses: int) -> None:
    assert traits_of(text)["refusal"] == refuses


def test_overlap_with_a_long_reference_is_the_share_of_it_that_is_copied() -> None:
    assert traits_of(REFERENCE, REFERENCE)["reference"] == 1
    assert traits_of(f"Well: {REFERENCE.upper()}", REFERENCE)["reference"] == 1
    half = " ".join(REFERENCE.split()[:9])
    assert 0.4 < traits_of(half, REFERENCE)["reference"] < 0.7
    own = "On a mountain water boils earlier, as there is less air above it."
    assert traits_of(own, REFERENCE)["reference"] == 0
    assert traits_of(REFERENCE)["reference"] == 0


@pytest.mark.parametrize("short", ["7", "Lima", "The capital is Lima", "", None])
def test_a_short_reference_can_not_be_copied(short: str | None) -> None:
    assert traits_of("The capital is Lima.", short)["reference"] == 0


def test_lengths_are_of_one_unit() -> None:
    assert lengths([3, 4], ["aaaa", "b"]) == [3, 4]
    assert lengths([3, 0], ["aaaa", "b"]) == [4, 1]


HOSTILE = (
    "you are " * 40_000,
    "<" * 300_000,
    "\n" * 300_000,
    "a" * 1_000_000,
    "İ" * 300_000,
    "\u202e\x1b[2J\x00" * 50_000,
    "\ud800" * 1_000,
    "i " * 100_000,
    "i can not " * 40_000,
)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_text_costs_no_more_than_another(text: str) -> None:
    best = 1.0
    for _ in range(5):
        began = time.thread_time()
        values = traits_of(text, REFERENCE)
        best = min(best, time.thread_time() - began)
    assert all(0 <= value <= len(text) for value in values.values())
    assert best < 5e-3


# --- correlations -----------------------------------------------------------------------------


def row(*values: float) -> tuple[float, ...]:
    """The first traits of an answer; the others are 0."""
    return (*values, *[0.0] * (len(TRAITS) - len(values)))


def fed(watch: HackingMonitor, groups: int, sign: float, noise: float = 0.1, seed: int = 1) -> None:
    rng = random.Random(seed)
    for number in range(groups):
        sizes = [rng.uniform(10, 100) * (1 + number % 7) for _ in range(4)]
        mean = sum(sizes) / 4
        rewards = [sign * (siz - mean) / mean + rng.gauss(0, noise) for siz in sizes]
        watch.take(f"g{number}", rewards, [row(size, rng.random()) for size in sizes])


def figures(watch: HackingMonitor) -> dict[str, tuple[float | None, int, bool]]:
    return {figure.trait: (figure.r, figure.n, figure.alert) for figure in watch.figures()}


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_reward_that_follows_length_is_found_with_evidence(sign: float) -> None:
    watch = HackingMonitor()
    fed(watch, 40, sign)
    result = {figure.trait: figure for figure in watch.figures()}
    length = result["length"]
    assert length.alert
    assert sign * length.r > 0.8
    assert length.low < length.r < length.high
    assert length.n == 160
    assert len(length.groups) == 3
    assert set(length.groups) <= {f"g{number}" for number in range(40)}
    assert not result["repetition"].alert
    assert result["refusal"].r is None  # it never varied: no figure is made up


def test_no_alert_is_raised_before_thirty_answers() -> None:
    watch = HackingMonitor()
    fed(watch, MIN_ANSWERS // 4, 1.0)
    assert figures(watch)["length"][1:] == (28, False)
    fed(watch, 1, 1.0)
    assert figures(watch)["length"][1:] == (32, True)


def test_dead_groups_do_not_count() -> None:
    watch = HackingMonitor()
    for number in range(50):
        watch.take(f"g{number}", [0.5, 0.5], [row(1.0), row(2.0)])
    watch.take("one", [1.0], [row(1.0)])
    assert watch.groups == 0


@pytest.mark.slow
def test_noise_alone_raises_no_alert() -> None:
    for seed in range(30):
        watch = HackingMonitor()
        for _ in range(30):
            fed(watch, 4, 0.0, noise=1.0, seed=seed)
            assert not any(figure.alert for figure in watch.figures())
            seed += 1000


def test_an_alert_has_hysteresis_and_ends_when_it_falls() -> None:
    watch = HackingMonitor(window=100)
    fed(watch, 40, 1.0)
    assert figures(watch)["length"][2]
    stored = []
    for seed in range(100):
        fed(watch, 2, 0.0, noise=1.0, seed=seed + 7)
        r, _, alert = figures(watch)["length"]
        assert r is not None
        assert alert or r < 0.5
        stored.append((r, alert))
    assert any(0.35 < r < 0.5 and alert for r, alert in stored)
    assert not stored[-1][1]


def test_the_window_is_bounded() -> None:
    watch = HackingMonitor()
    fed(watch, WINDOW + 37, 0.3)
    assert watch.groups == WINDOW


def test_a_group_of_long_answers_has_no_more_weight_than_another() -> None:
    watch = HackingMonitor()
    fed(watch, 40, 0.0, noise=1.0)
    before = figures(watch)["length"][0]
    giants = [row(1e9), row(1.0, 0.1), row(2.0, 0.2), row(3.0)]
    watch.take("giant", [1e8, 0.0, 0.0, 0.0], giants)
    after = figures(watch)["length"][0]
    assert abs(after - before) < 0.05


def test_the_interval_is_fishers() -> None:
    low, high = interval(0.5, 43, 10)  # 31 degrees: 1.96 / sqrt(31) around atanh(0.5)
    assert (round(low, 3), round(high, 3)) == (0.195, 0.717)
    assert interval(1.0, 4, 2) == (-1.0, 1.0)


# --- values -----------------------------------------------------------------------------------


def some(values: RewardDistribution, groups: int, low: float = 0.3, high: float = 0.7) -> None:
    rng = random.Random(3)
    for number in range(groups):
        values.take(f"g{number}", [(index, rng.uniform(low, high)) for index in range(4)])


@pytest.mark.parametrize(
    ("before", "equal", "rewards", "outlier"),
    [
        (20, 0, [0.5, 12.0], 1),
        (10, 50, [0.5, 12.0], 1),  # groups of equal rewards hide nothing
        (7, 0, [500.0], None),  # the first rewards are no outliers
        (20, 0, [0.5, 0.51, 0.52, 0.69], None),
        (20, 0, [0.2, 0.2, 0.2, 0.85], 3),  # far from its siblings
    ],
)
def test_a_reward_far_from_the_run_or_its_siblings_is_an_outlier(
    before: int, equal: int, rewards: list[float], outlier: int | None
) -> None:
    values = RewardDistribution()
    some(values, before)
    for number in range(equal):
        values.take(f"e{number}", [(index, 0.5) for index in range(4)])
    assert not values.outliers
    assert values.take("last", list(enumerate(rewards))) == (outlier is not None)
    if outlier is not None:
        group_id, index, reward, z = values.outliers[-1]
        assert (group_id, index, reward) == ("last", outlier, rewards[outlier])
        assert z > 50 or reward < 1.0


def test_an_ordinary_bad_answer_is_not_an_outlier() -> None:
    """As the built-in rewards give: most answers 0.6 to 1, here and there one near 0."""
    values = RewardDistribution()
    rng = random.Random(3)
    for number in range(40):
        least = rng.uniform(0.0, 0.3) if number % 8 == 0 else rng.uniform(0.6, 1.0)
        values.take(f"g{number}", [(0, least), *((k, rng.uniform(0.85, 0.95)) for k in (1, 2, 3))])
    assert not values.take("bad", [(0, 0.86), (1, 0.89), (2, 0.12), (3, 0.88)])
    assert values.take("odd", [(0, 0.86), (1, 0.89), (2, -1.5), (3, 0.88)])
    assert values.take("again", [(0, 0.86), (1, 0.89), (2, -1.5), (3, 0.88)])
    assert [outlier[0] for outlier in values.outliers if outlier[0] in ("bad", "odd", "again")] == [
        "odd",
        "again",
    ]


def test_the_first_signal_after_groups_of_equal_rewards_is_no_outlier() -> None:
    values = RewardDistribution()
    for number in range(50):
        values.take(f"g{number}", [(index, 0.0) for index in range(4)])
    assert not values.take("first", [(0, 0.0), (1, 1.0), (2, 0.0), (3, 0.0)])
    for number in range(40):  # right answers are rare, and no mistake
        right = 1.0 if number % 4 == 0 else 0.0
        values.take(f"r{number}", [(0, 0.0), (1, right), (2, 0.0), (3, 0.0)])
    assert not values.outliers


def scale_words(values: RewardDistribution) -> str:
    alert = values.trouble()
    return cause_of(alert_raised("rewards:scale", alert))


def test_an_unexpected_scale_is_reported() -> None:
    values = RewardDistribution()
    some(values, 20)
    assert values.trouble() is None
    assert values.mean == pytest.approx(0.5, abs=0.05)
    some(values, 10, -3, 12)
    assert "from -2" in scale_words(values)
    narrow = RewardDistribution()
    some(narrow, 10, 0.70, 0.715)
    assert "hardly tell answers apart" in scale_words(narrow)


def test_values_are_of_the_newest_groups() -> None:
    values = RewardDistribution()
    some(values, 1_030)
    assert values.count == 800
    assert values.mean == pytest.approx(0.5, abs=0.02)
    assert values.std == pytest.approx(0.4 / 12**0.5, abs=0.02)


# --- signal -----------------------------------------------------------------------------------


def test_steps_without_a_signal_are_reported_until_a_signal_returns() -> None:
    watch = SignalMonitor()

    def lacks_signal(server: str) -> bool:
        return watch.alert(server)[0] is not None

    for step in (1, 2):
        for _ in range(10):
            watch.take("s", step, dead=True)
    assert not lacks_signal("s")  # two steps may be bad luck
    for number in range(10):
        watch.take("s", 3, dead=number > 0)
    assert lacks_signal("s")
    alert, _ = watch.alert("s")
    cause = cause_of(alert_raised("dead:s", alert))
    assert cause.startswith("29 of the 30 groups of the last 3 global steps")
    for number in range(10):
        watch.take("s", 4, dead=number > 2)
    assert lacks_signal("s")  # 26 of 30: it needs more to be over
    for number in range(10):
        watch.take("s", 5, dead=number > 4)
    assert not lacks_signal("s")
    for _ in range(3):
        watch.take("other", 1, dead=True)
    assert not lacks_signal("other")
