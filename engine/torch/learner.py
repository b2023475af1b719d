"""GRPO updates of a transformers model, by the objective of the tiny policy.

The optimizer holds the trained parameters in float32, whatever type the model computes in. The
log-probs when sampled are computed again by the forward pass of the update, so that the ratio of
the first epoch is 1 whatever kernel the sampler used.
"""

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from engine.interface import Hyperparameters, TrainSample, UpdateStats
from engine.torch.hardware.devices import is_out_of_memory
from engine.torch.head import OutputHead
from engine.torch.memory import MemoryPlan
from engine.training.objective import advantages, token_loss
from engine.training.update_stats import LossSums, update_stats

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Optimizer:
    """AdamW over the trained parameters as one float32 vector, on the model's device."""

    flat: Any
    m: Any
    v: Any
    t: int = 0

    def step(self, grad: Any, hyper: Hyperparameters, decay: float) -> None:
        """Update the parameters in place."""
        b1, b2 = hyper.betas
        self.t += 1
        self.m.mul_(b1).add_(grad, alpha=1.0 - b1)
        self.v.mul_(b2).addcmul_(grad, grad, value=1.0 - b2)
        scale = (self.v / (1.0 - b2**self.t)).sqrt_().add_(hyper.adam_eps)
        if decay:
            self.flat.mul_(1.0 - hyper.lr * decay)
        self.flat.addcdiv_(self.m, scale, value=-hyper.lr / (1.0 - b1**self.t))


