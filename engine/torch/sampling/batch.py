"""Rows of a batch with their keys and values, aligned at their last token.

A row with fewer tokens begins later; the attention mask hides what stands before it. `RowBatch` is
what the sampler needs of a batch; `GrowingBatch` works with every model and device.
"""

import functools
import inspect
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from transformers import DynamicCache


class RowBatch(Protocol):
    """Logits, keys and values of the rows being sampled."""

    @property
    def logits(self) -> Any:
        """Logits of each row's next token, (rows, vocab) in float32."""

    def join(self, prompt: Sequence[int], count: int) -> None:
        """Add `count` rows with the same prompt, computed once."""

    def keep(self, index: Sequence[int]) -> None:
        """Keep these rows in this order; at least one."""

    def decode(self, tokens: Sequence[int]) -> None:
        """Append one token to each row and compute the next logits."""

    def clear(self) -> None:
        """Drop all rows with their keys and values."""

    def release(self) -> None:
        """Drop all rows and free the memory."""

    def resize(self, slots: int) -> None:
        """Drop all rows, free the memory, and need none for more than `slots` rows from now on."""


def with_cache(model: Any, cache: Any) -> dict[str, Any]:
    """Return the arguments that make a model use and extend a cache.

    transformers 5.24 renames the argument; from 5.40 on it has only the new name.
    """
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    kind: Any = type(base)
    return {_cache_argument(kind): cache, "use_cache": True}


@functools.cache
def _cache_argument(kind: Any) -> str:
    known = inspect.signature(kind.forward).parameters
    return "cache" if "cache" in known else "past_key_values"


def prefill(model: Any, prompt: Sequence[int], device: Any) -> tuple[Any, Any]:
    """Return the cache of transformers after a prompt, and the logits (1, vocab) in float32."""
    cache = DynamicCache(config=model.config)
    ids = torch.tensor([tuple(prompt)], device=device)
    result = model(input_ids=ids, logits_to_keep=1, **with_cache(model, cache))
    return cache, result.logits[:, -1].float()


class GrowingBatch:
    """`RowBatch` by the growing cache of transformers.

    Args:
        model: In evaluation mode.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._device = next(model.parameters()).device
        self._cache: Any = None
        self._mask: Any = None
        self._logits: Any = None

    @property
    def logits(self) -> Any:
        """Logits of each row's next token."""
        return self._logits

    def join(self, prompt: Sequence[int], count: int) -> None:
        """Add rows; the shorter side is padded at its start."""
        cache, logits = prefill(self._model, prompt, self._device)
        if count > 1:
            cache.batch_repeat_interleave(count)
        logits = logits.repeat(count, 1)
        mask = torch.ones((count, len(prompt)), dtype=torch.long, device=self._device)
        if self._cache is None:
            self._cache, self._mask, self._logits = cache, mask, logits
            return
        width = max(mask.shape[1], self._mask.shape[1])
        for mine, other in zip(self._cache.layers, cache.layers, strict=True):
            mine.keys = torch.cat([_widen(mine.keys, width), _widen(other.keys, width)])
            mine.values = torch.cat([_widen(mine.values, width), _widen(other.values, width)])
        both = (self._mask, mask)
        self._mask = torch.cat(
            [torch.nn.functional.pad(tensor, (width - tensor.shape[1], 0)) for tensor in both]
        )
        self._logits = torch.cat([self._logits, logits])

    def keep(self, index: Sequence[int]) -> None:
        """Keep rows, and drop the padding that no row needs any more."""
        chosen = torch.tensor(index, device=self._device)
        self._cache.batch_select_indices(chosen)
        self._mask, self._logits = self._mask[chosen], self._logits[chosen]
        spare = int(self._mask.argmax(dim=1).min())
        if spare:
            self._mask = self._mask[:, spare:]
            for layer in self._cache.layers:
                layer.keys = layer.keys[:, :, spare:]
                layer.values = layer.values[:, :, spare:]

    def decode(self, tokens: Sequence[int]) -> None:
        """Compute the logits after one more token of each row."""
        positions = self._mask.sum(dim=1, keepdim=True)
        self._mask = torch.nn.functional.pad(self._mask, (0, 1), value=1)
        result = self._model(
            input_ids=torch.tensor(tokens, device=self._device)[:, None],
            attention_mask=self._mask,
            position_ids=positions,
            **with_cache(self._model, self._cache),
        )
        self._logits = result.logits[:, -1].float()

    def clear(self) -> None:
        """Drop all rows."""
        self._cache = self._mask = self._logits = None

    def release(self) -> None:
        """Drop all rows and free their memory."""
        self.clear()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def resize(self, slots: int) -> None:
        """Drop all rows; memory is taken for rows that exist only."""
        self.release()


def _widen(values: Any, width: int) -> Any:
    """Return keys or values (rows, heads, length, size) padded at the start to a length."""
    return torch.nn.functional.pad(values, (0, 0, width - values.shape[2], 0))
