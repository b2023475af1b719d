"""Train the base weights: `python -m engine.pretrain --steps 8000 --out DIR --seed 0`.

Deterministic for a seed on one machine. The first part of the steps uses correct sums and capitals
only, the rest makes some wrong on purpose: with errors from the start, sums are not learned.
"""

# ruff: noqa: E402, T201 - BLAS threads are set before numpy comes in; the program reports on stdout.
from engine.training import threads

threads.prepare()

import argparse
import math
import time
from pathlib import Path
from random import Random

import numpy as np

from engine import tokenizer as bpe
from engine.corpus import Corpus
from engine.evaluation import Evaluator
from engine.policy import weights
from engine.policy.chat_template import encode_dialogue
from engine.policy.weights import CONFIG, load_base, save_base
from engine.tokenizer import Tokenizer
from engine.training.backward import backward
from engine.training.model import Params, forward, softmax_
from engine.training.optimizer import Adam, clip_
from engine.training.packing import Sample, Shard, pack

STEPS = 8000
POOL, LONG = 480, 0.025
"""Dialogues drawn at a time, and the share of them that may fill the whole window."""
SHARDS = 4
"""Shards of similar lengths per step: about 2,000 tokens, two shards per worker."""
RIGHT = 0.7
"""Share of the steps in which the corpus contains no errors."""
LR, FINAL, WARMUP, DECAY, BETAS = 4e-3, 0.02, 150, 0.05, (0.9, 0.98)
SHARPER = 1.15
"""Final scale of the last gain: fewer slips in answers sampled at temperature 1."""

SCALE = 0.07
"""Root mean square to which the matrices are scaled: GRPO's step sizes are tuned for it."""


class ShardFeed:
    """Source of training steps of a few shards each.

    A pool of dialogues is sorted by length before it is cut into shards, to minimise padding; the
    shards are shuffled.
    """

    def __init__(self, tokenizer: Tokenizer, corpus: Corpus, rng: Random) -> None:
        self.corpus = corpus
        self._tokenizer = tokenizer
        self._rng = rng
        self._shards: list[Shard] = []

    def next(self) -> list[Shard]:
        """Return the shards of the next step."""
        if len(self._shards) < SHARDS:
            long = int(POOL * LONG)
            pool = [self._sample(0) for _ in range(POOL - long)]
            pool += [self._sample(self._rng.randint(100, 490)) for _ in range(long)]
            shards, _ = pack(pool)
            self._rng.shuffle(shards)
            self._shards += shards
        taken, self._shards = self._shards[:SHARDS], self._shards[SHARDS:]
        return taken

    def _sample(self, tokens: int) -> Sample:
        corpus = self.corpus
        dialogue = corpus.long_dialogue(tokens) if tokens else corpus.dialogue()
        ids, learn = encode_dialogue(self._tokenizer, dialogue)
        while len(ids) > CONFIG.context:
            tokens = max(60, int((tokens or 200) * 0.8))
            ids, learn = encode_dialogue(self._tokenizer, corpus.long_dialogue(tokens))
        return Sample(ids, learn)


