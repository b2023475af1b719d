"""The monitor of sealed rewards and of groups that get none."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from ajet_swarm.common.tasks import Tasks
from core.bus import Bus
from core.events import (
    AlertRaised,
    CandidateScore,
    Event,
    GroupClosed,
    GroupOpened,
    GroupScored,
    GroupSealed,
    Part,
    RatingAwaited,
    RewardPart,
    RewardsChanged,
    RewardsWatched,
    ScoringAbstained,
    SentReward,
)
from core.state import Candidate, Group, Rewards
from proxy.alerts import dismiss_alert
from proxy.rewards.model.file import default_model
from proxy.rewards.monitor import unscored, watcher
from proxy.rewards.monitor.unscored import KEY, UnscoredMonitor
from proxy.rewards.monitor.watcher import RewardMonitor
from proxy.rewards.source import Answer, GroupContext
from tests.support.alerts import cause_of, todo_of
from tests.support.proxy.builtin_rewards import score_group
from tests.support.proxy.until import until

WORDS = [f"word{number}" for number in range(400)]


RANDOM = random.Random(5)


@contextlib.asynccontextmanager
async def running(monitor: RewardMonitor) -> AsyncIterator[None]:
    async with Tasks("t") as tasks:
        tasks.spawn(monitor.run(), "watch")
        yield


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


# --- the monitor --------------------------------------------------------------------------------


@pytest.fixture
def monitor(bus: Bus) -> RewardMonitor:
    return RewardMonitor(bus)


@pytest.mark.slow
async def test_alerts_and_figures_are_published_and_cleared(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "EVERY", 0.01)
    monkeypatch.setattr(watcher, "TEXTS_READ", 1_000)
    state = bus.state
    for number in range(20):
        texts = [text(5), text(20), text(40), text(80)]
        state.groups[f"g{number}"] = group(number, texts, [0.1, 0.2, 0.4, 0.8])
    events: list[Event] = []
    bus.listen(lambda event, _: events.append(event))
    async with running(RewardMonitor(bus)):
        await until(lambda: "hacking:length" in bus.state.alerts)
        alert = bus.state.alerts["hacking:length"]
        assert cause_of(alert).startswith("rewards follow length: r +1.00")
        assert "over 80 answers" in cause_of(alert)
        assert "Look at g" in todo_of(alert)
        figure = next(
            figure for figure in bus.state.reward_watch.figures if figure.trait == "length"
        )
        assert figure.alert
        assert bus.state.reward_watch.groups == 20
        dismiss_alert(bus, "hacking:length")
        for number in range(20, 420):
            texts = [text(20) for _ in range(4)]
            rewards = [RANDOM.random() for _ in range(4)]
            bus.state.groups[f"g{number}"] = group(number, texts, rewards)
            bus.publish(sealed(f"g{number}", rewards))
        await until(lambda: not bus.state.reward_watch.figures[0].alert)
        raised = [
            event for event in events if isinstance(event, AlertRaised) and "length" in event.key
        ]
        assert len(raised) == 1
        assert any(isinstance(event, RewardsWatched) for event in events)
        for number in range(420, 440):
            rewards = [0.0, 0.5, 1.0, 40.0 if number == 439 else 0.2]
            bus.state.groups[f"g{number}"] = group(number, texts, rewards)
            bus.publish(sealed(f"g{number}", rewards))
        await until(lambda: "rewards:scale" in bus.state.alerts)
        assert "to 40" in cause_of(bus.state.alerts["rewards:scale"])
        assert "weights sum to 1" in todo_of(bus.state.alerts["rewards:scale"])
        assert "candidate 4 in group g439" in cause_of(bus.state.alerts["rewards:outlier"])


def lengthy(number: int, others: list[float]) -> Group:
    """A group whose length part gives more to longer answers, and another part something else."""
    made = group(number, [text(5), text(20), text(40), text(80)], [0.0] * 4)
    made.step = number // 8
    for candidate, long, other in zip(made.candidates, (0.1, 0.4, 0.7, 1.0), others, strict=True):
        candidate.parts = (Part("words", long, 0.8), Part("taste", other, 0.2))
        candidate.reward = 0.8 * long + 0.2 * other
    return made


@pytest.mark.parametrize(("follows", "result"), [(False, False), (True, True)])
async def test_the_length_that_a_part_rewards_is_no_alert(
    follows: bool, result: bool, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "TEXTS_READ", 1_000)
    state = bus.state
    parts = (RewardPart(name="words", kind="length"), RewardPart(name="taste", kind="hook"))
    state.rewards = Rewards(parts=parts)
    rng = random.Random(4)
    for number in range(30):
        others = [0.1, 0.2, 0.3, 0.4] if follows else [rng.random() for _ in range(4)]
        state.groups[f"g{number}"] = lengthy(number, others)
    async with running(RewardMonitor(bus)):
        await until(lambda: bus.state.reward_watch.groups == 30)
        await until(lambda: ("hacking:length" in bus.state.alerts) == result)
        if result:
            cause = cause_of(bus.state.alerts["hacking:length"])
            assert "follow length, without what the part `words` gives: r +0.9" in cause


async def test_an_alert_has_the_present_figures_and_groups(bus: Bus) -> None:
    state = bus.state
    monitor = RewardMonitor(bus)
    for number in range(20):
        one = group(number, ["a", "b"], [0.5, 0.5])
        one.step = number // 5
        monitor.take(one)
        monitor.report()
    first, since = state.alerts["dead:s"], state.alerts_since["dead:s"]
    assert "15 of the 15 groups" in cause_of(first)
    assert first.groups == tuple(f"g{number}" for number in range(5, 20))
    one = group(20, ["a", "b"], [0.5, 0.5])
    one.step = 3
    monitor.take(one)
    monitor.report()
    assert "16 of the 16 groups" in cause_of(state.alerts["dead:s"])
    assert state.alerts["dead:s"].groups[-1] == "g20"
    assert state.alerts_since["dead:s"] == since


async def test_a_lack_of_signal_raises_an_alert_on_its_server(bus: Bus) -> None:
    state = bus.state
    for number in range(24):
        state.groups[f"g{number}"] = one = group(number, ["a", "b"], [0.5, 0.5])
        one.step = number // 8
    async with running(RewardMonitor(bus)):
        await until(lambda: "dead:s" in bus.state.alerts)
        assert "24 of the 24 groups" in cause_of(bus.state.alerts["dead:s"])


def sealed(group_id: str, rewards: list[float]) -> GroupSealed:
    sent = tuple(
        SentReward(index=index, reward=reward, advantage=0.0)
        for index, reward in enumerate(rewards)
    )
    return GroupSealed(group_id=group_id, rewards=sent, best=0, source="auto")


async def test_under_load_every_reward_is_seen_and_texts_of_some(bus: Bus) -> None:
    state = bus.state
    for number in range(200):
        far = 50.0 if number == 171 else 0.2
        state.groups[f"g{number}"] = group(number, ["a b", "c d e", "f"], [0.1, 0.3, far])
    async with running(RewardMonitor(bus)):
        await until(lambda: bus.state.reward_watch.groups > 0)
        assert bus.state.reward_watch.groups == watcher.TEXTS_READ
        assert bus.state.reward_watch.high == 50.0
        assert "group g171" in cause_of(bus.state.alerts["rewards:outlier"])


async def test_a_group_that_cannot_be_examined_does_not_stop_the_monitor(bus: Bus) -> None:
    state = bus.state
    state.groups["odd"] = group(1, ["a", "b"], [0.1, 0.2])
    state.groups["odd"].candidates[0].text = None  # type: ignore[assignment]  # a defect
    state.groups["good"] = group(2, ["a b c", "d"], [0.1, 0.2])
    state.groups["good"].group_id = "good"
    async with running(RewardMonitor(bus)):
        await until(lambda: bus.state.reward_watch.groups == 1)


async def test_rewards_of_a_person_are_not_counted(monitor: RewardMonitor, bus: Bus) -> None:
    voted = group(1, ["a b c", "d e f"], [1.0, 0.0])
    voted.source = "human"
    monitor.take(voted)
    monitor.take(group(2, ["a b c", "d e f"], [0.2, 0.4]))
    monitor.report()
    assert (bus.state.reward_watch.low, bus.state.reward_watch.high) == (0.2, 0.4)


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
    trait: str, texts: tuple[str, str], kind: str, bus: Bus
) -> None:
    """Unless a part that rewards it by its nature gives the whole reward."""
    if kind:
        bus.state.rewards = Rewards(parts=(RewardPart(name="right", kind=kind),))
    monitor = RewardMonitor(bus)
    for number in range(20):
        some = group(number, [*texts, *texts], [0.9, 0.2, 0.8, 0.1])
        some.reference = COPIED
        for candidate in some.candidates:
            candidate.parts = (Part("right", candidate.reward, 1.0),)
        monitor.take(some)
    monitor.report()
    assert (f"hacking:{trait}" in bus.state.alerts) == (not kind)


# --- under load ---------------------------------------------------------------------------------


class Busy(RewardMonitor):
    """While it reads one group, the next one is sealed."""

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.bus = bus
        self.read = 0

    def take(self, group: Group, texts: bool = True) -> None:
        super().take(group, texts)
        self.read += texts
        self.bus.publish(GroupSealed(group_id=group.group_id, rewards=(), best=0, source="auto"))


async def test_the_monitor_reports_while_groups_keep_arriving(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "EVERY", 0.01)
    monkeypatch.setattr(watcher, "TEXTS_READ", 5)
    state, names = bus.state, [f"g{number}" for number in range(12)]
    for name in names:
        state.groups[name] = group(int(name[1:]), [f"{name} 0", f"{name} 1"], [0.1, 0.9])
    monitor = Busy(bus)
    result = asyncio.Event()
    read_then: list[int] = []

    def on_event(event: Event, _: frozenset[str]) -> None:
        read_then.append(monitor.read)
        result.set()

    bus.listen(on_event, RewardsWatched)
    async with asyncio.timeout(20), running(monitor):
        await result.wait()
        first = monitor.read
        await until(lambda: monitor.read != first)  # groups that arrived meanwhile are read next
    assert read_then[0] <= 5


# --- on the built-in rewards --------------------------------------------------------------------

SENTENCES = (
    "It is a question that many people ask.",
    "Light of short waves is scattered more than light of long waves.",
    "You may want to read a book about this.",
    "The answer depends on where you live and on the season.",
    "Most of it was found out a hundred years ago.",
    "Water boils at a lower temperature on a mountain.",
    "Cats sleep for more than half of the day.",
    "There are several reasons, and each of them is simple.",
)


def scored(number: int, query: str, texts: Sequence[str], reference: str | None = None) -> Group:
    """A sealed group with the rewards and parts that the built-in model gives."""
    answers = [
        Answer(at, {"role": "assistant", "content": value}, "stop", f"e{at}", 0.5, {})
        for at, value in enumerate(texts)
    ]
    messages = [{"role": "user", "content": query}]
    context = GroupContext(f"g{number}", "r", "t", query, messages, {}, reference, (*answers,))
    scores = score_group(context)
    sealed_group = group(number, list(texts), [score.reward for score in scores])
    for candidate, score in zip(sealed_group.candidates, scores, strict=True):
        candidate.parts = tuple(
            Part(part.name, part.value, part.weight, part.gate) for part in score.parts
        )
    return sealed_group


def ordinary(number: int, rng: random.Random) -> Group:
    """A group of ordinary answers to a question for an explanation."""
    words = ["colour", "evening", "sky", "weather", "change", "sun", "air", "cloud"]
    texts = []
    for _ in range(4):
        result = rng.sample(SENTENCES, rng.randint(1, 4))
        some = rng.sample(words, rng.randint(1, 2 * len(result)))
        texts.append(" ".join([*result, "Think of the", " and the ".join(some) + "."]))
    return scored(number, "Why does the colour of the evening sky change with the weather?", texts)


def right(number: int, rng: random.Random) -> Group:
    """A group of right answers to a question with a reference, in few words and in many.

    The reference part gives most to the reference alone, and the others to a sentence.
    """
    texts = ["Lima.", "It is Lima.", "I say it is Lima.", "The capital of Peru is Lima."]
    texts[rng.randint(1, 3)] += rng.choice([" Take good care.", " I hope that this helps you."])
    return scored(number, "What is the capital of Peru?", texts, "Lima")


@pytest.mark.slow
@pytest.mark.parametrize("answers", [ordinary, right])
async def test_the_shipped_rewards_raise_no_alert_about_length(
    answers: Callable[[int, random.Random], Group], bus: Bus
) -> None:
    state = bus.state
    state.rewards = Rewards(
        parts=tuple(
            RewardPart(name=part.name, kind=part.kind, gate=part.gate)
            for part in default_model().parts
        )
    )
    rng = random.Random(7)
    monitor = RewardMonitor(bus)
    for number in range(100):
        monitor.take(answers(number, rng))
        monitor.report()
        assert "hacking:length" not in state.alerts


@pytest.mark.parametrize(("kind", "alert"), [("reference", False), ("hook", True)])
async def test_the_first_wrong_answer_is_no_outlier_where_a_rule_scores(
    kind: str, alert: bool, bus: Bus
) -> None:
    """After right answers alone; of a hook it may be a mistake of its own."""
    texts = ("7.", "It is 7.", "That makes 7.", "3 + 4 is 7.")
    state = bus.state
    state.rewards = Rewards(
        parts=(RewardPart(name="reference", kind=kind), RewardPart(name="length", kind="length"))
    )
    monitor = RewardMonitor(bus)
    for number in range(20):
        result = (*texts[:3], "It is 6.") if number == 15 else texts
        monitor.take(scored(number, "What is 3 + 4?", result))
        monitor.report()
    assert ("rewards:outlier" in state.alerts) == alert


NONE = "returned None, expected a list of 4 numbers, one for each answer"


class Watched:
    """A bus with the watch on it."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.watch = UnscoredMonitor(bus, 80.0)

    @property
    def alert(self) -> AlertRaised | None:
        return self.bus.state.alerts.get(KEY)

    def abstain(self, group_id: str, cause: str = NONE, *, late: bool = False) -> None:
        self._open(group_id)
        abstained = ScoringAbstained(group_id=group_id, part="hook", cause=cause, late=late)
        self.bus.publish(abstained)

    def score(self, group_id: str) -> None:
        self._open(group_id)
        scores = (CandidateScore(index=0, reward=0.5),)
        scored = GroupScored(group_id=group_id, scores=scores, best=0, version="v", seconds=0.1)
        self.bus.publish(scored)

    def wait(self, group_id: str) -> None:
        self.bus.publish(
            RatingAwaited(group_id=group_id, until=9e9, fallback="abort", why="abstained")
        )

    def close(self, group_id: str) -> None:
        self.bus.publish(GroupClosed(group_id=group_id, phase="ABORTED", cause="unscored"))

    def _open(self, group_id: str) -> None:
        if group_id not in self.bus.state.groups:
            opened = GroupOpened(
                group_id=group_id, request_id="r", task_id="t", n=4, query="q", body={}
            )
            self.bus.publish(opened)

    async def looked(self) -> None:
        """The watch has seen all events so far."""
        await until(lambda: not self.watch._changed.is_set())


