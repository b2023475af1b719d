"""The monitor of sealed rewards: correlations, outliers, and its cost."""

import asyncio
import random
from pathlib import Path

import pytest

from ajet_swarm.common.tasks import Tasks
from core.bus import Bus
from core.events import (
    AlertRaised,
    Event,
    GroupSealed,
    Part,
    RewardPart,
    RewardsWatched,
    SentReward,
)
from core.journal.writer import Journal
from core.state import Candidate, Group, Rewards, State
from proxy.alerts import alert_raised, dismiss_alert
from proxy.rewards.monitor import watcher
from proxy.rewards.monitor.hacking import MIN_ANSWERS, TRAITS, WINDOW, HackingMonitor, interval
from proxy.rewards.monitor.outliers import RewardDistribution, SignalMonitor
from proxy.rewards.monitor.watcher import RewardMonitor
from tests.support.alerts import cause_of, todo_of

WORDS = [f"word{number}" for number in range(400)]
RANDOM = random.Random(5)


def text(count: int, rng: random.Random = RANDOM) -> str:
    return " ".join(rng.choices(WORDS, k=count)) + "."


def group(number: int, texts: list[str], rewards: list[float]) -> Group:
    candidates = [
        Candidate(index=index, text=value, reward=reward, phase="ended")
        for index, (value, reward) in enumerate(zip(texts, rewards, strict=True))
    ]
    return Group(
        group_id=f"g{number}",
        request_id="r",
        server="s",
        task_id="t",
        n=len(texts),
        query="q",
        opened_at=0.0,
        sealed_at=1.0,
        candidates=candidates,
    )


# --- correlations -----------------------------------------------------------------------------


def row(*values: float) -> tuple[float, ...]:
    """The first traits of an answer; the others are 0."""
    return (*values, *[0.0] * (len(TRAITS) - len(values)))


def fed(watch: HackingMonitor, groups: int, sign: float, noise: float = 0.1, seed: int = 1) -> None:
    rng = random.Random(seed)
    for number in range(groups):
        sizes = [rng.uniform(10, 100) * (1 + number % 7) for _ in range(4)]
        mean = sum(sizes) / 4
        rewards = [sign * (one - mean) / mean + rng.gauss(0, noise) for one in sizes]
        watch.take(f"g{number}", rewards, [row(size, rng.random()) for size in sizes])


def figures(watch: HackingMonitor) -> dict[str, tuple[float | None, int, bool]]:
    return {one.trait: (one.r, one.n, one.alert) for one in watch.figures()}


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_reward_that_follows_length_is_found_with_evidence(sign: float) -> None:
    watch = HackingMonitor()
    fed(watch, 40, sign)
    result = {one.trait: one for one in watch.figures()}
    length = result["length"]
    assert length.alert
    assert length.r is not None
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
            assert not any(one.alert for one in watch.figures())
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
    assert before is not None
    assert after is not None
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


def test_a_reward_far_from_the_run_is_an_outlier() -> None:
    values = RewardDistribution()
    some(values, 20)
    assert not values.outliers
    assert values.take("far", [(0, 0.5), (1, 12.0)])
    group_id, index, reward, z = values.outliers[-1]
    assert (group_id, index, reward) == ("far", 1, 12.0)
    assert z > 50


