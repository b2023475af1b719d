"""Inference with a key-value cache: one prompt at a time in, one token a live row out."""

import numpy as np

from engine.model import (
    Array,
    Params,
    head_logits,
    layer_forward,
    normed,
    rope_table,
    rotate,
    sigmoid,
    softmax_,
)


class Cache:
    """Keys and values of all live rows; rows are compact, 0 to n-1.

    Memory is bounded by slots x context: 2 MB a slot for the shipped sizes, touched only as used.
    """

    def __init__(self, params: Params, slots: int) -> None:
        config = params.config
        shape = (config.layers, slots, config.heads, config.context, config.head)
        self._params = params
        self._keys = np.zeros(shape, np.float32)
        self._values = np.zeros(shape, np.float32)

    def use(self, params: Params) -> None:
        """Other weights of the same sizes; the rows must all be over."""
        self._params = params

    def prefill(self, prompt: Array, row: int) -> Array:
        """Read a whole prompt into `row`; logits (vocab,) of its next token."""
        params = self._params
        x = params["embed"][prompt]
        length = len(prompt)
        for i in range(params.config.layers):
            tape = layer_forward(params, i, x, 1, length)
            self._keys[i, row, :, :length] = tape.k[0]
            self._values[i, row, :, :length] = tape.v[0]
        logits: Array = head_logits(params, x[-1:])[0]
        return logits

    def copy(self, source: int, target: int, length: int) -> None:
        """Give `target` the first `length` positions of `source`."""
        self._keys[:, target, :, :length] = self._keys[:, source, :, :length]
        self._values[:, target, :, :length] = self._values[:, source, :, :length]

    def decode(self, tokens: Array, positions: Array) -> Array:
        """Append one token to each of the first rows.

        Args:
            tokens: (rows,) ids to append.
            positions: (rows,) where each goes.

        Returns:
            Logits (rows, vocab) of the tokens after them.
        """
        params, config = self._params, self._params.config
        rows, d, head = len(tokens), self._params.config.width, self._params.config.head
        longest = int(positions.max()) + 1
        cos, sin = rope_table(config.context, head, "<f4")
        cos, sin = cos[positions][:, None], sin[positions][:, None]
        hidden = np.where(np.arange(longest) <= positions[:, None], 0.0, -np.inf)
        mask = hidden.astype(np.float32)[:, None, None]
        every = np.arange(rows)
        x = params["embed"][tokens]
        for i in range(config.layers):
            unit, _ = normed(x)
            qkv = ((unit * params[f"{i}.norm1"]) @ params[f"{i}.qkv"]).reshape(rows, 3, -1, head)
            q = rotate(qkv[:, 0], cos, sin) * np.float32(head**-0.5)
            self._keys[i, every, :, positions] = rotate(qkv[:, 1], cos, sin)
            self._values[i, every, :, positions] = qkv[:, 2]
            keys = self._keys[i, :rows, :, :longest]
            scores = q[:, :, None] @ keys.transpose(0, 1, 3, 2)
            scores += mask
            mixed = softmax_(scores) @ self._values[i, :rows, :, :longest]
            x += mixed.reshape(rows, d) @ params[f"{i}.out"]
            unit, _ = normed(x)
            both = (unit * params[f"{i}.norm2"]) @ params[f"{i}.gate_up"]
            gate, up = both[:, : config.hidden], both[:, config.hidden :]
            x += (gate * sigmoid(gate) * up) @ params[f"{i}.down"]
        return head_logits(params, x)