@pytest.fixture
async def watched(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watched]:
    monkeypatch.setattr(unscored, "EVERY", 0.0)
    async with Tasks("t") as tasks:
        made = Watched(bus)
        tasks.spawn(made.watch.run(), "watch")
        await asyncio.sleep(0)
        yield made


async def test_a_hook_that_returns_nothing_raises_an_alert_with_the_remedy(
    watched: Watched,
) -> None:
    watched.score("g1")
    watched.abstain("g2")
    watched.wait("g2")
    await until(lambda: watched.alert)
    alert = watched.alert
    assert cause_of(alert).startswith("1 of the last 2 groups have no automatic reward")
    assert f"hook: {NONE}" in cause_of(alert)
    assert cause_of(alert).endswith("; 1 open group waits for you")
    assert "`S` re-scores, `x` aborts" in todo_of(alert)
    assert alert.level == "error"


async def test_the_alert_about_a_slow_hook_names_the_limit(watched: Watched) -> None:
    for number in range(6):
        watched.abstain(f"g{number}", "the hook did not answer within 80 s", late=True)
        watched.close(f"g{number}")
    await until(lambda: watched.alert and "6 of the last 6" in cause_of(watched.alert))
    assert "raise rewards.time_limit (now 80 s)" in todo_of(watched.alert)


