"""Inference with a key-value cache: prefill of one prompt at a time, one token per live row per
step.

A token step of a small network consists of many small operations, so their number determines its
cost: gains, scales and the factor of the gate are folded into copies of the weights, in which the
pairs of rotary positions are adjacent, so that one complex product rotates them.
"""

import numpy as np

from engine.training.model import EPS, Array, Config, Params, head_logits, layer_forward, rope_table

_ROW_GAP = 5
"""Unused positions between rows: rows at a distance of a power of two bytes would map to the
same few cache lines of the processor."""


def _interleaved_order(config: Config) -> Array:
    """Return the order of the columns of `qkv` in which the two halves of each pair are
    adjacent."""
    turned, half = 2 * config.width, config.head // 2
    neighbours = np.arange(turned).reshape(-1, 2, half).swapaxes(1, 2).ravel()
    return np.concatenate([neighbours, np.arange(turned, 3 * config.width)])


class _StepWeights:
    """Copies of the weights with gains and scales folded in, for rows normalised without their
    gain; float32.

    `layers` has four per block: to queries (scaled), keys and values, with adjacent pairs; the
    attention output; to half the gate and the gated values; the output of the feed-forward part.
    `head` gives logits without their bias.
    """

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

    Args:
        params: Weights.
        slots: Maximum number of rows; each takes 2 MB.
    """

    def __init__(self, params: Params, slots: int) -> None:
        config = params.config
        self._params = params
        self._weights = _StepWeights(params)
        places = config.context + _ROW_GAP
        self._keys_values = np.zeros(
            (config.layers, 2, slots, config.heads, places, config.head), np.float32
        )
        """Keys and values of each layer."""
        cos, sin = rope_table(config, "<f4")
        self._turns = cos + 1j * sin
        """(context, head / 2) complex64."""
        self._places = np.arange(config.context)

    def use(self, params: Params) -> None:
        """Use other weights of the same sizes, or the same ones after a change; no row may be
        live."""
        self._weights = _StepWeights(params)
        self._params = params

    def prefill(self, prompt: Array, row: int) -> Array:
        """Read a whole prompt into `row`; return the logits (vocab,) of its next token."""
        params = self._params
        x = params["embed"][prompt]
        length, half = len(prompt), params.config.head // 2
        for i in range(params.config.layers):
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
        rows, hidden, width = len(tokens), config.hidden, config.width
        heads, head = config.heads, config.head
        longest = int(positions.max()) + 1
        ahead = None
        if int(positions.min()) + 1 < longest:
            later = self._places[:longest] > positions[:, None]
            ahead = np.where(later, np.float32(-np.inf), np.float32(0))[:, None, None]
        turns = self._turns[positions][:, None]
        every = np.arange(rows)
        x = params["embed"][tokens]
        for i, (qkv, out, gate_up, down) in enumerate(weights.layers):
            projected = _normalised(x) @ qkv
            projected.view(np.complex64).reshape(rows, -1, head // 2)[:, : 2 * heads] *= turns
            query = projected[:, :width].reshape(rows, heads, 1, head)
            fresh = projected[:, width:].reshape(rows, 2, heads, head)
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
