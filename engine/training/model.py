"""The network: a small Llama-like transformer in numpy (RMSNorm, RoPE, SwiGLU, tied head).

Touvron et al. 2023 for the block, Su et al. 2021 for the rotary positions. Every function works in
the dtype of the parameters, so that gradients can be checked in float64.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
EPS = 1e-5
BLOCKED = -1e9
"""Logit of a token that must never be sampled."""
THETA = 10000.0
"""Base of the rotary frequencies."""


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes of the network; the defaults are those of the shipped weights."""

    vocab: int = 1024
    width: int = 128
    layers: int = 4
    heads: int = 4
    hidden: int = 352
    context: int = 512
    blocked: tuple[int, ...] = ()
    """Ids whose logit is always `BLOCKED`: tags that only the template writes."""

    @property
    def head(self) -> int:
        """Width of one attention head."""
        return self.width // self.heads

    def shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield name and shape of every parameter, in storage order."""
        d = self.width
        yield "embed", (self.vocab, d)
        for i in range(self.layers):
            yield f"{i}.norm1", (d,)
            yield f"{i}.qkv", (d, 3 * d)
            yield f"{i}.out", (d, d)
            yield f"{i}.norm2", (d,)
            yield f"{i}.gate_up", (d, 2 * self.hidden)
            yield f"{i}.down", (self.hidden, d)
        yield "norm", (d,)


class Params:
    """All parameters in one flat vector with named views into it.

    Args:
        config: Sizes.
        flat: The parameters; zeros by default.
    """

    def __init__(self, config: Config, flat: Array | None = None) -> None:
        self.config = config
        shapes = dict(config.shapes())
        size = sum(math.prod(shape) for shape in shapes.values())
        if flat is None:
            flat = np.zeros(size, np.float32)
        if flat.shape != (size,):
            raise ValueError(f"{flat.size} parameters given, the network has {size}")
        self.flat = flat
        self._views: dict[str, Array] = {}
        start = 0
        for name, shape in shapes.items():
            stop = start + math.prod(shape)
            self._views[name] = flat[start:stop].reshape(shape)
            start = stop
        self.head_bias = np.zeros(config.vocab, flat.dtype)
        self.head_bias[list(config.blocked)] = BLOCKED

    def __getitem__(self, name: str) -> Array:
        return self._views[name]

    def offset(self, name: str) -> int:
        """Return the start of a parameter in the flat vector."""
        start = 0
        for other, view in self._views.items():
            if other == name:
                return start
            start += view.size
        raise KeyError(name)

    def add(self, name: str, value: Array) -> None:
        """Add to one parameter in place."""
        self._views[name] += value

    def names(self) -> tuple[str, ...]:
        """Return the names of the parameters in storage order."""
        return tuple(self._views)

    def copy(self) -> "Params":
        """Return a copy with its own memory."""
        return Params(self.config, self.flat.copy())

    def like(self) -> "Params":
        """Return zeros of the same shapes, as an accumulator of gradients."""
        return Params(self.config, np.zeros_like(self.flat))

    @classmethod
    def initial(cls, config: Config, seed: int) -> "Params":
        """Return random initial values: normal 0.02, residual outputs scaled down by the depth."""
        params = cls(config)
        rng = np.random.default_rng(seed)
        for name in params.names():
            view = params[name]
            if "norm" in name:
                view[...] = 1.0
                continue
            scale = 0.02
            if name.endswith((".out", ".down")):
                scale /= math.sqrt(2 * config.layers)
            view[...] = rng.standard_normal(view.shape) * scale
        return params


@lru_cache(maxsize=8)
def rope_table(config: Config, dtype: str) -> tuple[Array, Array]:
    """Return cosines and sines of the rotary positions, each (context, head / 2)."""
    context, head = config.context, config.head
    speed = THETA ** (-np.arange(0, head, 2) / head)
    angle = np.outer(np.arange(context), speed)
    return np.cos(angle).astype(dtype), np.sin(angle).astype(dtype)


@lru_cache(maxsize=64)
def causal_mask(length: int, dtype: str) -> Array:
    """Return (length, length): 0 where a position may attend, -inf elsewhere."""
    mask = np.zeros((length, length), dtype)
    mask[np.triu_indices(length, 1)] = -np.inf
    return mask


def rotate(x: Array, cos: Array, sin: Array) -> Array:
    """Rotate each pair of `x` (..., head) by its position's angle; negative `sin` rotates back."""
    half = x.shape[-1] // 2
    result = np.empty_like(x)
    a, b = x[..., :half], x[..., half:]
    np.subtract(a * cos, b * sin, out=result[..., :half])
    np.add(a * sin, b * cos, out=result[..., half:])
    return result


def normed(x: Array) -> tuple[Array, Array]:
    """Return RMS-normalised rows of `x` (n, width) and the factor of each row (n, 1)."""
    scale = 1.0 / np.sqrt(np.einsum("nd,nd->n", x, x)[:, None] / x.shape[1] + EPS)
    scale = scale.astype(x.dtype)
    return x * scale, scale