def test_a_reward_far_from_its_siblings_is_an_outlier() -> None:
    values = RewardDistribution()
    some(values, 20)
    assert not values.take("near", [(0, 0.5), (1, 0.51), (2, 0.52), (3, 0.69)])
    assert values.take("lone", [(0, 0.2), (1, 0.2), (2, 0.2), (3, 0.85)])
    assert values.outliers[-1][:2] == ("lone", 3)


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
    assert [one[0] for one in values.outliers if one[0] in ("bad", "odd", "again")] == [
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


def test_an_outlier_is_detected_among_groups_of_equal_rewards() -> None:
    values = RewardDistribution()
    some(values, 10)
    for number in range(50):
        values.take(f"g{number}", [(index, 0.5) for index in range(4)])
    assert values.take("far", [(0, 0.5), (1, 12.0)])
    assert 50 < values.outliers[-1][3] < 200


def test_the_first_rewards_are_no_outliers() -> None:
    values = RewardDistribution()
    some(values, 7)
    assert not values.take("far", [(0, 500.0)])


def scale_words(values: RewardDistribution) -> str:
    alert = values.trouble()
    assert alert is not None
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
    assert alert is not None
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


# --- the monitor --------------------------------------------------------------------------------


class StateBus:
    """A bus of which only the state is used."""

    def __init__(self, state: State) -> None:
        self.state = state

    def listen(self, *_: object) -> None: ...


@pytest.mark.slow
async def test_alerts_and_figures_are_published_and_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "EVERY", 0.01)
    monkeypatch.setattr(watcher, "TEXTS_READ", 1_000)
    journal = Journal(tmp_path / "j.db")
    state = State()
    for number in range(20):
        texts = [text(5), text(20), text(40), text(80)]
        state.groups[f"g{number}"] = group(number, texts, [0.1, 0.2, 0.4, 0.8])
    bus = Bus(journal, "run", state)
    events: list[Event] = []
    bus.listen(lambda event, _: events.append(event))
    try:
        async with Tasks("t") as tasks:
            tasks.spawn(RewardMonitor(bus).run(), "watch")
            await until(lambda: "hacking:length" in bus.state.alerts)
            alert = bus.state.alerts["hacking:length"]
            assert cause_of(alert).startswith("rewards follow length: r +1.00")
            assert "over 80 answers" in cause_of(alert)
            assert "Look at g" in todo_of(alert)
            figure = next(one for one in bus.state.reward_watch.figures if one.trait == "length")
            assert figure.alert
            assert bus.state.reward_watch.groups == 20
            dismiss_alert(bus, "hacking:length")
            for number in range(20, 420):
                texts = [text(20) for _ in range(4)]
                rewards = [RANDOM.random() for _ in range(4)]
                bus.state.groups[f"g{number}"] = group(number, texts, rewards)
                bus.publish(sealed(f"g{number}", rewards))
            await until(lambda: not bus.state.reward_watch.figures[0].alert)
            raised = [one for one in events if isinstance(one, AlertRaised) and "length" in one.key]
            assert len(raised) == 1
            assert any(isinstance(one, RewardsWatched) for one in events)
            for number in range(420, 440):
                rewards = [0.0, 0.5, 1.0, 40.0 if number == 439 else 0.2]
                bus.state.groups[f"g{number}"] = group(number, texts, rewards)
                bus.publish(sealed(f"g{number}", rewards))
            await until(lambda: "rewards:scale" in bus.state.alerts)
            assert "to 40" in cause_of(bus.state.alerts["rewards:scale"])
            assert "weights sum to 1" in todo_of(bus.state.alerts["rewards:scale"])
            assert "candidate 4 in group g439" in cause_of(bus.state.alerts["rewards:outlier"])
    finally:
        journal.close()


def lengthy(number: int, others: list[float]) -> Group:
    """A group whose length part gives more to longer answers, and another part something else."""
    made = group(number, [text(5), text(20), text(40), text(80)], [0.0] * 4)
    made.step = number // 8
    for one, long, other in zip(made.candidates, (0.1, 0.4, 0.7, 1.0), others, strict=True):
        one.parts = (Part("words", long, 0.8), Part("taste", other, 0.2))
        one.reward = 0.8 * long + 0.2 * other
    return made


@pytest.mark.parametrize(("follows", "result"), [(False, False), (True, True)])
async def test_the_length_that_a_part_rewards_is_no_alert(
    follows: bool, result: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "TEXTS_READ", 1_000)
    journal = Journal(tmp_path / "j.db")
    state = State()
    parts = (RewardPart(name="words", kind="length"), RewardPart(name="taste", kind="hook"))
    state.rewards = Rewards(parts=parts)
    rng = random.Random(4)
    for number in range(30):
        others = [0.1, 0.2, 0.3, 0.4] if follows else [rng.random() for _ in range(4)]
        state.groups[f"g{number}"] = lengthy(number, others)
    bus = Bus(journal, "run", state)
    try:
        async with Tasks("t") as tasks:
            tasks.spawn(RewardMonitor(bus).run(), "watch")
            await until(lambda: bus.state.reward_watch.groups == 30)
            await until(lambda: ("hacking:length" in bus.state.alerts) == result)
            if result:
                cause = cause_of(bus.state.alerts["hacking:length"])
                assert "follow length, without what the part `words` gives: r +0.9" in cause
    finally:
        journal.close()


