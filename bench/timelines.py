"""Savings from merging an episode's calls into timelines.

Conversations of several turns with the embedded policy, its answers sent back as a client sends
them (blanks stripped).

    .venv/bin/python bench/timelines.py

The same batch is trained call by call and merged: tokens through the
network, seconds of the update, and whether both do the same update.
"""

import asyncio
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.bars import Verdicts
from engine.interface import Completion, Hyperparameters, SamplingParams, TrainSample, UpdateStats
from engine.server.timelines import merge_calls, repair_prompt
from engine.training import threads

if TYPE_CHECKING:
    from engine.policy.tiny import TinyPolicy

EPISODES, GROUPS, REPEATS = 32, 8, 5
QUESTIONS = ("What is 7 + 8?", "And why?", "Say it again.", "Thank you!", "Tell me more.")


def opened() -> "TinyPolicy":
    """Return the shipped policy; nothing is saved."""
    threads.prepare()  # before the next line brings numpy in: it fixes the threads of BLAS
    from engine.policy.tiny import TinyPolicy

    return TinyPolicy.open(None)


async def converse(policy: "TinyPolicy", turns: int, seed: int) -> tuple[list[Completion], int]:
    """Return the calls of one episode, and how many earlier answers came back in other tokens."""
    calls: list[Completion] = []
    messages = [{"role": "system", "content": "Be brief."}]
    drifts = 0
    for turn in range(turns):
        messages.append({"role": "user", "content": QUESTIONS[turn % len(QUESTIONS)]})
        prompt = policy.render(messages, None, 20)
        if not prompt.truncated:
            mended = repair_prompt(prompt.tokens, calls, policy.decode)
            drifts += mended.drifts
            prompt = type(prompt)(mended.tokens)
        params = SamplingParams(max_tokens=20, temperature=1.4, seed=1000 * seed + turn)
        drawn = await policy.sample(prompt, params)
        calls.append(drawn)
        messages.append({"role": "assistant", "content": drawn.text.strip()})
    return calls, drifts


def samples(episodes: Sequence[Sequence[Completion]], *, merged: bool) -> list[TrainSample]:
    """Return the batch, with merged or separate calls."""
    return [
        timeline.sample(f"t{number % GROUPS}", str(number), float(number % 3))
        for number, calls in enumerate(episodes)
        for part in ([calls] if merged else [[call] for call in calls])
        for timeline in merge_calls(part)
    ]


def tokens(batch: Sequence[TrainSample]) -> int:
    """Return the number of tokens processed by the network."""
    return sum(len(sample.prompt_tokens) + len(sample.tokens) for sample in batch)


async def update(batch: Sequence[TrainSample]) -> tuple[UpdateStats, float]:
    """Return the figures of the update from the shipped weights, and its median seconds."""
    seconds = []
    for _ in range(REPEATS):
        policy = opened()
        try:
            stats = await policy.train(batch, Hyperparameters(epochs=1))
        finally:
            await policy.close()
        seconds.append(stats.seconds)
    return stats, statistics.median(seconds)


async def measure(verdicts: Verdicts) -> None:
    """Print one line per number of turns, then the verdict."""
    print(f"{EPISODES} episodes, medians of {REPEATS} updates; call by call -> merged")
    print("turns  samples       tokens           update s          drifts repaired")
    policy = opened()
    try:
        timelines = {
            turns: [await converse(policy, turns, n) for n in range(EPISODES)]
            for turns in (1, 2, 3, 4)
        }
    finally:
        await policy.close()
    for turns, talks in timelines.items():
        episodes = [calls for calls, _ in talks]
        drifts = sum(count for _, count in talks)
        alone, merged = samples(episodes, merged=False), samples(episodes, merged=True)
        first, slow = await update(alone)
        second, fast = await update(merged)
        print(
            f"{turns:5}  {len(alone):4} -> {len(merged):4}  {tokens(alone):6} -> {tokens(merged):6}"
            f"  {slow:7.3f} -> {fast:7.3f}  {drifts:6}"
        )
        drawn = sum(len(call.tokens) for calls in episodes for call in calls)
        name = f"{turns}-turns"
        verdicts.at_most(f"{name}-tokens-not-trained", abs(second.tokens - drawn), 0, "tokens")
        off = 100 * abs(second.grad_norm - first.grad_norm) / first.grad_norm
        verdicts.at_most(f"{name}-gradient-norm-off", off, 0.1, "%")
        if turns == 3:
            saved = tokens(alone) / tokens(merged)
            verdicts.at_least(f"{name}-fewer-tokens", saved, 1.4, "x")


def main() -> None:
    """Measure once."""
    verdicts = Verdicts()
    asyncio.run(measure(verdicts))
    verdicts.close()


if __name__ == "__main__":
    main()