class TorchLearner:
    """Runs policy updates on one model.

    Args:
        model: Its weights are the reference of the KL: without its adapters, or as they are now.
        trained: The trained parameters in the order of the optimizer's vector.
        optimizer: Its vector is written back to the model after each step.
        memory: Size of the micro-batches, and whether activations are computed again.
    """

    def __init__(
        self, model: Any, trained: Sequence[Any], optimizer: Optimizer, memory: MemoryPlan
    ) -> None:
        self.model, self.trained, self.optimizer = model, list(trained), optimizer
        self.base = optimizer.flat.cpu().clone()
        """Trained parameters at step 0, on the processor."""
        self.budget = memory.budget
        """Padded ids of a micro-batch; lowered when the memory runs out."""
        self._running = (0, 0)
        """Samples and padded ids of the micro-batch that is computed."""
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._body = getattr(inner, inner.base_model_prefix)
        output = inner.get_output_embeddings()
        self._head = OutputHead(output, inner.config.vocab_size, memory.logits)
        self._device = next(model.parameters()).device
        self._checkpointing = memory.checkpointing
        if memory.checkpointing:
            _enable_checkpointing(inner)
            inner.enable_input_require_grads()

    def publish(self) -> None:
        """Copy the optimizer's parameters into the model."""
        self._write(self.optimizer.flat)

    def _write(self, flat: Any) -> None:
        parts = flat.split([parameter.numel() for parameter in self.trained])
        with torch.no_grad():
            torch._foreach_copy_(
                self.trained,
                [part.view_as(weights) for part, weights in zip(parts, self.trained, strict=True)],
            )

    @contextmanager
    def _reference_weights(self) -> Iterator[None]:
        """Give the model the weights of the reference: no adapter, or the base when all weights
        are trained."""
        if hasattr(self.model, "disable_adapter"):
            with self.model.disable_adapter():
                yield
            return
        self._write(self.base)
        try:
            yield
        finally:
            self.publish()

    def logprobs(self, samples: Sequence[TrainSample], *, reference: bool = False) -> list[Any]:
        """Return the log-probs of the sampled ids of each sample, by the present weights or those
        of the reference; numpy float32."""
        values: list[Any] = [None] * len(samples)
        weights = self._reference_weights() if reference else nullcontext()
        with torch.no_grad(), weights:
            for batch in self._batches(samples):
                parts, _ = self._forward([samples[i] for i in batch])
                for i, part in zip(batch, parts, strict=True):
                    values[i] = part.float().cpu().numpy()
        return values

    def gradient(
        self,
        samples: Sequence[TrainSample],
        hyper: Hyperparameters,
        old: Sequence[Any] | None = None,
    ) -> tuple[float, Any]:
        """Return the loss and its gradient by all trained parameters, before clipping."""
        values = advantages(samples, hyper).values
        sampled = [None] * len(samples) if old is None else list(old)
        reference = self._retry(lambda: self._reference(samples, hyper))
        sums, grad = self._retry(lambda: self._pass(samples, values, sampled, reference, hyper))
        return sums.loss / _targets(samples), grad

    def update(
        self, samples: Sequence[TrainSample], hyper: Hyperparameters, step: int, decay: float = 0.0
    ) -> UpdateStats:
        """Run one policy update: `hyper.epochs` optimizer steps on the batch.

        A batch in which no group has an advantage counts as an update but makes no optimizer step:
        momentum would move the weights. Its figures are those of one pass.

        The seconds of the result are without those of publishing the last weights, which `extra`
        has as `publish_seconds`.

        Raises:
            ValueError: no sampled ids, or a gradient that is not finite; the caller restores the
                weights.
        """
        began = time.perf_counter()
        group_advantages = advantages(samples, hyper)
        targets = _targets(samples)
        if not targets:
            raise ValueError("the batch holds no sampled tokens")
        published = 0.0
        old: list[Any] = [None] * len(samples)
        reference = self._retry(lambda: self._reference(samples, hyper))
        epochs: list[LossSums] = []
        norm = 0.0

        def run_pass() -> tuple[LossSums, Any]:
            return self._pass(samples, group_advantages.values, old, reference, hyper)

        if not group_advantages.signal:
            epochs.append(self._retry(run_pass)[0])
        for _ in range(max(1, hyper.epochs) if group_advantages.signal else 0):
            sums, grad, norm = self._finite(run_pass)
            if norm > hyper.grad_clip > 0:
                grad *= hyper.grad_clip / norm
            self.optimizer.step(grad, hyper, decay)
            self._wait()
            before = time.perf_counter()
            self.publish()
            self._wait()
            published = time.perf_counter() - before
            epochs.append(sums)
        gap = _gap(samples, old)
        seconds = time.perf_counter() - began - published
        return update_stats(
            samples,
            group_advantages,
            epochs,
            targets=targets,
            norm=norm,
            seconds=seconds,
            step=step,
            extra={"sampler_gap": gap, "publish_seconds": published},
        )

    def _wait(self) -> None:
        """Wait for the card, so that times are those of its work."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _finite(self, work: Callable[[], tuple[LossSums, Any]]) -> tuple[LossSums, Any, float]:
        """Run a pass; return its sums, its gradient and the gradient's norm.

        Raises:
            ValueError: the gradient is not finite.
        """
        sums, grad = self._retry(work)
        norm = float(grad.norm())
        if not math.isfinite(norm):
            raise ValueError("the gradient is not finite: this batch can not be trained on")
        return sums, grad, norm

    def _reference(
        self, samples: Sequence[TrainSample], hyper: Hyperparameters
    ) -> Sequence[Any] | None:
        """Return the log-probs of the reference; None when no KL needs them."""
        return self.logprobs(samples, reference=True) if hyper.kl else None

    def _retry(self, work: Any) -> Any:
        """Run `work`; when the memory runs out, run it again with micro-batches of half the size of
        the one that did not fit. A sample alone is tried twice."""
        before, tried_alone = self.budget, False
        while True:
            try:
                return work()
            except RuntimeError as error:
                samples, ids = self._running
                if not is_out_of_memory(error) or (samples <= 1 and tried_alone):
                    self.budget = before  # this sample does not fit alone: others may
                    raise
                if samples > 1:
                    self.budget = min(self.budget, ids) // 2
                tried_alone = samples <= 1
                log.warning("the memory ran out: micro-batches have %d ids now", self.budget)
            self.model.zero_grad(set_to_none=True)
            self.model.eval()
            if self._device.type == "cuda":
                torch.cuda.empty_cache()
            elif self._device.type == "mps":
                torch.mps.empty_cache()

    def _pass(
        self,
        samples: Sequence[TrainSample],
        values: Any,
        old: list[Any],
        reference: Sequence[Any] | None,
        hyper: Hyperparameters,
    ) -> tuple[LossSums, Any]:
        """Return the sums and the gradient of one pass over the batch.

        Args:
            samples: The batch.
            values: Advantage of each sample.
            old: Log-probs when sampled; those that are None are set to the present ones.
            reference: Log-probs of the reference; None without a KL.
            hyper: Of the objective.
        """
        with self._training():
            sums = LossSums()
            targets = _targets(samples)
            total = torch.zeros_like(self.optimizer.flat)
            ends = np.cumsum([parameter.numel() for parameter in self.trained]).tolist()
            gradients = [
                total[end - parameter.numel() : end].view_as(parameter)
                for end, parameter in zip(ends, self.trained, strict=True)
            ]
            first = list(old)
            for batch in self._batches(samples):
                parts, entropy = self._forward([samples[i] for i in batch])
                logprobs = torch.cat(parts)
                if not len(logprobs):
                    continue
                new = logprobs.detach().float().cpu().numpy()
                counts = [len(part) for part in parts]
                for i, part in zip(batch, np.split(new, np.cumsum(counts)[:-1]), strict=True):
                    first[i] = part if first[i] is None else first[i]
                losses = token_loss(
                    new,
                    np.concatenate([first[i] for i in batch]),
                    new if reference is None else np.concatenate([reference[i] for i in batch]),
                    np.repeat(values[batch], counts).astype(np.float32),
                    hyper,
                )
                sums.count(losses, float(entropy))
                slope = torch.from_numpy(losses.slope / targets).to(logprobs)
                logprobs.backward(slope)
                for gradient, parameter in zip(gradients, self.trained, strict=True):
                    if parameter.grad is not None:
                        gradient.add_(parameter.grad)
                        parameter.grad = None
            old[:] = first
            return sums, total

    @contextmanager
    def _training(self) -> Iterator[None]:
        """Compute with gradients; however that ends, the model can sample afterwards."""
        try:
            if self._checkpointing:
                self.model.train()  # else transformers computes nothing again
            yield
        finally:
            self.model.zero_grad(set_to_none=True)
            self.model.eval()

    def _batches(self, samples: Sequence[TrainSample]) -> Iterator[list[int]]:
        """Yield indices of samples of similar length, within the budget when padded."""
        order = sorted(range(len(samples)), key=lambda i: -_length(samples[i]))
        while order:
            width = _length(samples[order[0]])
            count = min(len(order), max(1, self.budget // max(1, width)))
            self._running = (count, count * width)
            yield order[:count]
            order = order[count:]

    def _forward(self, samples: Sequence[TrainSample]) -> tuple[list[Any], Any]:
        """Return the log-probs of each sample's targets, and the sum of their entropies."""
        width = max(map(_length, samples))
        ids = torch.zeros((len(samples), width), dtype=torch.long)
        rows, places, counts = [], [], []
        for row, sample in enumerate(samples):
            sequence = (*sample.prompt_tokens, *sample.tokens)
            ids[row, : len(sequence)] = torch.tensor(sequence)
            first = len(sample.prompt_tokens)
            at = [first + i for i, sampled in enumerate(sample.sampled) if sampled]
            rows += [row] * len(at)
            places += at
            counts.append(len(at))
        ids = ids.to(self._device)
        # Padding stands at the end, where causal attention hides it from all ids of the sample.
        hidden = self._body(input_ids=ids, use_cache=False).last_hidden_state
        where = torch.tensor([rows, places], device=self._device)
        states, targets = hidden[where[0], where[1] - 1], ids[where[0], where[1]]
        logprobs, entropy = self._head.logprobs(states, targets)
        return list(logprobs.split(counts)), entropy


def _enable_checkpointing(model: Any) -> None:
    """Let a model of transformers compute activations again; 5.23 renames the method."""
    names = ("activation_checkpointing_enable", "gradient_checkpointing_enable")
    getattr(model, next(name for name in names if hasattr(model, name)))({"use_reentrant": False})


def _targets(samples: Sequence[TrainSample]) -> int:
    """Return the number of sampled ids."""
    return sum(sum(sample.sampled) for sample in samples)


def _length(sample: TrainSample) -> int:
    return len(sample.prompt_tokens) + len(sample.tokens)


def _gap(samples: Sequence[TrainSample], old: Sequence[Any]) -> float:
    """Return the mean distance of the sampler's log-probs to those of the forward pass."""
    stored = [logprob for sample in samples for logprob in sample.sampled_logprobs]
    computed = [values for values in old if values is not None]
    return float(np.abs(np.array(stored) - np.concatenate(computed)).mean())
