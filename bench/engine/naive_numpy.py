"""The same policy and update in straightforward numpy, the baseline of `bench.engine`.

One padded batch, BLAS with all its threads, no cache of keys and values while sampling. Run by the
bench with a file of work; it imports nothing of the engine.
"""

import json
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Weights = dict[str, Array]
LAYERS, HEADS = 4, 4


def load(path: str) -> Weights:
    """Return weights by name, float32."""
    with np.load(path) as arrays:
        return {name: arrays[name].astype(np.float32) for name in arrays.files}


def rope(length: int, head: int) -> tuple[Array, Array]:
    """Return cosines and sines, (length, head / 2)."""
    angle = np.outer(np.arange(length), 10000.0 ** (-np.arange(0, head, 2) / head))
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def turn(x: Array, cos: Array, sin: Array) -> Array:
    """Apply rotary positions."""
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def norm(x: Array) -> tuple[Array, Array]:
    """Return RMSNorm without its gain, and the factor."""
    scale = 1.0 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(1e-5))
    return x * scale, scale


def norm_back(dy: Array, unit: Array, scale: Array, gain: Array) -> tuple[Array, Array]:
    """Return the gradients of the rows and of the gain."""
    dunit = dy * gain
    dx = (dunit - unit * (dunit * unit).mean(axis=-1, keepdims=True)) * scale
    return dx, (dy * unit).sum(axis=(0, 1))


def log_softmax(x: Array) -> Array:
    """Return the log-softmax over the last axis."""
    x = x - x.max(axis=-1, keepdims=True)
    result: Array = x - np.log(np.exp(x).sum(axis=-1, keepdims=True))
    return result


def forward(w: Weights, ids: Array, blocked: list[int]) -> tuple[Array, list[Any]]:
    """Return logits (rows, length, vocab) at every position, and the values for `backward`."""
    rows, length = ids.shape
    width = w["embed"].shape[1]
    head = width // HEADS
    cos, sin = rope(length, head)
    mask = np.triu(np.full((length, length), -np.inf, np.float32), 1)
    x = w["embed"][ids]
    tape: list[Any] = []
    for i in range(LAYERS):
        unit1, scale1 = norm(x)
        qkv = (unit1 * w[f"{i}.norm1"]) @ w[f"{i}.qkv"]
        q, k, v = (
            part.reshape(rows, length, HEADS, head).transpose(0, 2, 1, 3)
            for part in np.split(qkv, 3, axis=-1)
        )
        q, k = turn(q, cos, sin), turn(k, cos, sin)
        attention = np.exp(log_softmax(q @ k.swapaxes(2, 3) / np.float32(head**0.5) + mask))
        mixed = (attention @ v).transpose(0, 2, 1, 3).reshape(rows, length, width)
        x = x + mixed @ w[f"{i}.out"]
        unit2, scale2 = norm(x)
        gate, up = np.split((unit2 * w[f"{i}.norm2"]) @ w[f"{i}.gate_up"], 2, axis=-1)
        sigma = 1.0 / (1.0 + np.exp(-gate))
        x = x + (gate * sigma * up) @ w[f"{i}.down"]
        tape.append((unit1, scale1, q, k, v, attention, mixed, unit2, scale2, gate, up, sigma))
    unit, scale = norm(x)
    logits = (unit * w["norm"]) @ w["embed"].T
    logits[..., blocked] = -1e9
    return logits, [*tape, (unit, scale)]


def backward(w: Weights, ids: Array, tape: list[Any], dlogits: Array) -> Weights:
    """Return the gradients of all weights."""
    rows, length = ids.shape
    width = w["embed"].shape[1]
    head = width // HEADS
    cos, sin = rope(length, head)
    grads: Weights = {}
    unit, scale = tape[-1]
    flat = dlogits.reshape(rows * length, -1)
    grads["embed"] = flat.T @ (unit * w["norm"]).reshape(rows * length, width)
    dx, grads["norm"] = norm_back(dlogits @ w["embed"], unit, scale, w["norm"])

    def weigh(name: str, x: Array, dy: Array) -> Array:
        grads[name] = x.reshape(rows * length, -1).T @ dy.reshape(rows * length, -1)
        result: Array = dy @ w[name].T
        return result

    for i in reversed(range(LAYERS)):
        unit1, scale1, q, k, v, attention, mixed, unit2, scale2, gate, up, sigma = tape[i]
        da = weigh(f"{i}.down", gate * sigma * up, dx)
        dgate = da * up * (sigma + gate * sigma * (1.0 - sigma))
        both = np.concatenate([dgate, da * gate * sigma], axis=-1)
        dh = weigh(f"{i}.gate_up", unit2 * w[f"{i}.norm2"], both)
        added, grads[f"{i}.norm2"] = norm_back(dh, unit2, scale2, w[f"{i}.norm2"])
        dx = dx + added
        dmixed = weigh(f"{i}.out", mixed, dx)
        dmixed = dmixed.reshape(rows, length, HEADS, head).transpose(0, 2, 1, 3)
        dv = attention.swapaxes(2, 3) @ dmixed
        ds = dmixed @ v.swapaxes(2, 3)
        ds = (ds - (ds * attention).sum(axis=-1, keepdims=True)) * attention
        ds = ds / np.float32(head**0.5)
        dq, dk = turn(ds @ k, cos, -sin), turn(ds.swapaxes(2, 3) @ q, cos, -sin)
        dqkv = np.concatenate(
            [part.transpose(0, 2, 1, 3).reshape(rows, length, width) for part in (dq, dk, dv)],
            axis=-1,
        )
        dh = weigh(f"{i}.qkv", unit1 * w[f"{i}.norm1"], dqkv)
        added, grads[f"{i}.norm1"] = norm_back(dh, unit1, scale1, w[f"{i}.norm1"])
        dx = dx + added
    np.add.at(grads["embed"], ids.ravel(), dx.reshape(rows * length, width))
    return grads