def sigmoid(x: Array) -> Array:
    """Return the logistic function, without overflow warnings."""
    return 0.5 * (np.tanh(0.5 * x) + 1.0)


def softmax_(scores: Array) -> Array:
    """Apply softmax to the last axis, in place."""
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores


def log_softmax(logits: Array) -> Array:
    """Return log-probabilities over the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    result: Array = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def head_logits(params: Params, x: Array) -> Array:
    """Return logits (n, vocab) of final hidden rows `x` (n, width), taken before the last norm."""
    unit, _ = normed(x)
    return (unit * params["norm"]) @ params["embed"].T + params.head_bias


@dataclass(slots=True)
class LayerTape:
    """Data for the backward pass of one layer. In the last layer, `mixed` and all later fields
    contain only the rows at `where`."""

    unit1: Array
    scale1: Array
    q: Array
    k: Array
    v: Array
    attention: Array
    mixed: Array
    unit2: Array
    scale2: Array
    gate_up: Array


@dataclass(slots=True)
class Tape:
    """Data for the backward pass of one shard."""

    tokens: Array
    where: Array
    layers: list[LayerTape]
    unit: Array
    scale: Array


def split_heads(x: Array, rows: int, length: int, head: int) -> Array:
    """Return (rows * length, heads * head) as a view (rows, heads, length, head)."""
    view: Array = x.reshape(rows, length, -1, head).transpose(0, 2, 1, 3)
    return view


def join_heads(x: Array) -> Array:
    """Return (rows, heads, length, head) as (rows * length, heads * head)."""
    rows, _, length, _ = x.shape
    return x.transpose(0, 2, 1, 3).reshape(rows * length, -1)


def _attend(params: Params, i: int, x: Array, rows: int, length: int) -> LayerTape:
    """Compute the attention of one block up to its output projection; the second half of the
    tape is a placeholder."""
    config = params.config
    head = config.head
    d = config.width
    dtype = x.dtype.str
    cos, sin = rope_table(config, dtype)
    cos, sin = cos[:length], sin[:length]
    unit1, scale1 = normed(x)
    qkv = (unit1 * params[f"{i}.norm1"]) @ params[f"{i}.qkv"]
    q = rotate(split_heads(qkv[:, :d], rows, length, head), cos, sin)
    q *= head**-0.5
    k = rotate(split_heads(qkv[:, d : 2 * d], rows, length, head), cos, sin)
    v = np.ascontiguousarray(split_heads(qkv[:, 2 * d :], rows, length, head))
    scores = q @ k.transpose(0, 1, 3, 2)
    scores += causal_mask(length, dtype)
    attention = softmax_(scores)
    mixed = join_heads(attention @ v)
    return LayerTape(unit1, scale1, q, k, v, attention, mixed, unit1, scale1, qkv)


def _feed_forward(params: Params, i: int, x: Array, tape: LayerTape) -> None:
    """Compute the rest of one block: add to `x` (n, width) in place and complete the tape."""
    hidden = params.config.hidden
    x += tape.mixed @ params[f"{i}.out"]
    tape.unit2, tape.scale2 = normed(x)
    tape.gate_up = (tape.unit2 * params[f"{i}.norm2"]) @ params[f"{i}.gate_up"]
    gate, up = tape.gate_up[:, :hidden], tape.gate_up[:, hidden:]
    x += (gate * sigmoid(gate) * up) @ params[f"{i}.down"]


def layer_forward(params: Params, i: int, x: Array, rows: int, length: int) -> LayerTape:
    """Compute one block over right-padded rows; adds to `x` (rows * length, width) in place."""
    tape = _attend(params, i, x, rows, length)
    _feed_forward(params, i, x, tape)
    return tape


def _layers(params: Params, tokens: Array, where: Array) -> tuple[Array, list[LayerTape]]:
    """Return the final hidden rows at `where` and all tapes; the last block continues with those
    rows only."""
    rows, length = tokens.shape
    x: Array = params["embed"][tokens.ravel()]
    last = params.config.layers - 1
    tapes = [layer_forward(params, i, x, rows, length) for i in range(last)]
    tape = _attend(params, last, x, rows, length)
    tape.mixed = tape.mixed[where]
    x = x[where]
    _feed_forward(params, last, x, tape)
    return x, [*tapes, tape]


def forward(params: Params, tokens: Array, where: Array) -> tuple[Array, Tape]:
    """Return logits at chosen positions of right-padded rows, and the tape for `backward`.

    Args:
        params: Weights.
        tokens: (rows, length) ids, length <= context.
        where: Flat indices into rows * length whose next token is predicted, each once.

    Returns:
        Logits (len(where), vocab) and the tape.
    """
    x, layers = _layers(params, tokens, where)
    unit, scale = normed(x)
    logits = (unit * params["norm"]) @ params["embed"].T + params.head_bias
    return logits, Tape(tokens, where, layers, unit, scale)


def logits_only(params: Params, tokens: Array, where: Array) -> Array:
    """Return the logits of `forward` without a tape."""
    x, _ = _layers(params, tokens, where)
    return head_logits(params, x)
