"""Cost of rewards (built-in parts, a hook's round trip, a judge's calls), and their ranking.

`python -m bench.rewards` prints one line a figure. The bars are of two cores with nothing else on
them; the times of processors that are busy elsewhere say little, so the best of many are taken.
"""

import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.bars import Verdicts
from proxy.rewards.model.assembly import Assembly
from proxy.rewards.model.file import parse
from proxy.rewards.model.source import ComposedSource
from proxy.rewards.part import PartEnvironment
from proxy.rewards.select import hook_model
from proxy.rewards.source import Abstention, Answer, GroupContext, SourceHealth
from tests.support.proxy.builtin_rewards import score_group
from tests.support.proxy.reward_corpus import NAMES, measured, prompts
from tests.support.scripted.judge import ScriptedJudge

GROUPS = 200
ROUNDS = 40
CALLS = 400
TEXT = (
    "the quick brown fox jumps over a lazy dog and then it explains to you why rivers flow into "
    "the sea every single day while mountains stand still"
)
WORDS = TEXT.split()
QUERY = "What is the capital of France, and why do rivers flow into the sea?"
ALL = """\
parts:
  repetition: {gate: true}
  finished: {gate: true}
  refusal: {gate: true}
  form: {kind: format, gate: true, must_not: ["As an AI"], not_match: ['^Sure\\b']}
  code: {share: 0.2}
  length: {weight: 0.3, by_query: true}
  relevance: {weight: 0.3}
  diversity: {weight: 0.3, against: both}
  language: {weight: 0.1}
  latency: {weight: 0.1}
  tools: {share: 0.7}
  reference: {share: 0.3}
  exact: {share: 0.3}
  numeric: {share: 0.3}
"""
HOOK = """
async def on_compute_relative_reward(valid_results, all_answers, question=""):
    return [float(len(answer.get("content") or "")) for answer in all_answers]
"""
SAVES = 15
SHORT = 15
"""Number of words of a short answer."""


def group(words: int, reference: str | None = None) -> GroupContext:
    """Return four answers with a number of words."""
    texts = [" ".join(random.choice(WORDS) for _ in range(words)) + "." for _ in range(4)]
    answers = [
        Answer(index, {"role": "assistant", "content": text}, "stop", f"e{index}", 1.0, {})
        for index, text in enumerate(texts)
    ]
    return GroupContext("g", "r", "t", QUERY, [], {}, reference, tuple(answers))


