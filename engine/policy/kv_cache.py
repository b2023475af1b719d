"""Inference with a key-value cache: one prompt at a time in, one token a live row out.

A token step of a small network is many small operations, so their number is what it costs: gains,
scales and the half of the gate are folded into copies of the weights. A larger one is as long as
its weights take to be read, and copies of them are too large to keep. In both the pairs that
rotary positions turn lie side by side, so that one complex product turns them.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.training.model import EPS, Array, Config, Params, head_logits, layer_forward, rope_table

_ROW_GAP = 5
"""Positions that are left free between rows: at a power of two of bytes from each other they would
all fall into the same few places of the processor's caches."""


def _interleaved_order(config: Config) -> Array:
    """Order of the columns of `qkv` in which the two halves of each pair are neighbours."""
    turned, half = (config.heads + config.pairs) * config.head, config.head // 2
    neighbours = np.arange(turned).reshape(-1, 2, half).swapaxes(1, 2).ravel()
    return np.concatenate([neighbours, np.arange(turned, turned + config.pairs * config.head)])


class _StepWeights:
    """Weights as a token step wants them: rows that are normalised but for the gain, `@` each.

    `layers` has four of them a block: to queries (scaled), keys and values, the halves of each pair
    side by side; from what was mixed; to half the gate and what it lets through; from those.
    `head` gives logits but for their bias.
    """

    layers: Sequence[tuple[Any, Any, Any, Any]]
    head: Any

    def close(self) -> None:
        """Nothing is held."""


class _Folded(_StepWeights):
    """Copies with all that can be folded in; float32."""

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
    """A weight as it is, and what is done to the rows before and after; two halves at once."""

    other: ThreadPoolExecutor
    weight: Array
    gain: Array | None = None
    order: Array | None = None
    first: int = 0
    """So many columns are scaled."""
    scale: float = 1.0

    __array_ufunc__ = None
    """`rows @ product` is for `__rmatmul__`."""

    def __rmatmul__(self, x: Array) -> Array:
        if self.gain is not None:
            x = x * (self.gain * np.float32(len(self.gain) ** 0.5))
        made = self._times(x)
        if self.order is not None:
            made = np.take(made, self.order, 1)
        if self.first:
            made[:, : self.first] *= np.float32(self.scale)
        return made

    def _times(self, x: Array) -> Array:
        weight = self.weight
        if len(x) == 1:  # as long as its weights take to come: a second core brings none sooner
            return np.asarray(x @ weight)
        half = weight.shape[1] // 2
        made = np.empty((len(x), weight.shape[1]), x.dtype)
        other = self.other.submit(np.matmul, x, weight[:, :half], made[:, :half])
        np.matmul(x, weight[:, half:], made[:, half:])
        other.result()
        return made


class _Unfolded(_StepWeights):
    """The weights themselves."""

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
        """Let the thread end."""
        self._other.shutdown(wait=True)


def _normalised(x: Array) -> Array:
    """Rows of `x` normalised to a length of about 1: RMSNorm but for its gain and sqrt(width)."""
    scale = np.vecdot(x, x)
    scale += np.float32(x.shape[1] * EPS)
    np.sqrt(scale, out=scale)
    made: Array = x / scale[:, None]
    return made


class KVCache:
    """Keys and values of all live rows; rows are compact, 0 to n-1.

    Memory is bounded by the config's places: 67 MB for the shipped sizes.
    """

    def __init__(self, params: Params, slots: int) -> None:
        config = params.config
        self._params = params
        self._weights: _StepWeights = _Folded(params) if config.folded else _Unfolded(params)
        self._first = config.first if config.frozen else -1
        self._slots, self._length = 0, 0
        self._held = np.zeros((config.layers, 2, 0, config.pairs, _ROW_GAP, config.head), "f")
        """Keys and values of each layer."""
        self._entering = np.zeros((0, 0, config.width), "f")
        """What the first trained block read."""
        if config.folded:
            self.reserve(slots, config.context)
        cos, sin = rope_table(config, "<f4")
        self._turns = cos + 1j * sin
        """(context, head / 2) complex64."""
        self._places = np.arange(config.context)

    def use(self, params: Params) -> None:
        """Other weights of the same sizes, or the same ones changed; the rows must all be over."""
        if self._params is not params or params.config.folded:
            self._weights.close()
            self._weights = _Folded(params) if params.config.folded else _Unfolded(params)
        self._params = params

    def close(self) -> None:
        """Let go of the threads."""
        self._weights.close()

    def reserve(self, rows: int, length: int) -> bool:
        """Make room for so many rows of at most that length, keeping what is held of them.

        Returns:
            False when that is over the bound; there is always room for one row.
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
        layers, two, had, pairs, _, head = self._held.shape
        held = np.zeros((layers, two, slots, pairs, longest + _ROW_GAP, head), np.float32)
        entering = np.zeros((slots if self._first >= 0 else 0, longest, config.width), np.float32)
        kept, upto = min(had, slots), min(longest, self._length)
        held[:, :, :kept, :, :upto] = self._held[:, :, :kept, :, :upto]
        entering[:kept, :upto] = self._entering[:kept, :upto]
        self._held, self._entering = held, entering
        self._slots, self._length = slots, longest
        return True

    def prefill(self, prompt: Array, row: int) -> Array:
        """Read a whole prompt into `row`; logits (vocab,) of its next token."""
        params = self._params
        x = params["embed"][prompt]
        length, half = len(prompt), params.config.head // 2
        for i in range(params.config.layers):
            if i == self._first:
                self._entering[row, :length] = x
            tape = layer_forward(params, i, x, 1, length)
            keys = self._held[i, 0, row, :, :length]
            keys[..., 0::2] = tape.k[0, ..., :half]
            keys[..., 1::2] = tape.k[0, ..., half:]
            self._held[i, 1, row, :, :length] = tape.v[0]
        logits: Array = head_logits(params, x[-1:])[0]
        return logits

    def copy(self, source: int, target: int, length: int) -> None:
        """Give `target` the first `length` positions of `source`."""
        self._held[:, :, target, :, :length] = self._held[:, :, source, :, :length]
        if self._first >= 0:
            self._entering[target, :length] = self._entering[source, :length]

    def entering(self, row: int, length: int) -> Array:
        """A copy of what the first trained block read at the first positions of a row."""
        return self._entering[row, :length].copy()

    def decode(self, tokens: Array, positions: Array) -> Array:
        """Append one token to each of the first rows.

        Args:
            tokens: (rows,) ids to append.
            positions: (rows,) where each goes.

        Returns:
            Logits (rows, vocab) of the tokens after them.
        """
        weights, params = self._weights, self._params
        config = params.config
        rows, hidden, width, head = len(tokens), config.hidden, config.width, config.head
        pairs, turned = config.pairs, config.heads + config.pairs
        asked = (rows, pairs, config.shared, head)
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
            made = _normalised(x) @ qkv
            made.view(np.complex64).reshape(rows, -1, head // 2)[:, :turned] *= turns
            query = made[:, :width].reshape(asked)
            fresh = made[:, width:].reshape(rows, 2, pairs, head)
            if ahead is None:
                self._held[i, :, :rows, :, longest - 1] = fresh.swapaxes(0, 1)
            else:
                self._held[i, :, every, :, positions] = fresh
            keys, values = self._held[i, :, :rows, :, :longest]
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
