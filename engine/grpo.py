"""GRPO: group-relative advantages, clipped ratios, a KL to the shipped weights (Shao et al. 2024).

The KL estimate is k3 (Schulman 2020). Without it a relative reward ("the best of four") collapses
the policy; with plain Adam's small epsilon noise grows to full steps once rewards are all alike.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.backward import backward
from engine.batches import MAX_TOKENS, Sample, Shard, pack
from engine.model import Array, Params, forward, log_softmax, logits_only
from engine.numerics import Lanes
from engine.optimizer import clip_
from engine.policy import Hyperparameters, TrainSample, UpdateStats
from engine.weights import State

SHARDS, SMALLEST = 6, 128
"""A small batch is cut finer, into about so many shards of at least so many ids: even lanes."""

TRAINED_FROM = "1.norm1"
"""Tokens and first block stay as shipped: rewards change what is said, spelling is kept."""


def advantages(samples: Sequence[TrainSample], damping: float) -> tuple[Array, int, int]:
    """(reward - group mean) / (group std + damping) for each sample.

    Returns:
        The advantages, the number of groups, the number of those with equal rewards.
    """
    groups: dict[str, list[int]] = {}
    for i, sample in enumerate(samples):
        groups.setdefault(sample.task_id, []).append(i)
    made = np.zeros(len(samples))
    dead = 0
    for members in groups.values():
        rewards = np.array([samples[i].reward for i in members])
        if np.ptp(rewards) <= 1e-9:
            dead += 1
            continue
        made[members] = (rewards - rewards.mean()) / (rewards.std() + damping)
    return made, len(groups), dead


def check(samples: Sequence[TrainSample], params: Params) -> None:
    """Refuse a batch that can not be trained on.

    Raises:
        ValueError: no tokens at all, or a sample with a reward or log-prob that is not finite,
            unlike numbers of tokens and log-probs, ids outside the vocabulary, or too long.
    """
    config = params.config
    for sample in samples:
        name = f"task {sample.task_id!r}"
        if not math.isfinite(sample.reward):
            raise ValueError(f"{name}: the reward is {sample.reward}, not a finite number")
        if len(sample.tokens) != len(sample.logprobs):
            raise ValueError(
                f"{name}: {len(sample.tokens)} tokens with {len(sample.logprobs)} log-probs"
            )
        if not all(map(math.isfinite, sample.logprobs)):
            raise ValueError(f"{name}: a log-prob is not a finite number")
        ids = (*sample.prompt_tokens, *sample.tokens)
        if not sample.prompt_tokens or len(ids) > config.context:
            raise ValueError(f"{name}: {len(ids)} tokens, 1 to {config.context} can be trained on")
        if min(ids) < 0 or max(ids) >= config.vocab:
            raise ValueError(f"{name}: token ids outside 0 to {config.vocab - 1}")
    if not any(sample.tokens for sample in samples):
        raise ValueError("the batch holds no sampled tokens")


@dataclass(slots=True)
class _Batch:
    """A batch ready for the epochs; arrays are (targets,), in the order of the samples."""

    shards: list[Shard]
    dealt: list[list[int]]
    targets: int
    advantage: Array
    old: Array
    reference: Array


@dataclass(slots=True)
class _Sums:
    """Sums over targets of one epoch or of one lane of it."""

    kl: float = 0.0
    clipped: float = 0.0
    entropy: float = 0.0
    ratio: float = 0.0

    def add(self, other: "_Sums") -> None:
        """Add another lane's."""
        self.kl += other.kl
        self.clipped += other.clipped
        self.entropy += other.entropy
        self.ratio = max(self.ratio, other.ratio)


