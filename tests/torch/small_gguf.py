"""A GGUF file of a small Llama-like model, and what it computes, written out plainly."""

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDTH, HEADS, PAIRS, HIDDEN, LAYERS = 64, 4, 2, 96, 8
HEAD = WIDTH // HEADS
THETA = 5000.0
TAGS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

_PLAIN = [*range(33, 127), *range(161, 173), *range(174, 256)]
LETTERS = {byte: chr(byte) for byte in _PLAIN} | {
    byte: chr(256 + i) for i, byte in enumerate(b for b in range(256) if b not in _PLAIN)
}
"""The character that stands for a byte in the vocabulary (Radford et al. 2019)."""
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "u s", "us e", "use r", "Ċ Ċ", "Ġ Ġ"]

Array = NDArray[Any]


def vocabulary() -> list[str]:
    """Tags, bytes, then what the merges make."""
    return [*TAGS, *LETTERS.values(), *(merge.replace(" ", "") for merge in MERGES)]


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    inner = b"".join(_value(item)[4:] for item in value)
    return struct.pack("<I", 9) + _value(value[0])[:4] + struct.pack("<Q", len(value)) + inner


@dataclass(frozen=True)
class Stored:
    """A tensor as bytes."""

    kind: int
    shape: tuple[int, ...]
    data: bytes


def write(path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, Stored]) -> None:
    """A whole file, version 3."""
    head = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    head += [_text(key) + _value(value) for key, value in metadata.items()]
    body = b""
    for name, tensor in tensors.items():
        sizes = tensor.shape[::-1]
        head.append(_text(name) + struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes))
        head.append(struct.pack("<IQ", tensor.kind, len(body)))
        body += tensor.data + b"\0" * (-len(tensor.data) % 32)
    start = b"".join(head)
    path.write_bytes(start + b"\0" * (-len(start) % 32) + body)


def _halves(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.float16(rng.uniform(low, high)))


def q4_1(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Stored, Array]:
    """Random blocks of 32: 4-bit numbers with a scale and a least value; and what they are."""
    data, values = b"", np.zeros(shape)
    for row in range(shape[0]):
        for start in range(0, shape[1], 32):
            scale, least = _halves(rng, 0.02, 0.06), _halves(rng, -0.4, -0.2)
            codes = rng.integers(0, 16, 32)
            packed = bytes(int(codes[i]) | int(codes[i + 16]) << 4 for i in range(16))
            data += struct.pack("<ee", scale, least) + packed
            values[row, start : start + 32] = codes * scale + least
    return Stored(3, shape, data), values


def q8_0(rng: np.random.Generator, shape: tuple[int, int]) -> tuple[Stored, Array]:
    """Random blocks of 32: 8-bit numbers with a scale."""
    data, values = b"", np.zeros(shape)
    for row in range(shape[0]):
        for start in range(0, shape[1], 32):
            scale, codes = _halves(rng, 0.002, 0.01), rng.integers(-127, 128, 32)
            data += struct.pack("<e32b", scale, *codes.tolist())
            values[row, start : start + 32] = codes * scale
    return Stored(8, shape, data), values


def f32(values: Array) -> tuple[Stored, Array]:
    """As they are."""
    stored = values.astype("<f4")
    return Stored(0, stored.shape, stored.tobytes()), stored.astype(np.float64)


@dataclass(frozen=True)
class Small:
    """A written file, and its numbers in float64 as the file has them."""

    path: Path
    weights: Mapping[str, Array]


def metadata(**more: Any) -> dict[str, Any]:
    """What is read of a model file."""
    return {
        "general.architecture": "llama",
        "llama.block_count": LAYERS,
        "llama.context_length": 8192,
        "llama.embedding_length": WIDTH,
        "llama.feed_forward_length": HIDDEN,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": PAIRS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": THETA,
        "llama.rope.dimension_count": HEAD,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.tokens": vocabulary(),
        "tokenizer.ggml.token_type": [3] * len(TAGS) + [1] * (len(vocabulary()) - len(TAGS)),
        "tokenizer.ggml.merges": MERGES,
        **more,
    }


