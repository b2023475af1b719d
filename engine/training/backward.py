"""Gradients of the network, written by hand and checked against finite differences."""

import numpy as np

from engine.training.model import (
    Array,
    LayerTape,
    Params,
    Tape,
    join_heads,
    rope_table,
    rotate,
    sigmoid,
    split_heads,
)


def _norm_backward(grad: Array, unit: Array, scale: Array, gain: Array, gain_grad: Array) -> Array:
    """Return the gradient before an RMSNorm; add to its gain's gradient."""
    gain_grad += np.einsum("nd,nd->d", grad, unit)
    grad = grad * gain
    inner = np.einsum("nd,nd->n", grad, unit)[:, None] / unit.shape[1]
    grad -= unit * inner
    grad *= scale
    return grad


def _feed_forward_backward(
    params: Params, grads: Params, i: int, tape: LayerTape, dx: Array
) -> None:
    """Backpropagate through the SwiGLU part of layer `i`; adds to `dx` (n, width) in place."""
    hidden = params.config.hidden
    gate, up = tape.gate_up[:, :hidden], tape.gate_up[:, hidden:]
    gated = sigmoid(gate)
    swish = gate * gated
    grads.add(f"{i}.down", (swish * up).T @ dx)
    da = dx @ params[f"{i}.down"].T
    both = np.empty_like(tape.gate_up)
    np.multiply(da, swish, out=both[:, hidden:])
    da *= up
    da *= gated + swish * (1.0 - gated)
    both[:, :hidden] = da
    gain = params[f"{i}.norm2"]
    grads.add(f"{i}.gate_up", (tape.unit2 * gain).T @ both)
    dh = both @ params[f"{i}.gate_up"].T
    dx += _norm_backward(dh, tape.unit2, tape.scale2, gain, grads[f"{i}.norm2"])


def _attention_backward(
    params: Params,
    grads: Params,
    i: int,
    tape: LayerTape,
    dx: Array,
    mixed: Array,
    shape: tuple[int, int],
) -> None:
    """Backpropagate through the attention of layer `i`; adds to `dx` (n, width) in place."""
    config = params.config
    rows, length = shape
    head = config.head
    cos, sin = rope_table(config, dx.dtype.str)
    cos, sin = cos[:length], sin[:length]
    dmixed = np.ascontiguousarray(split_heads(mixed, rows, length, head))
    dv = tape.attention.transpose(0, 1, 3, 2) @ dmixed
    ds = dmixed @ tape.v.transpose(0, 1, 3, 2)
    ds -= np.einsum("bhij,bhij->bhi", ds, tape.attention)[..., None]
    ds *= tape.attention
    dq = rotate(ds @ tape.k, cos, -sin)
    dq *= head**-0.5
    dk = rotate(ds.transpose(0, 1, 3, 2) @ tape.q, cos, -sin)
    dqkv = np.concatenate([join_heads(part) for part in (dq, dk, dv)], axis=1)
    gain = params[f"{i}.norm1"]
    grads.add(f"{i}.qkv", (tape.unit1 * gain).T @ dqkv)
    dh = dqkv @ params[f"{i}.qkv"].T
    dx += _norm_backward(dh, tape.unit1, tape.scale1, gain, grads[f"{i}.norm1"])


def _embed_backward(grads: Params, tokens: Array, dx: Array) -> None:
    """Add the rows of `dx` to their tokens' embedding gradients; sorted sums are far faster than
    add.at."""
    flat = tokens.ravel()
    order = np.argsort(flat, kind="stable")
    ids, starts = np.unique(flat[order], return_index=True)
    grads["embed"][ids] += np.add.reduceat(dx[order], starts, axis=0)


def _scatter_rows(part: Array, where: Array, size: int) -> Array:
    """Return `size` rows of zeros with the rows of `part` at the indices `where`."""
    rows = np.zeros((size, part.shape[1]), part.dtype)
    rows[where] = part
    return rows


def backward(params: Params, grads: Params, tape: Tape, dlogits: Array, frozen: int = 0) -> None:
    """Add the gradient of one shard to `grads`.

    Args:
        params: Weights of the forward pass.
        grads: Accumulator of the same shapes.
        tape: From `forward`.
        dlogits: (len(where), vocab) gradient of the loss.
        frozen: Layers nearest the input without gradient: the embedding, then block after block.
    """
    rows, length = tape.tokens.shape
    gain = params["norm"]
    if not frozen:
        grads.add("embed", dlogits.T @ (tape.unit * gain))
    dunit = dlogits @ params["embed"]
    dx = _norm_backward(dunit, tape.unit, tape.scale, gain, grads["norm"])
    last = params.config.layers - 1
    for i in reversed(range(max(0, frozen - 1), last + 1)):
        layer = tape.layers[i]
        _feed_forward_backward(params, grads, i, layer, dx)
        grads.add(f"{i}.out", layer.mixed.T @ dx)
        mixed = dx @ params[f"{i}.out"].T
        if i == last:
            dx, mixed = (_scatter_rows(part, tape.where, rows * length) for part in (dx, mixed))
        _attention_backward(params, grads, i, layer, dx, mixed, (rows, length))
    if not frozen:
        _embed_backward(grads, tape.tokens, dx)