async def test_the_alert_has_present_figures_and_ends_with_its_cause(watched: Watched) -> None:
    watched.abstain("g1")
    watched.wait("g1")
    await until(lambda: watched.alert)
    watched.score("g1")  # it was scored again
    await until(lambda: watched.alert is None)
    watched.abstain("g2")
    watched.close("g2")
    await until(lambda: watched.alert)
    for number in range(3, 13):
        watched.score(f"g{number}")
    await until(lambda: watched.alert is None)


async def test_another_version_clears_the_alert_unless_groups_are_open(watched: Watched) -> None:
    watched.abstain("g1")
    watched.close("g1")
    watched.abstain("g2")
    await until(lambda: watched.alert and "2 of the last 2" in cause_of(watched.alert))
    watched.bus.publish(RewardsChanged(source="h", ok=True, version="v2"))
    await until(lambda: watched.alert and "the last group" in cause_of(watched.alert))
    watched.score("g2")
    await until(lambda: watched.alert is None)


async def test_a_dismissed_alert_stays_hidden_until_its_cause_is_gone(watched: Watched) -> None:
    watched.abstain("g1")
    await until(lambda: watched.alert)
    dismiss_alert(watched.bus, KEY)
    watched.abstain("g2")
    await watched.looked()
    assert watched.alert is None
    watched.score("g1")
    watched.score("g2")
    await watched.looked()
    watched.abstain("g3")
    await until(lambda: watched.alert)


async def test_rewards_that_do_not_load_raise_a_separate_alert(watched: Watched) -> None:
    watched.bus.publish(AlertRaised(key="rewards", cause="the rewards did not load"))
    watched.abstain("g1")
    await watched.looked()
    assert watched.alert is None