class Learner:
    """Does policy updates on one state.

    Args:
        state: Changed in place by `update`.
        reference: The frozen weights of the KL term.
    """

    def __init__(self, state: State, reference: Params) -> None:
        self.state = state
        self._reference = reference
        self._lanes = Lanes()
        self._frozen = state.params.offset(TRAINED_FROM)
        self._grads = [state.params.like() for _ in range(self._lanes.count)]

    def update(self, samples: Sequence[TrainSample], hyper: Hyperparameters) -> UpdateStats:
        """One policy update: `hyper.epochs` optimizer steps on the batch.

        The log-probs are those at temperature 1, and so is the ratio, whatever the answers were
        drawn at.

        Raises:
            ValueError: see `check`; nothing was changed.
        """
        start = time.perf_counter()
        check(samples, self.state.params)
        advantage, groups, dead = advantages(samples, hyper.damping)
        batch = self._prepare(samples, advantage)
        first, last, norm = _Sums(), _Sums(), 0.0
        clipped = 0.0
        for epoch in range(max(1, hyper.epochs)):
            last, norm = self._epoch(batch, hyper)
            clipped += last.clipped
            first = first if epoch else last
        self.state.step += 1
        rewards = np.array([sample.reward for sample in samples])
        return UpdateStats(
            step=self.state.step,
            samples=len(samples),
            tokens=batch.targets,
            groups=groups,
            dead_groups=dead,
            reward_mean=float(rewards.mean()),
            reward_std=float(rewards.std()),
            kl=last.kl / batch.targets,
            clip_fraction=clipped / (batch.targets * max(1, hyper.epochs)),
            entropy=first.entropy / batch.targets,
            grad_norm=norm,
            response_tokens=batch.targets / len(samples),
            seconds=time.perf_counter() - start,
            extra={"ratio_max": last.ratio, "advantage_max": float(np.abs(advantage).max())},
        )

    def close(self) -> None:
        """Stop the threads."""
        self._lanes.close()

    def _prepare(self, samples: Sequence[TrainSample], advantage: Array) -> _Batch:
        sequences = [
            Sample(
                (*sample.prompt_tokens, *sample.tokens),
                (False,) * len(sample.prompt_tokens) + (True,) * len(sample.tokens),
            )
            for sample in samples
        ]
        total = sum(len(sample.ids) for sample in sequences)
        shards, targets = pack(sequences, min(MAX_TOKENS, max(SMALLEST, total // SHARDS)))
        dealt = self._lanes.deal([shard.cost for shard in shards])
        lengths = [len(sample.tokens) for sample in samples]
        reference = np.zeros(targets, np.float32)

        def score(lane: int) -> None:
            for shard in (shards[i] for i in dealt[lane]):
                logp = log_softmax(logits_only(self._reference, shard.tokens, shard.where))
                reference[shard.index] = logp[np.arange(len(shard.targets)), shard.targets]

        self._lanes.run(score)
        return _Batch(
            shards,
            dealt,
            targets,
            np.repeat(advantage, lengths).astype(np.float32),
            np.array([p for sample in samples for p in sample.logprobs], np.float32),
            reference,
        )

    def _epoch(self, batch: _Batch, hyper: Hyperparameters) -> tuple[_Sums, float]:
        """One optimizer step; returns sums before it and the norm of the gradient."""

        def lane(which: int) -> _Sums:
            grads = self._grads[which]
            grads.flat.fill(0.0)
            sums = _Sums()
            for i in batch.dealt[which]:
                sums.add(self._shard(batch, batch.shards[i], grads, hyper))
            return sums

        sums = _Sums()
        for part in self._lanes.run(lane):
            sums.add(part)
        grad = self._grads[0].flat
        for other in self._grads[1:]:
            grad += other.flat
        grad[: self._frozen] = 0.0
        norm = clip_(grad, hyper.grad_clip)
        if not math.isfinite(norm):
            raise ValueError("the gradient is not finite: this batch can not be trained on")
        state = self.state
        state.adam.step(state.params.flat, grad, hyper.lr, hyper.betas, hyper.adam_eps)
        return sums, norm

    def _shard(self, batch: _Batch, shard: Shard, grads: Params, hyper: Hyperparameters) -> _Sums:
        logits, tape = forward(self.state.params, shard.tokens, shard.where)
        logp = log_softmax(logits)
        rows = np.arange(len(shard.targets))
        new = logp[rows, shard.targets]
        advantage = batch.advantage[shard.index]
        # Late rewards meet weights far from those that drew the answer: bound the exponents.
        ratio = np.exp(np.clip(new - batch.old[shard.index], -20.0, 20.0))
        gap = np.clip(batch.reference[shard.index] - new, -20.0, 20.0)
        over = np.where(advantage > 0, ratio > 1 + hyper.clip, ratio < 1 - hyper.clip)
        # The gradient of ratio * k3 is -ratio * gap: that of the true KL. Of k3 alone it is not,
        # and too weak to hold a policy that has gone far.
        slope = np.where(over, 0.0, -advantage * ratio) - hyper.kl * np.minimum(ratio, 2.0) * gap
        slope /= batch.targets
        probs = np.exp(logp)
        sums = _Sums(
            kl=float((np.exp(gap) - gap - 1.0).sum(dtype=np.float64)),
            clipped=float(np.count_nonzero(over & (advantage != 0))),
            entropy=-float((probs * np.maximum(logp, -1e4)).sum(dtype=np.float64)),
            ratio=float(ratio.max()),
        )
        dlogits = -probs * slope[:, None]
        dlogits[rows, shard.targets] += slope
        backward(self.state.params, grads, tape, dlogits.astype(logits.dtype))
        return sums
