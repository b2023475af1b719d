"""The monitor on the built-in rewards: they raise no alert by themselves."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from core.bus import Bus
from core.events import Part, RewardPart
from core.journal.writer import Journal
from core.state import Candidate, Group, Rewards, State
from proxy.rewards.model.file import default_model
from proxy.rewards.monitor.watcher import RewardMonitor
from proxy.rewards.source import Answer, GroupContext
from tests.support.proxy.builtin_rewards import score_group

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
    candidates = [
        Candidate(
            index=score.index,
            text=value,
            reward=score.reward,
            phase="ended",
            parts=tuple(Part(one.name, one.value, one.weight, one.gate) for one in score.parts),
        )
        for value, score in zip(texts, score_group(context), strict=True)
    ]
    return Group(
        group_id=f"g{number}",
        request_id="r",
        server="s",
        task_id="t",
        n=len(texts),
        query=query,
        opened_at=0.0,
        sealed_at=1.0,
        candidates=candidates,
    )


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
    answers: Callable[[int, random.Random], Group], tmp_path: Path
) -> None:
    journal = Journal(tmp_path / "j.db")
    state = State()
    state.rewards = Rewards(
        parts=tuple(
            RewardPart(name=one.name, kind=one.kind, gate=one.gate) for one in default_model().parts
        )
    )
    rng = random.Random(7)
    monitor = RewardMonitor(Bus(journal, "run", state))
    try:
        for number in range(100):
            monitor.take(answers(number, rng))
            monitor.report()
            assert "hacking:length" not in state.alerts
    finally:
        journal.close()


@pytest.mark.parametrize(("kind", "alert"), [("reference", False), ("hook", True)])
async def test_the_first_wrong_answer_is_no_outlier_where_a_rule_scores(
    kind: str, alert: bool, tmp_path: Path
) -> None:
    """After right answers alone; of a hook it may be a mistake of its own."""
    texts = ("7.", "It is 7.", "That makes 7.", "3 + 4 is 7.")
    journal = Journal(tmp_path / "j.db")
    state = State()
    state.rewards = Rewards(
        parts=(RewardPart(name="reference", kind=kind), RewardPart(name="length", kind="length"))
    )
    monitor = RewardMonitor(Bus(journal, "run", state))
    try:
        for number in range(20):
            result = (*texts[:3], "It is 6.") if number == 15 else texts
            monitor.take(scored(number, "What is 3 + 4?", result))
            monitor.report()
        assert ("rewards:outlier" in state.alerts) == alert
    finally:
        journal.close()
