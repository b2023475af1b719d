"""GRPO: policy updates with group-relative advantages, clipped ratios and a KL to the base weights.

The objective is in `objective`. Two settings differ from other trainers: the damped advantage and
Adam's large epsilon keep noise from growing to full steps once all rewards are equal. Figures:
`docs/measured/learning.md`.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.interface import Hyperparameters, TrainSample, UpdateStats
from engine.tokenizer import CALL
from engine.training.backward import backward
from engine.training.model import BLOCKED, Array, Params, forward, log_softmax, logits_only
from engine.training.objective import advantages, token_loss
from engine.training.optimizer import clip_
from engine.training.packing import MAX_TOKENS, Sample, Shard, pack
from engine.training.state import State
from engine.training.threads import Workers
from engine.training.update_stats import LossSums, update_stats

SHARDS, SMALLEST = 6, 128
"""A small batch is cut into about `SHARDS` shards of at least `SMALLEST` ids, for balanced
workers."""


def check(samples: Sequence[TrainSample], params: Params) -> None:
    """Validate a batch.

    Raises:
        ValueError: no sampled tokens at all, a reward or log-prob that is not finite, different
            numbers of tokens, log-probs and mask flags, unknown ids, or too many of them.
    """
    for sample in samples:
        _check_sample(sample, params)
    if not any(any(sample.sampled) for sample in samples):
        raise ValueError("the batch holds no sampled tokens")


def _check_sample(sample: TrainSample, params: Params) -> None:
    config = params.config
    name = f"task {sample.task_id!r}"
    if not math.isfinite(sample.reward):
        raise ValueError(f"{name}: the reward is {sample.reward}, not a finite number")
    for what, values in (("log-probs", sample.logprobs), ("mask", sample.mask)):
        if values is not None and len(values) != len(sample.tokens):
            raise ValueError(f"{name}: {len(sample.tokens)} tokens with {len(values)} {what}")
    if not all(map(math.isfinite, sample.sampled_logprobs)):
        raise ValueError(f"{name}: a log-prob is not a finite number")
    ids = (*sample.prompt_tokens, *sample.tokens)
    if not sample.prompt_tokens or len(ids) > config.context:
        raise ValueError(
            f"{name}: {len(ids)} tokens, the policy is trained on 1 to {config.context}"
        )
    if min(ids) < 0 or max(ids) >= config.vocab:
        raise ValueError(f"{name}: token ids outside 0 to {config.vocab - 1}")


@dataclass(slots=True)
class _Batch:
    """A batch prepared for the epochs; arrays are (targets,), in the order of the samples."""

    shards: list[Shard]
    worker_shards: list[list[int]]
    targets: int
    advantage: Array
    old: Array
    reference: Array
    plain: Array
    """Targets in prompts without tools: a tool call was impossible there."""


class Learner:
    """Runs policy updates on one state.

    Args:
        state: Changed in place by `update`.
        reference: Weights of the KL term, which never change.
    """

    def __init__(self, state: State, reference: Params) -> None:
        self.state = state
        self._reference = reference
        self._workers = Workers()
        self._grads = [state.params.like() for _ in range(self._workers.count)]

    def update(self, samples: Sequence[TrainSample], hyper: Hyperparameters) -> UpdateStats:
        """Run one policy update: `hyper.epochs` optimizer steps on the batch.

        A batch in which no group has an advantage counts as an update but makes no optimizer step:
        momentum would move the weights. Its figures are those of one pass.

        Log-probs and ratios are those at temperature 1, whatever temperature the answers were
        sampled at.

        Raises:
            ValueError: see `check` and `advantages`; nothing was changed.
        """
        start = time.perf_counter()
        check(samples, self.state.params)
        group_advantages = advantages(samples, hyper)
        batch = self._prepare(samples, group_advantages.values)
        epochs: list[LossSums] = []
        norm = 0.0
        if group_advantages.signal:
            for _ in range(max(1, hyper.epochs)):
                sums, norm = self._epoch(batch, hyper)
                epochs.append(sums)
        else:
            epochs.append(self._backward(batch, hyper)[0])
        self.state.step += 1
        return update_stats(
            samples,
            group_advantages,
            epochs,
            targets=batch.targets,
            norm=norm,
            seconds=time.perf_counter() - start,
            step=self.state.step,
        )

    def gradient(
        self, samples: Sequence[TrainSample], hyper: Hyperparameters
    ) -> tuple[float, Array]:
        """Return the loss and its gradient by all parameters, before clipping; changes nothing.

        Raises:
            ValueError: see `update`.
        """
        check(samples, self.state.params)
        batch = self._prepare(samples, advantages(samples, hyper).values)
        sums, grad = self._backward(batch, hyper)
        return sums.loss / batch.targets, grad.copy()

    def close(self) -> None:
        """Stop the threads."""
        self._workers.close()

    def _prepare(self, samples: Sequence[TrainSample], advantage: Array) -> _Batch:
        sequences = [
            Sample(
                (*sample.prompt_tokens, *sample.tokens),
                (False,) * len(sample.prompt_tokens) + sample.sampled,
            )
            for sample in samples
        ]
        total = sum(len(sample.ids) for sample in sequences)
        shards, targets = pack(sequences, min(MAX_TOKENS, max(SMALLEST, total // SHARDS)))
        lengths = [sum(sample.sampled) for sample in samples]
        sampled_logprobs = [logprob for sample in samples for logprob in sample.sampled_logprobs]
        kind = self.state.params.flat.dtype
        batch = _Batch(
            shards,
            self._workers.deal([shard.cost for shard in shards]),
            targets,
            np.repeat(advantage, lengths).astype(kind),
            np.array(sampled_logprobs, kind),
            np.zeros(targets, kind),
            np.repeat([CALL not in sample.prompt_tokens for sample in samples], lengths),
        )

        def score(worker: int) -> None:
            for i in batch.worker_shards[worker]:
                shard = shards[i]
                logits = logits_only(self._reference, shard.tokens, shard.where)
                logp = _sampler_logprobs(logits, shard, batch)
                batch.reference[shard.index] = logp[np.arange(len(shard.targets)), shard.targets]

        self._workers.run(score)
        return batch

    def _epoch(self, batch: _Batch, hyper: Hyperparameters) -> tuple[LossSums, float]:
        """Run one optimizer step; return the sums before it and the gradient's norm."""
        sums, grad = self._backward(batch, hyper)
        params, adam = self.state.params, self.state.adam
        first = params.offset(f"{hyper.frozen - 1}.norm1") if hyper.frozen else 0
        norm = clip_(grad[first:], hyper.grad_clip)
        if not math.isfinite(norm):
            raise ValueError("the gradient is not finite: this batch can not be trained on")
        adam.step(params.flat, grad, hyper.lr, hyper.betas, hyper.adam_eps, first=first)
        return sums, norm

    def _backward(self, batch: _Batch, hyper: Hyperparameters) -> tuple[LossSums, Array]:
        """Return sums and gradient of one pass over the batch; the next pass overwrites the
        gradient."""

        def losses(worker: int) -> LossSums:
            grads = self._grads[worker]
            grads.flat.fill(0.0)
            sums = LossSums()
            for i in batch.worker_shards[worker]:
                sums.add(self._shard(batch, i, grads, hyper))
            return sums

        sums = LossSums()
        for part in self._workers.run(losses):
            sums.add(part)
        grad = self._grads[0].flat
        for other in self._grads[1:]:
            grad += other.flat
        return sums, grad

    def _shard(self, batch: _Batch, which: int, grads: Params, hyper: Hyperparameters) -> LossSums:
        shard = batch.shards[which]
        logits, tape = forward(self.state.params, shard.tokens, shard.where)
        logp = _sampler_logprobs(logits, shard, batch)
        rows = np.arange(len(shard.targets))
        losses = token_loss(
            logp[rows, shard.targets],
            batch.old[shard.index],
            batch.reference[shard.index],
            batch.advantage[shard.index],
            hyper,
        )
        slope = losses.slope / batch.targets
        probs = np.exp(logp)
        sums = LossSums()
        sums.count(losses, -float((probs * np.maximum(logp, -1e4)).sum(dtype=np.float64)))
        dlogits = -probs * slope[:, None]
        dlogits[rows, shard.targets] += slope
        backward(self.state.params, grads, tape, dlogits.astype(logits.dtype), hyper.frozen)
        return sums


def _sampler_logprobs(logits: Array, shard: Shard, batch: _Batch) -> Array:
    """Return log-probs as the sampler computed them: no tool call without tools."""
    if logits.shape[1] > CALL:
        logits[batch.plain[shard.index] & (shard.targets != CALL), CALL] = BLOCKED
    return log_softmax(logits)
