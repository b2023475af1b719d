"""Inference with a key-value cache: one prompt at a time in, one token a live row out.

A token step is many small operations, so their number is what it costs: gains, scales and the half
of the gate are folded into copies of the weights, and the pairs that rotary positions turn lie side
by side, so that one complex product turns them.
"""

import numpy as np

from engine.model import EPS, Array, Params, head_logits, layer_forward, rope_table

_APART = 5
"""Positions that are left free between rows: at a power of two of bytes from each other they would
all fall into the same few places of the processor's caches."""


class _Folded:
    """Weights as a token step wants them; float32."""

    def __init__(self, params: Params) -> None:
        config = params.config
        d, half = config.width, config.head // 2
        pairs = np.arange(d).reshape(config.heads, 2, half).swapaxes(1, 2).ravel()
        order = np.concatenate([pairs, pairs + d, np.arange(2 * d, 3 * d)])
        root = d**0.5
        factor = np.full(3 * d, root, np.float32)
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
        self.embed = params["embed"]
        self.head = np.ascontiguousarray((params["embed"] * (params["norm"] * root)).T)
        self.bias = params.head_bias


def _unit(x: Array) -> Array:
    """Rows of `x` normalised to a length of about 1: RMSNorm but for its gain and sqrt(width)."""
    scale = np.vecdot(x, x)
    scale += np.float32(x.shape[1] * EPS)
    np.sqrt(scale, out=scale)
    made: Array = x / scale[:, None]
    return made


class Cache:
    """Keys and values of all live rows; rows are compact, 0 to n-1.

    Memory is bounded by slots x context: 2 MB a slot for the shipped sizes, touched only as used.
    """

    def __init__(self, params: Params, slots: int) -> None:
        config = params.config
        self._params = params
        self._folded = _Folded(params)
        shape = (config.layers, 2, slots, config.heads, config.context + _APART, config.head)
        self._held = np.zeros(shape, np.float32)
        """Keys and values of each layer."""
        cos, sin = rope_table(config.context, config.head, "<f4")
        self._turns = cos + 1j * sin
        """(context, head / 2) complex64."""
        self._places = np.arange(config.context)

    def use(self, params: Params) -> None:
        """Other weights of the same sizes, or the same ones changed; the rows must all be over."""
        self._params = params
        self._folded = _Folded(params)

    def prefill(self, prompt: Array, row: int) -> Array:
        """Read a whole prompt into `row`; logits (vocab,) of its next token."""
        params = self._params
        x = params["embed"][prompt]
        length, half = len(prompt), params.config.head // 2
        for i in range(params.config.layers):
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

    def decode(self, tokens: Array, positions: Array) -> Array:
        """Append one token to each of the first rows.

        Args:
            tokens: (rows,) ids to append.
            positions: (rows,) where each goes.

        Returns:
            Logits (rows, vocab) of the tokens after them.
        """
        folded, config = self._folded, self._params.config
        rows, heads, hidden = len(tokens), config.heads, config.hidden
        longest = int(positions.max()) + 1
        ahead = None
        if int(positions.min()) + 1 < longest:
            later = self._places[:longest] > positions[:, None]
            ahead = np.where(later, np.float32(-np.inf), np.float32(0))[:, None, None]
        turns = self._turns[positions][:, None, None]
        every = np.arange(rows)
        x = folded.embed[tokens]
        for i, (qkv, out, gate_up, down) in enumerate(folded.layers):
            made = _unit(x) @ qkv
            pairs = made.view(np.complex64).reshape(rows, 3, heads, -1)
            pairs[:, :2] *= turns
            parts = made.reshape(rows, 3, heads, 1, -1)
            if ahead is None:
                self._held[i, :, :rows, :, longest - 1] = parts[:, 1:, :, 0].swapaxes(0, 1)
            else:
                self._held[i, :, every, :, positions] = parts[:, 1:, :, 0]
            keys, values = self._held[i, :, :rows, :, :longest]
            scores = parts[:, 0] @ keys.swapaxes(2, 3)
            if ahead is not None:
                scores += ahead
            scores -= scores.max(axis=3, keepdims=True)
            np.exp(scores, out=scores)
            mixed = scores @ values
            mixed /= scores.sum(axis=3, keepdims=True)
            x += mixed.reshape(rows, -1) @ out
            both = _unit(x) @ gate_up
            gate = both[:, :hidden]
            swish = np.tanh(gate)
            swish += 1
            swish *= gate
            swish *= both[:, hidden:]
            x += swish @ down
        logits: Array = _unit(x) @ folded.head
        logits += folded.bias
        return logits
