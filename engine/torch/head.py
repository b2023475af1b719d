"""Log-probs of targets by the output layer, a part of the targets at a time.

The logits of a batch are its largest array by far; none of the functions here stores them for the
backward pass.
"""

from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from engine.torch.memory import BYTES_PER_LOGIT


class OutputHead:
    """The output layer of a model.

    Args:
        layer: Computes logits from the final hidden states.
        vocab: Number of logits.
        memory: Bytes for the logits of a part of the targets.
    """

    def __init__(self, layer: Any, vocab: int, memory: int) -> None:
        self._layer = layer
        self._rows = max(16, memory // (BYTES_PER_LOGIT * vocab))
        plain = type(layer) is torch.nn.Linear
        self._frozen = plain and not any(
            parameter.requires_grad for parameter in layer.parameters()
        )

    def logprobs(self, states: Any, targets: Any) -> tuple[Any, Any]:
        """Return the log-prob of each target and the sum of the entropies.

        Args:
            states: Final hidden states before each target, (n, hidden).
            targets: Ids, (n,).

        Returns:
            (n,) in float32, and a float32 scalar without a gradient; zero when none is recorded.
        """
        if not torch.is_grad_enabled():
            parts = [self._score(part, ids, False)[0] for part, ids in self._parts(states, targets)]
            entropy = states.new_zeros((), dtype=torch.float32)
            return _joined(parts, states), entropy
        if self._frozen:
            result: tuple[Any, Any] = _FrozenHead.apply(states, targets, self._layer, self._rows)
            return result
        pairs = [
            checkpoint(self._score, part, ids, True, use_reentrant=False)
            for part, ids in self._parts(states, targets)
        ]
        entropy = sum((part for _, part in pairs), states.new_zeros((), dtype=torch.float32))
        return _joined([log_probs for log_probs, _ in pairs], states), entropy

    def _parts(self, states: Any, targets: Any) -> Any:
        return zip(states.split(self._rows), targets.split(self._rows), strict=True)

    def _score(self, states: Any, targets: Any, with_entropy: bool) -> tuple[Any, Any]:
        logp = torch.log_softmax(self._layer(states), dim=-1, dtype=torch.float32)
        entropy = None
        if with_entropy:
            with torch.no_grad():
                entropy = _entropy(logp, logp.exp())
        return logp.gather(1, targets[:, None])[:, 0], entropy


class _FrozenHead(torch.autograd.Function):  # type: ignore[misc]
    """Log-probs by an output layer that is not trained.

    The gradient of a log-prob by its hidden state needs no slope: (one-hot - softmax) @ weight. It
    is computed while the logits exist, so the backward pass is one multiplication.
    """

    @staticmethod
    def forward(ctx: Any, states: Any, targets: Any, layer: Any, rows: int) -> tuple[Any, Any]:
        logprobs = states.new_empty(len(states), dtype=torch.float32)
        entropy = states.new_zeros((), dtype=torch.float32)
        direction = torch.empty_like(states)
        for start in range(0, len(states), rows):
            part = slice(start, start + rows)
            ids = targets[part, None]
            logp = torch.log_softmax(layer(states[part]), dim=-1, dtype=torch.float32)
            logprobs[part] = logp.gather(1, ids)[:, 0]
            probs = logp.exp()
            entropy += _entropy(logp, probs)
            slope = probs.neg_().scatter_add_(1, ids, torch.ones_like(ids, dtype=torch.float32))
            torch.matmul(slope.to(layer.weight.dtype), layer.weight, out=direction[part])
        ctx.save_for_backward(direction)
        ctx.mark_non_differentiable(entropy)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, slope: Any, _entropy: Any) -> tuple[Any, None, None, None]:
        """Return the gradient by the hidden states."""
        (direction,) = ctx.saved_tensors
        return direction * slope[:, None].to(direction.dtype), None, None, None


def _entropy(logp: Any, probs: Any) -> Any:
    """Return the sum of the entropies of rows; impossible ids (log-prob -inf) add nothing."""
    return -(probs * logp).nansum()


def _joined(parts: list[Any], states: Any) -> Any:
    return torch.cat(parts) if parts else states.new_zeros(0, dtype=torch.float32)
