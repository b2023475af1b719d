"""Descriptions of small models."""

from dataclasses import replace
from typing import Any

from engine.torch.description import ModelDescription

PREFIX = "base_model.model.model.layers.0.self_attn."
LORA = ModelDescription(
    base="a" * 64,
    base_model="Qwen/Qwen3-0.6B",
    base_files="/cache/models--Qwen--Qwen3-0.6B/snapshots/c1",
    kind="lora",
    rank=2,
    alpha=4,
    targets=(),
    dtype="bfloat16",
    layout=(
        (f"{PREFIX}q_proj.lora_A.weight", (2, 3)),
        (f"{PREFIX}q_proj.lora_B.weight", (3, 2)),
        (f"{PREFIX}v_proj.lora_A.weight", (2, 3)),
        (f"{PREFIX}v_proj.lora_B.weight", (1, 2)),
    ),
)
FULL = replace(
    LORA,
    base="f" * 64,
    kind="full",
    rank=0,
    alpha=0,
    layout=(("model.embed_tokens.weight", (4, 3)), ("model.norm.weight", (3,))),
)


def described(**fields: Any) -> ModelDescription:
    """The LoRA description with other fields."""
    return replace(LORA, **fields)
