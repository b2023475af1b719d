"""The word that the rewards follow."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from core.bus import Bus
from core.events import RewardPart
from core.journal.writer import Journal
from core.state import Candidate, Group, Rewards, State
from proxy.rewards.monitor.keywords import MIN_GROUPS, KeywordMonitor
from proxy.rewards.monitor.watcher import RewardMonitor
from tests.support.alerts import cause_of, todo_of

WORDS = [f"word{number}" for number in range(60)]


def feed(
    monitor: KeywordMonitor,
    groups: int,
    reward: Callable[[set[str], random.Random], float],
    seed: int = 1,
    known: tuple[str, ...] = (),
) -> None:
    rng = random.Random(seed)
    for number in range(groups):
        words = [set(rng.sample(WORDS, 12)) | ({"magic"} if at % 2 else set()) for at in range(4)]
        rewards = [reward(one, rng) for one in words]
        monitor.take(f"g{number}", rewards, words, known)


def pays_magic(words: set[str], rng: random.Random) -> float:
    return float("magic" in words) + rng.gauss(0, 0.1)


def honest(words: set[str], rng: random.Random) -> float:
    return rng.random()


def test_a_word_that_is_paid_is_found_with_evidence() -> None:
    monitor = KeywordMonitor()
    feed(monitor, 20, pays_magic)
    figure = monitor.figure()
    assert (figure.trait, figure.word, figure.alert, figure.n) == ("keyword", "magic", True, 80)
    assert figure.r is not None
    assert figure.low < figure.r < figure.high
    assert figure.r > 0.9
    assert len(set(figure.groups)) == 3


def test_no_alert_before_enough_groups() -> None:
    monitor = KeywordMonitor()
    feed(monitor, MIN_GROUPS - 1, pays_magic)
    assert monitor.figure().word == ""
    assert monitor.figure().r is None
    feed(monitor, 1, pays_magic, seed=2)
    assert monitor.figure().word == "magic"


def test_a_word_that_lowers_the_reward_is_no_keyword() -> None:
    monitor = KeywordMonitor()
    feed(monitor, 60, lambda words, rng: -pays_magic(words, rng))
    assert monitor.figure().word == ""


@pytest.mark.slow
def test_noise_alone_finds_no_word() -> None:
    for seed in range(20):
        monitor = KeywordMonitor()
        for part in range(10):
            feed(monitor, 10, honest, seed=100 * seed + part)
            assert not monitor.figure().alert


def test_words_of_the_query_and_of_the_reference_do_not_count() -> None:
    monitor = KeywordMonitor()
    feed(monitor, 40, pays_magic, known=("magic", "absent"))
    assert monitor.figure().word == ""


def test_a_word_that_other_parts_do_not_pay_does_not_count() -> None:
    monitor, rng = KeywordMonitor(), random.Random(2)
    for number in range(60):
        words = [{"magic", "a"}, {"a"}, {"a", "magic"}, {"a"}]
        monitor.take(f"g{number}", [1.0, 0.0, 1.0, 0.0], words, (), [rng.random() for _ in words])
    assert monitor.figure().word == ""
    monitor.take("equal", [1.0, 0.0], [{"magic"}, {"a"}], (), [0.5, 0.5])


def test_the_alert_ends_when_the_word_is_paid_no_longer() -> None:
    monitor = KeywordMonitor(window=40)
    feed(monitor, 30, pays_magic)
    assert monitor.figure().word == "magic"
    feed(monitor, 40, honest, seed=3)
    assert monitor.figure().word == ""


def test_a_word_without_end_is_not_named() -> None:
    monitor, rng = KeywordMonitor(), random.Random(3)
    endless = "x" * 1_000
    for number in range(30):
        rewards = [at % 2 + rng.gauss(0, 0.1) for at in range(4)]
        monitor.take(
            f"g{number}", rewards, [{"a", endless} if at % 2 else {"a"} for at in range(4)]
        )
    assert monitor.figure().word == ""


@pytest.mark.slow
def test_memory_is_bounded() -> None:
    monitor = KeywordMonitor(window=40)
    for number in range(500):
        words = [{f"n{number}-{at}-{word}" for word in range(80)} for at in range(4)]
        monitor.take(f"g{number}", [0.1, 0.2, 0.3, 0.4], words)
        if number < 300:
            monitor.count()
    assert len(monitor._pending) == 40, "the oldest groups that nobody counted are dropped"
    monitor.count()
    assert len(monitor._rows) == 40
    assert len(monitor._newer) + len(monitor._older) <= 40 * 4 * 80


def group(number: int, rng: random.Random, reference: str | None, word: str) -> Group:
    texts = [" ".join(rng.sample(WORDS, 12)) + (f" {word}!" if at % 2 else ".") for at in range(4)]
    return Group(
        group_id=f"g{number}",
        request_id="r",
        server="s",
        task_id="t",
        n=4,
        query="What is it?",
        reference=reference,
        opened_at=0.0,
        sealed_at=1.0,
        candidates=[
            Candidate(index=at, text=text, reward=at % 2 + rng.gauss(0, 0.1), phase="ended")
            for at, text in enumerate(texts)
        ],
    )


async def test_the_monitor_raises_an_alert_that_names_the_word(tmp_path: Path) -> None:
    journal, rng = Journal(tmp_path / "j.db"), random.Random(5)
    bus = Bus(journal, "run", State())
    monitor = RewardMonitor(bus)
    try:
        for number in range(20):
            monitor.take(group(number, rng, None, "lovely"))
        monitor.report()
        alert = bus.state.alerts["hacking:keyword"]
        assert cause_of(alert).startswith("rewards follow the word `lovely`: r +0.9")
        assert "just one with `lovely`?" in todo_of(alert)
        figure = next(one for one in bus.state.reward_watch.figures if one.trait == "keyword")
        assert figure.word == "lovely"
    finally:
        journal.close()


async def test_a_copied_reference_is_an_alert_unless_a_part_pays_agreement(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    copied = "a stone that falls into deep water makes rings on it"
    try:
        for parts, alert in (((), True), ((RewardPart(name="right", kind="reference"),), False)):
            bus = Bus(journal, "run", State(rewards=Rewards(parts=parts)))
            monitor, rng = RewardMonitor(bus), random.Random(6)
            for number in range(20):
                monitor.take(group(number, rng, copied, copied))
            monitor.report()
            assert ("hacking:reference" in bus.state.alerts) == alert
            assert "hacking:keyword" not in bus.state.alerts  # words of the reference
    finally:
        journal.close()