async def test_an_alert_has_the_present_figures_and_groups(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    state = State()
    bus = Bus(journal, "run", state)
    monitor = RewardMonitor(bus)
    try:
        for number in range(20):
            one = group(number, ["a", "b"], [0.5, 0.5])
            one.step = number // 5
            monitor.take(one)
            monitor.report()
        first = state.alerts["dead:s"]
        since = state.alerts_since["dead:s"]
        assert "15 of the 15 groups" in cause_of(first)
        assert first.groups == tuple(f"g{number}" for number in range(5, 20))
        one = group(20, ["a", "b"], [0.5, 0.5])
        one.step = 3
        monitor.take(one)
        monitor.report()
        assert "16 of the 16 groups" in cause_of(state.alerts["dead:s"])
        assert state.alerts["dead:s"].groups[-1] == "g20"
        assert state.alerts_since["dead:s"] == since
    finally:
        journal.close()


async def test_a_lack_of_signal_raises_an_alert_on_its_server(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    state = State()
    for number in range(24):
        state.groups[f"g{number}"] = one = group(number, ["a", "b"], [0.5, 0.5])
        one.step = number // 8
    bus = Bus(journal, "run", state)
    try:
        async with Tasks("t") as tasks:
            tasks.spawn(RewardMonitor(bus).run(), "watch")
            await until(lambda: "dead:s" in bus.state.alerts)
            assert "24 of the 24 groups" in cause_of(bus.state.alerts["dead:s"])
    finally:
        journal.close()


def sealed(group_id: str, rewards: list[float]) -> GroupSealed:
    sent = tuple(
        SentReward(index=index, episode_uuid=f"e{index}", reward=reward, advantage=0.0)
        for index, reward in enumerate(rewards)
    )
    return GroupSealed(group_id=group_id, rewards=sent, best=0, source="auto")


async def until(test: object, seconds: float = 60.0) -> None:
    assert callable(test)
    async with asyncio.timeout(seconds):
        while not test():
            await asyncio.sleep(0.005)


async def test_under_load_every_reward_is_seen_and_texts_of_some(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    state = State()
    for number in range(200):
        far = 50.0 if number == 171 else 0.2
        state.groups[f"g{number}"] = group(number, ["a b", "c d e", "f"], [0.1, 0.3, far])
    bus = Bus(journal, "run", state)
    try:
        async with Tasks("t") as tasks:
            tasks.spawn(RewardMonitor(bus).run(), "watch")
            await until(lambda: bus.state.reward_watch.groups > 0)
            assert bus.state.reward_watch.groups == watcher.TEXTS_READ
            assert bus.state.reward_watch.high == 50.0
            assert "group g171" in cause_of(bus.state.alerts["rewards:outlier"])
    finally:
        journal.close()


async def test_a_group_that_cannot_be_examined_does_not_stop_the_monitor(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    state = State()
    state.groups["odd"] = group(1, ["a", "b"], [0.1, 0.2])
    state.groups["odd"].candidates[0].text = None  # type: ignore[assignment]  # a defect
    state.groups["good"] = group(2, ["a b c", "d"], [0.1, 0.2])
    state.groups["good"].group_id = "good"
    bus = Bus(journal, "run", state)
    try:
        async with Tasks("t") as tasks:
            tasks.spawn(RewardMonitor(bus).run(), "watch")
            await until(lambda: bus.state.reward_watch.groups == 1)
    finally:
        journal.close()


async def test_rewards_of_a_person_are_not_counted(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    bus = Bus(journal, "run", State())
    try:
        monitor = RewardMonitor(bus)
        voted = group(1, ["a b c", "d e f"], [1.0, 0.0])
        voted.source = "human"
        monitor.take(voted)
        monitor.take(group(2, ["a b c", "d e f"], [0.2, 0.4]))
        monitor.report()
        assert (bus.state.reward_watch.low, bus.state.reward_watch.high) == (0.2, 0.4)
    finally:
        journal.close()


COPIED = "Water boils at a lower temperature on a mountain because the air is thinner there."


@pytest.mark.parametrize(
    ("trait", "texts", "kind"),
    [
        ("repetition", ("so it goes so it goes so it goes", "it goes well for all of us"), ""),
        ("refusal", ("Sorry, I can not help.", "It is a river in Peru."), ""),
        ("reference", (COPIED, "It depends on how high the mountain is."), ""),
        ("reference", (COPIED, "It depends on how high the mountain is."), "reference"),
    ],
)
async def test_each_trait_that_pays_raises_its_alert(
    trait: str, texts: tuple[str, str], kind: str, tmp_path: Path
) -> None:
    """Unless a part that rewards it by its nature gives the whole reward."""
    journal = Journal(tmp_path / "j.db")
    bus = Bus(journal, "run", State())
    if kind:
        bus.state.rewards = Rewards(parts=(RewardPart(name="right", kind=kind),))
    try:
        monitor = RewardMonitor(bus)
        for number in range(20):
            some = group(number, [*texts, *texts], [0.9, 0.2, 0.8, 0.1])
            some.reference = COPIED
            for candidate in some.candidates:
                assert candidate.reward is not None
                candidate.parts = (Part("right", candidate.reward, 1.0),)
            monitor.take(some)
        monitor.report()
        assert (f"hacking:{trait}" in bus.state.alerts) == (not kind)
    finally:
        journal.close()
