"""SmolLM2-135M as a policy: its file, its sizes, and the part that is trained.

The blocks nearest the output and the last norm are trained; the blocks below stay as published and
are neither copied nor saved.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from engine.policy.local import LocalPolicy
from engine.policy.smollm_files import GGUF_SHA256, NAME
from engine.policy.smollm_text import SmolTextCodec
from engine.policy.weights import WeightStore
from engine.storage.gguf import Gguf, GgufError
from engine.training.model import EPS, Array, Config, Params
from engine.training.state import Base

CONTEXT = 2048
"""Window in tokens. The model was made for 8192, which needs more memory than a laptop has."""
TRAINED = 6
"""Number of trained blocks."""
SHARD = 256
"""Maximum number of ids per shard of an update: each target has logits of the whole vocabulary."""
RECIPE: Mapping[str, Any] = {"adam_eps": 3e-5}
"""Differs from the tiny policy, whose gradients are larger; lr, KL and epochs are the same."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """Content of a model file."""

    base: Base
    text: SmolTextCodec


@lru_cache(maxsize=1)
def load(path: Path, digest: str = GGUF_SHA256) -> LoadedModel:
    """Read and verify a model file. The last result is cached: do not change its parameters.

    Args:
        path: A GGUF file of the Llama family with tied embeddings and a GPT-2 vocabulary.
        digest: Expected SHA-256 of the file.

    Raises:
        GgufError: it cannot be read, is another file, or of another kind.
    """
    actual = _digest(path)
    if actual != digest:
        raise GgufError(
            "The model file differs from its checksum",
            str(path),
            "Delete it: the next start asks to fetch it again.",
        )
    with Gguf(path) as file:
        text = _text(file, path)
        config = _config(file, text)
        return LoadedModel(Base(_params(file, config), digest), text)


class SmolPolicy(LocalPolicy):
    """SmolLM2-135M with its upper blocks trained in place. Create it with `open`."""

    @classmethod
    def open(
        cls,
        path: Path,
        directory: Path | None,
        reset: bool = False,
        start_from: str | None = None,
        digest: str = GGUF_SHA256,
    ) -> "SmolPolicy":
        """Load the saved policy, or the published one when nothing is saved.

        Args:
            path: The model file.
            directory: Folder of the trained part; None saves nothing.
            reset: Set the saved state aside and start from the published weights.
            start_from: Checkpoint to restore; the saved state is set aside.
            digest: Expected SHA-256 of the model file.

        Raises:
            AjetError: another engine uses the directory, or a file cannot be read.
        """
        loaded = load(path, digest)
        store = None if directory is None else WeightStore(directory)
        return cls.resumed(loaded.base, store, loaded.text, reset, start_from)


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise GgufError(f"The model file cannot be read ({error.strerror})", str(path)) from error


def _text(file: Gguf, path: Path) -> SmolTextCodec:
    tokens = file.get("tokenizer.ggml.tokens", list)
    kinds = file.get("tokenizer.ggml.token_type", list)
    tags = [i for i, kind in enumerate(kinds) if kind == _CONTROL]
    try:
        return SmolTextCodec(NAME, tokens, file.get("tokenizer.ggml.merges", list), tags, RECIPE)
    except ValueError as error:
        raise GgufError(f"The tokenizer can not be read: {error}", str(path)) from error


_CONTROL = 3
"""GGUF type of a token that stands for no text."""


def _config(file: Gguf, text: SmolTextCodec) -> Config:
    def number(key: str, kind: Any = int) -> Any:
        return file.get(f"llama.{key}", kind)

    width, heads = number("embedding_length"), number("attention.head_count")
    layers, pairs = number("block_count"), number("attention.head_count_kv")
    if abs(number("attention.layer_norm_rms_epsilon", float) - EPS) > EPS / 100:
        raise GgufError("The model's norm uses an unsupported epsilon", "rms_epsilon")
    if width % heads or heads % pairs or number("rope.dimension_count") * heads != width:
        raise GgufError("The model's attention heads have an unsupported form", "attention")
    return Config(
        vocab=len(file.get("tokenizer.ggml.tokens", list)),
        width=width,
        layers=layers,
        heads=heads,
        hidden=number("feed_forward_length"),
        context=min(CONTEXT, number("context_length")),
        blocked=tuple(tag for tag in text.tags if tag != text.end),
        shared=heads // pairs,
        theta=number("rope.freq_base", float),
        frozen=1 + max(0, layers - TRAINED),
        end=text.end,
        call=None,
        folded=False,
        shard=SHARD,
    )


def _params(file: Gguf, config: Config) -> Params:
    frozen: dict[str, Array] = {}
    params = Params(config, None, frozen)
    d, hidden, keys = config.width, config.hidden, config.pairs * config.head
    if "output.weight" in file.tensors:
        raise GgufError("The model's head is not tied to its embedding", "output.weight")

    shapes = dict(config.shapes())

    def put(name: str, *parts: Array) -> None:
        """Store matrices side by side as (inputs, outputs); the file has (outputs, inputs)."""
        if config.is_frozen(name):
            frozen[name] = np.empty(shapes[name], np.float32)
        np.concatenate([part.T for part in parts], axis=-1, out=params[name])

    frozen["embed"] = file.tensor("token_embd.weight", (config.vocab, d))
    for i in range(config.layers):

        def read(name: str, *shape: int, block: str = f"blk.{i}") -> Array:
            return file.tensor(f"{block}.{name}.weight", shape)

        put(f"{i}.norm1", read("attn_norm", d))
        put(
            f"{i}.qkv",
            halves_apart(read("attn_q", d, d), config.head),
            halves_apart(read("attn_k", keys, d), config.head),
            read("attn_v", keys, d),
        )
        put(f"{i}.out", read("attn_output", d, d))
        put(f"{i}.norm2", read("ffn_norm", d))
        put(f"{i}.gate_up", read("ffn_gate", hidden, d), read("ffn_up", hidden, d))
        put(f"{i}.down", read("ffn_down", d, hidden))
    put("norm", file.tensor("output_norm.weight", (d,)))
    return params


def halves_apart(matrix: Array, head: int) -> Array:
    """Return the rows of a query or key matrix with the halves of its rotated pairs apart.

    Files of the Llama family store the two numbers of each pair side by side.
    """
    shape = matrix.shape
    return matrix.reshape(-1, head // 2, 2, shape[1]).swapaxes(1, 2).reshape(shape)