def processor_ms(score: Callable[[GroupContext], object], groups: list[GroupContext]) -> float:
    """Return the milliseconds of CPU for one group, the minimum of many rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.process_time()
        for answered in groups:
            score(answered)
        best = min(best, (time.process_time() - started) / len(groups))
    return best * 1e3


def all_parts(groups: list[GroupContext]) -> float:
    """Return them for a model with a part of every kind that answers at once."""
    assembly = Assembly(parse(ALL, None), Path(), PartEnvironment())
    past = [assembly.part_input(group(40)).readings[0].grams for _ in range(50)]

    def score(answered: GroupContext) -> None:
        scored = assembly.score_now(assembly.part_input(answered, past))
        assert not isinstance(scored, Abstention), scored

    return processor_ms(score, groups)


async def hook_trips(folder: Path) -> list[float]:
    """Return the milliseconds from a group to the rewards of a hook in its process."""
    (folder / "on_compute_relative_reward.py").write_text(HOOK)
    source = ComposedSource(model=hook_model(folder), environment=PartEnvironment(folder))
    await source.start()
    try:
        trips = []
        for number in range(CALLS):
            answered = group(40)
            started = time.perf_counter()
            sheet = await source.score(answered)
            if number >= 20:
                trips.append((time.perf_counter() - started) * 1e3)
            assert sheet.abstention is None, sheet.abstention
        return trips
    finally:
        await source.close()


def _on_health(reloaded: asyncio.Event, health: SourceHealth) -> None:
    reloaded.set()


async def saves(folder: Path) -> list[float]:
    """Return the milliseconds from saving a file until its version is in use."""
    file = folder / "rewards.yaml"
    file.write_text("parts:\n  length: {weight: 1}\n")
    source = ComposedSource(file)
    await source.start()
    durations = []
    try:
        for number in range(SAVES):
            reloaded = asyncio.Event()
            remove = source.add_listener(partial(_on_health, reloaded))
            started = time.perf_counter()
            file.write_text(f"parts:\n  length: {{weight: {number + 2}}}\n")
            async with asyncio.timeout(10):
                await reloaded.wait()
            durations.append((time.perf_counter() - started) * 1e3)
            remove()
    finally:
        await source.close()
    return durations


async def judge_calls(folder: Path, mode: str, again: bool = False) -> int:
    """Return the calls of a well-behaved judge for one group of four different answers."""
    async with ScriptedJudge() as judge:
        file = folder / f"{mode}.yaml"
        file.write_text(f"parts:\n  judge: {{url: '{judge.url}', model: judge-1, mode: {mode}}}\n")
        source = ComposedSource(file, PartEnvironment(folder / f"home-{mode}-{again}"))
        await source.start()
        try:
            answered = group(40)
            for _ in range(2 if again else 1):
                before = len(judge.calls)
                sheet = await source.score(answered)
                assert sheet.abstention is None, sheet.abstention
            return len(judge.calls) - before
        finally:
            await source.close()


def _judge(verdicts: Verdicts, name: str, words: int, milliseconds: float) -> None:
    """Compare short answers with a bar; the cost of longer ones is only printed."""
    if words == SHORT:
        verdicts.at_most(name, milliseconds, 0.2, "ms CPU")
    else:
        verdicts.info(name, milliseconds, "ms CPU")


ORDERED = {"assistant": 85, "agent": 90, "sums": 98}
"""Minimum percentage of pairs in the right order."""


def _order(verdicts: Verdicts) -> None:
    """Measure how often the built-in model has the order that people agree on."""
    for held in (False, True):
        which = "held out" if held else "tuned on"
        pairs = wrong = 0
        for source in NAMES:
            ordering = measured(prompts(source, held), score_group)
            pairs, wrong = pairs + ordering.pairs, wrong + len(ordering.misses)
            name = f"pairs in the right order, {source}, {which} ({ordering.pairs})"
            verdicts.at_least(name, 100 * ordering.share, ORDERED[source], "%")
        verdicts.info(
            f"pairs in the right order, {which} ({pairs})", 100 - 100 * wrong / pairs, "%"
        )


def main() -> None:
    """Measure, print, and exit with 1 when a bar is missed."""
    random.seed(1)
    verdicts = Verdicts()
    _order(verdicts)
    for words in (SHORT, 40, 120):
        groups = [group(words) for _ in range(GROUPS)]
        name = f"built-in model, four answers of {words} words"
        _judge(verdicts, name, words, processor_ms(score_group, groups))
    for words in (SHORT, 40):
        groups = [group(words, "42") for _ in range(GROUPS // 4)]
        name = f"every kind that answers at once, four answers of {words} words"
        _judge(verdicts, name, words, all_parts(groups))
    with tempfile.TemporaryDirectory() as place:
        trips = asyncio.run(hook_trips(Path(place)))
        p95 = statistics.quantiles(trips, n=20)[-1]
        verdicts.at_most("hook round trip, p95", p95, 5, "ms")
        slowest = max(asyncio.run(saves(Path(place))))
        verdicts.at_most("from a save to what serves, slowest", slowest, 500, "ms")
        for mode, bar in {"listwise": 1, "pointwise": 4, "pairwise": 12}.items():
            calls = asyncio.run(judge_calls(Path(place), mode))
            verdicts.at_most(f"judge calls for a group of four, {mode}", calls, bar, "calls")
        calls = asyncio.run(judge_calls(Path(place), "listwise", again=True))
        verdicts.at_most("judge calls for a group that was judged before", calls, 0, "calls")
    verdicts.close()


if __name__ == "__main__":
    main()
