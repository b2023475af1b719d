"""Make the base weights: `python -m engine.pretrain --steps 5200 --out DIR --seed 0`.

Deterministic for a seed on one machine. The first part of the steps sees only right sums and
capitals, the rest keeps some wrong on purpose: with noise from the start the sums are not learned.
"""

# ruff: noqa: E402, T201 - BLAS threads are set before numpy comes in; the program reports on stdout.
from engine import numerics

numerics.prepare()

import argparse
import math
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from engine import tokenizer as bpe
from engine import weights
from engine.backward import backward
from engine.batches import Sample, Shard, pack
from engine.corpus import Corpus
from engine.evaluation import Judge
from engine.model import Params, forward, log_softmax
from engine.optimizer import Adam, clip_
from engine.template import encode_dialogue
from engine.tokenizer import Tokenizer
from engine.weights import CONFIG, load_base, save_base

SHORT, LONG = 44, 1
"""Dialogues of a batch: most are short, one is of up to the whole window."""
RIGHT = 0.6
"""Part of the steps in which the corpus is never wrong."""
LR, WARMUP, DECAY, BETAS = 2e-3, 100, 0.05, (0.9, 0.98)


@dataclass(slots=True)
class Feed:
    """Batches of dialogues as tokens."""

    tokenizer: Tokenizer
    corpus: Corpus
    rng: Random

    def batch(self) -> list[Sample]:
        """One training batch."""
        made = [self._sample(0) for _ in range(SHORT)]
        return made + [self._sample(self.rng.randint(100, 490)) for _ in range(LONG)]

    def _sample(self, tokens: int) -> Sample:
        corpus = self.corpus
        dialogue = corpus.long_dialogue(tokens) if tokens else corpus.dialogue()
        ids, learn = encode_dialogue(self.tokenizer, dialogue)
        while len(ids) > CONFIG.context:
            tokens = max(60, int((tokens or 200) * 0.8))
            ids, learn = encode_dialogue(self.tokenizer, corpus.long_dialogue(tokens))
        return Sample(ids, learn)


class Trainer:
    """Next-token training of the answers."""

    def __init__(self, params: Params, steps: int) -> None:
        self.params = params
        self.steps = steps
        self.adam = Adam(params.flat.size)
        self._lanes = numerics.Lanes()
        self._grads = [params.like() for _ in range(self._lanes.count)]

    def step(self, number: int, batch: list[Sample]) -> float:
        """One step; returns the mean loss of a target token."""
        shards, targets = pack(batch)
        dealt = self._lanes.deal([shard.cost for shard in shards])

        def lane(which: int) -> float:
            grads = self._grads[which]
            grads.flat.fill(0.0)
            return sum(self._shard(shards[i], grads, targets) for i in dealt[which])

        loss = sum(self._lanes.run(lane)) / targets
        grad = self._grads[0].flat
        for other in self._grads[1:]:
            grad += other.flat
        clip_(grad, 1.0)
        self.adam.step(self.params.flat, grad, self.lr(number), BETAS, 1e-8, DECAY)
        return loss

    def lr(self, number: int) -> float:
        """Warm-up, then a cosine to a twentieth."""
        if number < WARMUP:
            return LR * (number + 1) / WARMUP
        done = (number - WARMUP) / max(1, self.steps - WARMUP)
        return LR * (0.05 + 0.95 * 0.5 * (1.0 + math.cos(math.pi * done)))

    def _shard(self, shard: Shard, grads: Params, targets: int) -> float:
        logits, tape = forward(self.params, shard.tokens, shard.where)
        logp = log_softmax(logits)
        row = np.arange(len(shard.targets))
        loss = -float(logp[row, shard.targets].sum(dtype=np.float64))
        dlogits = np.exp(logp)
        dlogits[row, shard.targets] -= 1.0
        dlogits /= targets
        backward(self.params, grads, tape, dlogits.astype(logits.dtype))
        return loss

    def close(self) -> None:
        """Stop the lanes."""
        self._lanes.close()


def learn_merges(seed: int) -> list[tuple[int, int]]:
    """Train the tokenizer on a part of the corpus."""
    corpus = Corpus(seed)
    texts = []
    for i in range(6000):
        dialogue = corpus.long_dialogue(200) if i % 20 == 0 else corpus.dialogue()
        texts += [dialogue.system, "\n".join(dialogue.tools)]
        texts += [turn.text for turn in dialogue.turns]
    return bpe.train(texts)


def run(steps: int, seed: int) -> tuple[Params, list[tuple[int, int]]]:
    """Pretrain from nothing, with progress on stdout."""
    start = time.perf_counter()
    merges = learn_merges(seed)
    tokenizer = Tokenizer(merges)
    print(f"merges learned in {time.perf_counter() - start:.1f} s", flush=True)
    params = Params.initial(CONFIG, seed)
    trainer = Trainer(params, steps)
    feed = Feed(tokenizer, Corpus(seed + 1, noisy=False), Random(seed + 2))
    start, tokens, losses = time.perf_counter(), 0, []
    for number in range(steps):
        feed.corpus.noisy = number >= RIGHT * steps
        batch = feed.batch()
        tokens += sum(len(sample.ids) for sample in batch)
        losses.append(trainer.step(number, batch))
        if (number + 1) % 100 == 0 or number + 1 == steps:
            seconds = time.perf_counter() - start
            print(
                f"step {number + 1}/{steps} loss {np.mean(losses[-100:]):.4f} "
                f"{seconds:.0f} s {tokens / seconds:.0f} tokens/s",
                flush=True,
            )
    trainer.close()
    return params, merges


def report(directory: Path) -> None:
    """Evaluate the weights as they are shipped, rounded to float16."""
    judge = Judge(
        load_base(directory).params, Tokenizer(bpe.load_merges(directory / weights.MERGES))
    )
    for name, value in judge.figures().items():
        print(f"{name:20} {value:.3f}")
    for question, answers in judge.samples():
        print(f"{question} -> {answers}")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Make the base weights of the policy.")
    parser.add_argument("--steps", type=int, default=5200)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    params, merges = run(options.steps, options.seed)
    save_base(options.out, params, merges)
    report(options.out)


if __name__ == "__main__":
    main()