def _tensors() -> Mapping[str, tuple[Stored, Array]]:
    """Random weights."""
    rng = np.random.default_rng(0)
    made: dict[str, tuple[Stored, Array]] = {
        "token_embd.weight": q8_0(rng, (len(vocabulary()), WIDTH))
    }
    keys = PAIRS * HEAD
    for i in range(LAYERS):
        for name in ("attn_norm", "ffn_norm"):
            made[f"blk.{i}.{name}.weight"] = f32(rng.uniform(0.5, 1.5, WIDTH))
        for name, shape in (
            ("attn_q", (WIDTH, WIDTH)),
            ("attn_k", (keys, WIDTH)),
            ("attn_v", (keys, WIDTH)),
            ("attn_output", (WIDTH, WIDTH)),
            ("ffn_gate", (HIDDEN, WIDTH)),
            ("ffn_up", (HIDDEN, WIDTH)),
            ("ffn_down", (WIDTH, HIDDEN)),
        ):
            made[f"blk.{i}.{name}.weight"] = q4_1(rng, shape)
    made["output_norm.weight"] = f32(rng.uniform(0.5, 1.5, WIDTH))
    return made


def make(path: Path, **more: Any) -> Small:
    """Write a model with random weights; `more` replaces metadata."""
    made = _tensors()
    write(path, metadata(**more), {name: stored for name, (stored, _) in made.items()})
    return Small(path, {name: values for name, (_, values) in made.items()})


def _normed(x: Array, gain: Array) -> Array:
    made: Array = x / np.sqrt((x * x).mean() + 1e-5) * gain
    return made


def _turned(x: Array, position: int) -> Array:
    """Neighbours are a pair, as files of this family have them."""
    made = x.copy()
    for i in range(0, HEAD, 2):
        angle = position * THETA ** (-i / HEAD)
        made[i] = x[i] * math.cos(angle) - x[i + 1] * math.sin(angle)
        made[i + 1] = x[i] * math.sin(angle) + x[i + 1] * math.cos(angle)
    return made


def logits(small: Small, ids: Sequence[int]) -> Array:
    """(len(ids), vocab): a position, a head, a number at a time, in float64."""
    w = small.weights
    xs = [w["token_embd.weight"][token].copy() for token in ids]
    for i in range(LAYERS):
        part = {key.split(".")[2]: value for key, value in w.items() if key.startswith(f"blk.{i}.")}
        keys: list[list[Array]] = []
        values: list[list[Array]] = []
        for position, x in enumerate(xs):
            unit = _normed(x, part["attn_norm"])
            q = (part["attn_q"] @ unit).reshape(HEADS, HEAD)
            k = (part["attn_k"] @ unit).reshape(PAIRS, HEAD)
            keys.append([_turned(head_key, position) for head_key in k])
            values.append(list((part["attn_v"] @ unit).reshape(PAIRS, HEAD)))
            mixed = []
            for head in range(HEADS):
                pair = head * PAIRS // HEADS
                query = _turned(q[head], position)
                scores = np.array([query @ past[pair] / HEAD**0.5 for past in keys])
                share = np.exp(scores - scores.max())
                share /= share.sum()
                mixed.append(sum(s * past[pair] for s, past in zip(share, values, strict=True)))
            x += part["attn_output"] @ np.concatenate(mixed)
        for x in xs:
            unit = _normed(x, part["ffn_norm"])
            gate = part["ffn_gate"] @ unit
            x += part["ffn_down"] @ (gate / (1 + np.exp(-gate)) * (part["ffn_up"] @ unit))
    last = [w["token_embd.weight"] @ _normed(x, w["output_norm.weight"]) for x in xs]
    return np.stack(last)
