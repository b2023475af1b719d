"""Inference with a key-value cache: prefill of one prompt at a time, one token per live row per
step.

A token step of a small network consists of many small operations, so their number determines its
cost: gains, scales and the factor of the gate are folded into copies of the weights. A step of a
larger network is bound by reading its weights, and copies would be too large. In both, the pairs of
rotary positions are adjacent, so that one complex product rotates them.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.training.model import EPS, Array, Config, Params, head_logits, layer_forward, rope_table

_ROW_GAP = 5
"""Unused positions between rows: rows at a distance of a power of two bytes would map to the
same few cache lines of the processor."""


def _interleaved_order(config: Config) -> Array:
    """Return the order of the columns of `qkv` in which the two halves of each pair are
    adjacent."""
    turned, half = (config.heads + config.pairs) * config.head, config.head // 2
    neighbours = np.arange(turned).reshape(-1, 2, half).swapaxes(1, 2).ravel()
    return np.concatenate([neighbours, np.arange(turned, turned + config.pairs * config.head)])


class _StepWeights:
    """Weights prepared for a token step; each is applied by `@` to rows normalised without their
    gain.

    `layers` has four per block: to queries (scaled), keys and values, with adjacent pairs; the
    attention output; to half the gate and the gated values; the output of the feed-forward part.
    `head` gives logits without their bias.
    """

    layers: Sequence[tuple[Any, Any, Any, Any]]
    head: Any

    def close(self) -> None:
        """Release threads; nothing by default."""


class _Folded(_StepWeights):
    """Copies of the weights with gains and scales folded in; float32."""

    def __init__(self, params: Params) -> None:
        config = params.config
        d, order = config.width, _interleaved_order(config)
        root = d**0.5
        factor = np.full(len(order), root, np.float32)
        factor[:d] *= config.head**-0.5
        halved = np.full(2 * config.hidden, root, np.float32)
        halved[: config.hidden] *= 0.5
        self.layers = [
            (
                np.take(params[f"{i}.norm1"][:, None] * params[f"{i}.qkv"], order, 1) * factor,
                params[f"{i}.out"],
                params[f"{i}.norm2"][:, None] * params[f"{i}.gate_up"] * halved,
                params[f"{i}.down"],
            )
            for i in range(config.layers)
        ]
        self.head = np.ascontiguousarray((params["embed"] * (params["norm"] * root)).T)


@dataclass(slots=True)
class _Product:
    """An unmodified weight and the scaling of its input and output; computed in two halves at
    once."""

    other: ThreadPoolExecutor
    weight: Array
    gain: Array | None = None
    order: Array | None = None
    first: int = 0
    """Number of columns that are scaled."""
    scale: float = 1.0

    __array_ufunc__ = None
    """Makes numpy defer `rows @ product` to `__rmatmul__`."""

    def __rmatmul__(self, x: Array) -> Array:
        if self.gain is not None:
            x = x * (self.gain * np.float32(len(self.gain) ** 0.5))
        result = self._times(x)
        if self.order is not None:
            result = np.take(result, self.order, 1)
        if self.first:
            result[:, : self.first] *= np.float32(self.scale)
        return result

    def _times(self, x: Array) -> Array:
        weight = self.weight
        if len(x) == 1:  # bound by memory bandwidth: a second core does not help
            return np.asarray(x @ weight)
        half = weight.shape[1] // 2
        result = np.empty((len(x), weight.shape[1]), x.dtype)
        first_half = self.other.submit(np.matmul, x, weight[:, :half], result[:, :half])
        np.matmul(x, weight[:, half:], result[:, half:])
        first_half.result()
        return result


class _Unfolded(_StepWeights):
    """The weights themselves, without copies."""

    def __init__(self, params: Params) -> None:
        config, order = params.config, _interleaved_order(params.config)
        self._other = other = ThreadPoolExecutor(1, thread_name_prefix="half")
        scale = config.head**-0.5
        self.layers = [
            (
                _Product(
                    other, params[f"{i}.qkv"], params[f"{i}.norm1"], order, config.width, scale
                ),
                _Product(other, params[f"{i}.out"]),
                _Product(
                    other, params[f"{i}.gate_up"], params[f"{i}.norm2"], None, config.hidden, 0.5
                ),
                _Product(other, params[f"{i}.down"]),
            )
            for i in range(config.layers)
        ]
        self.head = _Product(other, params["embed"].T, params["norm"])

    def close(self) -> None:
        self._other.shutdown(wait=True)


def _normalised(x: Array) -> Array:
    """Return the rows of `x` scaled to a length of about 1: RMSNorm without its gain and
    sqrt(width)."""
    scale = np.vecdot(x, x)
    scale += np.float32(x.shape[1] * EPS)
    np.sqrt(scale, out=scale)
    unit: Array = x / scale[:, None]
    return unit


class KVCache:
    """Keys and values of all live rows; rows are compact, 0 to n-1.

    Memory is bounded by `Config.places`: 67 MB for the shipped sizes.
    """

    def __init__(self, params: Params, slots: int) -> None:
        config = params.config
        self._params = params
        self._weights: _StepWeights = _Folded(params) if config.folded else _Unfolded(params)
        self._first = config.first if config.frozen else -1
        self._slots, self._length = 0, 0
        self._keys_values = np.zeros(
            (config.layers, 2, 0, config.pairs, _ROW_GAP, config.head), "f"
        )
        """Keys and values of each layer."""
        self._entering = np.zeros((0, 0, config.width), "f")
        """Input of the first trained block."""
        if config.folded:
            self.reserve(slots, config.context)
        cos, sin = rope_table(config, "<f4")
        self._turns = cos + 1j * sin
        """(context, head / 2) complex64."""
        self._places = np.arange(config.context)

    def use(self, params: Params) -> None:
        """Use other weights of the same sizes, or the same ones after a change; no row may be
        live."""
        if self._params is not params or params.config.folded:
            self._weights.close()
            self._weights = _Folded(params) if params.config.folded else _Unfolded(params)
        self._params = params

    def close(self) -> None:
        """Stop the threads."""
        self._weights.close()

    def reserve(self, rows: int, length: int) -> bool:
        """Make room for `rows` rows of at most `length` positions; stored rows are preserved.

        Returns:
            False when that exceeds the bound; one row always fits.
        """
        if rows <= self._slots and length <= self._length:
            return True
        config = self._params.config
        slots = max(4, 1 << (rows - 1).bit_length())
        longest = min(config.context, max(256, 1 << (length - 1).bit_length()))
        if slots * longest > config.places:
            slots, longest = rows, length
        if slots * longest > config.places and rows > 1:
            return False
        layers, two, old_slots, pairs, _, head = self._keys_values.shape
        keys_values = np.zeros((layers, two, slots, pairs, longest + _ROW_GAP, head), np.float32)
        entering = np.zeros((slots if self._first >= 0 else 0, longest, config.width), np.float32)
        copied, upto = min(old_slots, slots), min(longest, self._length)
        keys_values[:, :, :copied, :, :upto] = self._keys_values[:, :, :copied, :, :upto]
        entering[:copied, :upto] = self._entering[:copied, :upto]
        self._keys_values, self._entering = keys_values, entering
        self._slots, self._length = slots, longest
        return True

    def prefill(self, prompt: Array, row: int) -> Array:
        """Read a whole prompt into `row`; return the logits (vocab,) of its next token."""
        params = self._params
        x = params["embed"][prompt]
        length, half = len(prompt), params.config.head // 2
        for i in range(params.config.layers):
            if i == self._first:
                self._entering[row, :length] = x
            tape = layer_forward(params, i, x, 1, length)
            keys = self._keys_values[i, 0, row, :, :length]
            keys[..., 0::2] = tape.k[0, ..., :half]
            keys[..., 1::2] = tape.k[0, ..., half:]
            self._keys_values[i, 1, row, :, :length] = tape.v[0]
        logits: Array = head_logits(params, x[-1:])[0]
        return logits

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` positions of row `source` to row `target`."""
        self._keys_values[:, :, target, :, :length] = self._keys_values[:, :, source, :, :length]
        if self._first >= 0:
            self._entering[target, :length] = self._entering[source, :length]

    def entering(self, row: int, length: int) -> Array:
        """Return a copy of the first trained block's input at the first positions of a row."""
        return self._entering[row, :length].copy()

    def decode(self, tokens: Array, positions: Array) -> Array:
        """Append one token to each of the first rows.

        Args:
            tokens: (rows,) ids to append.
            positions: (rows,) position of each.

        Returns:
            Logits (rows, vocab) of the next tokens.
        """
        weights, params = self._weights, self._params
        config = params.config
        rows, hidden, width, head = len(tokens), config.hidden, config.width, config.head
        pairs, turned = config.pairs, config.heads + config.pairs
        query_shape = (rows, pairs, config.shared, head)
        longest = int(positions.max()) + 1
        ahead = None
        if int(positions.min()) + 1 < longest:
            later = self._places[:longest] > positions[:, None]
            ahead = np.where(later, np.float32(-np.inf), np.float32(0))[:, None, None]
        turns = self._turns[positions][:, None]
        every = np.arange(rows)
        x = params["embed"][tokens]
        for i, (qkv, out, gate_up, down) in enumerate(weights.layers):
            if i == self._first:
                self._entering[every, positions] = x
            projected = _normalised(x) @ qkv
            projected.view(np.complex64).reshape(rows, -1, head // 2)[:, :turned] *= turns
            query = projected[:, :width].reshape(query_shape)
            fresh = projected[:, width:].reshape(rows, 2, pairs, head)
            if ahead is None:
                self._keys_values[i, :, :rows, :, longest - 1] = fresh.swapaxes(0, 1)
            else:
                self._keys_values[i, :, every, :, positions] = fresh
            keys, values = self._keys_values[i, :, :rows, :, :longest]
            scores = query @ keys.swapaxes(2, 3)
            if ahead is not None:
                scores += ahead
            scores -= scores.max(axis=3, keepdims=True)
            np.exp(scores, out=scores)
            mixed = scores @ values
            mixed /= scores.sum(axis=3, keepdims=True)
            x += mixed.reshape(rows, -1) @ out
            both = _normalised(x) @ gate_up
            gate = both[:, :hidden]
            swish = np.tanh(gate)
            swish += 1
            swish *= gate
            swish *= both[:, hidden:]
            x += swish @ down
        logits: Array = _normalised(x) @ weights.head
        logits += params.head_bias
        return logits