class Pretrainer:
    """Next-token training on the answers."""

    def __init__(self, params: Params, steps: int) -> None:
        self.params = params
        self.steps = steps
        self.adam = Adam(params.flat.size)
        self._workers = threads.Workers()
        self._grads = [params.like() for _ in range(self._workers.count)]

    def step(self, number: int, shards: list[Shard]) -> float:
        """Run one step; return the mean loss per target token."""
        targets = sum(len(shard.targets) for shard in shards)
        assignment = self._workers.deal([shard.cost for shard in shards])

        def losses(worker: int) -> float:
            grads = self._grads[worker]
            grads.flat.fill(0.0)
            return sum(self._shard(shards[i], grads, targets) for i in assignment[worker])

        loss = sum(self._workers.run(losses)) / targets
        grad = self._grads[0].flat
        for other in self._grads[1:]:
            grad += other.flat
        clip_(grad, 1.0)
        self.adam.step(self.params.flat, grad, self.lr(number), BETAS, 1e-8, DECAY)
        return loss

    def lr(self, number: int) -> float:
        """Return the learning rate: warm-up, then cosine decay."""
        if number < WARMUP:
            return LR * (number + 1) / WARMUP
        done = (number - WARMUP) / max(1, self.steps - WARMUP)
        return LR * (FINAL + (1.0 - FINAL) * 0.5 * (1.0 + math.cos(math.pi * done)))

    def _shard(self, shard: Shard, grads: Params, targets: int) -> float:
        logits, tape = forward(self.params, shard.tokens, shard.where)
        dlogits = softmax_(logits)
        row = np.arange(len(shard.targets))
        likely = np.maximum(dlogits[row, shard.targets], 1e-30)
        loss = -float(np.log(likely).sum(dtype=np.float64))
        dlogits[row, shard.targets] -= 1.0
        dlogits *= 1.0 / targets
        backward(self.params, grads, tape, dlogits)
        return loss

    def close(self) -> None:
        """Stop the workers."""
        self._workers.close()


def balance_gains(params: Params) -> None:
    """Move scale from the matrices into the gains before them; the network's output is unchanged.

    Under Adam with a large epsilon, a matrix twice as large learns four times slower from the same
    rewards: half the gradient for twice the distance. Factors are powers of two, so nothing is
    rounded.
    """
    layers = range(params.config.layers)

    def factor(*names: str) -> float:
        size = np.sqrt(np.mean([np.mean(np.square(params[name])) for name in names]))
        return float(2.0 ** np.round(np.log2(SCALE / size)))

    for gain, matrix in ((f"{i}.norm1", f"{i}.qkv") for i in layers):
        _shift(params, factor(matrix), gain, matrix)
    for gain, matrix in ((f"{i}.norm2", f"{i}.gate_up") for i in layers):
        _shift(params, factor(matrix), gain, matrix)
    writers = [name for i in layers for name in (f"{i}.out", f"{i}.down")]
    _shift(params, factor(*writers), "norm", "embed", *writers)


def _shift(params: Params, factor: float, gain: str, *matrices: str) -> None:
    for name in matrices:
        params[name][...] *= factor
    params[gain][...] /= factor


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
    """Pretrain from random weights, with progress on stdout."""
    start = time.perf_counter()
    merges = learn_merges(seed)
    tokenizer = Tokenizer(merges)
    print(f"merges learned in {time.perf_counter() - start:.1f} s", flush=True)
    params = Params.initial(CONFIG, seed)
    trainer = Pretrainer(params, steps)
    feed = ShardFeed(tokenizer, Corpus(seed + 1, noisy=False), Random(seed + 2))
    start, busy, tokens, losses = time.perf_counter(), time.process_time(), 0, []
    for number in range(steps):
        feed.corpus.noisy = number >= RIGHT * steps
        shards = feed.next()
        tokens += sum(shard.tokens.size for shard in shards)
        losses.append(trainer.step(number, shards))
        if (number + 1) % 100 == 0 or number + 1 == steps:
            seconds = time.perf_counter() - start
            print(
                f"step {number + 1}/{steps} loss {np.mean(losses[-100:]):.4f} {seconds:.0f} s "
                f"(CPU {time.process_time() - busy:.0f} s) {tokens / seconds:.0f} tokens/s",
                flush=True,
            )
    params["norm"][...] *= SHARPER
    balance_gains(params)
    trainer.close()
    return params, merges


def report(directory: Path) -> None:
    """Evaluate the weights as shipped, rounded to float16."""
    judge = Evaluator(
        load_base(directory).params, Tokenizer(bpe.load_merges(directory / weights.MERGES))
    )
    for name, value in judge.figures().items():
        print(f"{name:20} {value:.3f}")
    for question, answers in judge.samples():
        print(f"{question} -> {answers}")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Make the base weights of the policy.")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    params, merges = run(options.steps, options.seed)
    save_base(options.out, params, merges)
    report(options.out)


if __name__ == "__main__":
    main()