class Naive:
    """Policy, reference and Adam."""

    def __init__(self, work: dict[str, Any]) -> None:
        self.work = work
        self.w = load(work["base"])
        self.reference = load(work["base"])
        self.m = {name: np.zeros_like(value) for name, value in self.w.items()}
        self.v = {name: np.zeros_like(value) for name, value in self.w.items()}
        self.t = 0

    def update(self) -> None:
        """Do one GRPO update on the work's batch."""
        batch, hyper = self.work["batch"], self.work["hyper"]
        longest = max(len(sample["prompt"]) + len(sample["tokens"]) for sample in batch)
        ids = np.zeros((len(batch), longest), np.int64)
        learn = np.zeros((len(batch), longest), bool)
        old = np.zeros((len(batch), longest), np.float32)
        for row, sample in enumerate(batch):
            start, end = len(sample["prompt"]), len(sample["prompt"]) + len(sample["tokens"])
            ids[row, :end] = sample["prompt"] + sample["tokens"]
            learn[row, start:end] = True
            old[row, start:end] = sample["logprobs"]
        advantage = np.array([sample["advantage"] for sample in batch], np.float32)[:, None]
        inputs, targets, learn, old = ids[:, :-1], ids[:, 1:, None], learn[:, 1:], old[:, 1:]
        blocked = self.work["blocked"]

        def picked(w: Weights) -> tuple[Array, Array, list[Any]]:
            logits, tape = forward(w, inputs, blocked)
            logp = log_softmax(logits)
            return np.take_along_axis(logp, targets, 2)[..., 0], logp, tape

        reference = picked(self.reference)[0]
        for _ in range(hyper["epochs"]):
            new, logp, tape = picked(self.w)
            ratio = np.exp(np.where(learn, new - old, 0.0))
            clipped = np.where(advantage > 0, ratio > 1 + hyper["clip"], ratio < 1 - hyper["clip"])
            slope = np.where(clipped, 0.0, -advantage * ratio)
            slope -= hyper["kl"] * np.minimum(ratio, 2.0) * np.where(learn, reference - new, 0.0)
            slope = np.where(learn, slope, 0.0) / learn.sum()
            dlogits = -np.exp(logp) * slope[..., None]
            updated = np.take_along_axis(dlogits, targets, 2) + slope[..., None]
            np.put_along_axis(dlogits, targets, updated, 2)
            self.step(backward(self.w, inputs, tape, dlogits.astype(np.float32)))

    def step(self, grads: Weights) -> None:
        """Clip the gradient and apply Adam to the trained weights."""
        hyper = self.work["hyper"]
        names = self.work["trained"]
        size = float(np.sqrt(sum((grads[name] ** 2).sum() for name in names)))
        b1, b2 = hyper["betas"]
        self.t += 1
        for name in names:
            grad = grads[name] * min(1.0, hyper["grad_clip"] / (size + 1e-12))
            self.m[name] = b1 * self.m[name] + (1 - b1) * grad
            self.v[name] = b2 * self.v[name] + (1 - b2) * grad**2
            scale = np.sqrt(self.v[name] / (1 - b2**self.t)) + hyper["adam_eps"]
            self.w[name] -= hyper["lr"] / (1 - b1**self.t) * self.m[name] / scale

    def answers(self) -> None:
        """Sample four answers of 60 tokens, recomputing the whole sequence for every token."""
        rng = np.random.default_rng(0)
        ids = np.tile(np.array(self.work["prompt"]), (4, 1))
        for _ in range(60):
            logits, _ = forward(self.w, ids, self.work["never"])
            probs = np.exp(log_softmax(logits[:, -1])).astype(np.float64)
            mass = probs.cumsum(axis=1)
            drawn = (mass < rng.random((4, 1)) * mass[:, -1:]).sum(axis=1)
            ids = np.concatenate([ids, drawn[:, None]], axis=1)

    def changed(self) -> list[float]:
        """Return changes of the trained weights from the base, in the order of the names."""
        parts = [(self.w[name] - self.reference[name]).ravel() for name in self.work["trained"]]
        return [float(value) for value in np.concatenate(parts)[:: self.work["every"]]]


def serve(variant: Any, name: str) -> None:
    """Execute the orders on stdin, one per line, and print how long each took."""
    print(json.dumps({"name": name}), flush=True)
    for line in sys.stdin:
        began = time.perf_counter()
        value = getattr(variant, line.strip())()
        print(json.dumps({"seconds": time.perf_counter() - began, "value": value}), flush=True)


if __name__ == "__main__" and len(sys.argv) > 1:
    with open(sys.argv[1], encoding="utf-8") as file:
        serve(Naive(json.load(file)), f"numpy {np.__version__}, plain")
