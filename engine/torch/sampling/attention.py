"""Attention of one new token per row without a copy of keys and values for each head of a group.

transformers repeats keys and values when an attention mask exists. With one query per row, the
heads of a group take the place of the queries instead.
"""

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "ajet_sdpa"
"""Name under which transformers knows this attention."""


def attend(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **options: Any
) -> tuple[Any, None]:
    """Return the attention (rows, queries, heads, size), as an attention function of transformers.

    Args:
        module: The attention layer.
        query: (rows, heads, queries, size).
        key: (rows, groups, keys, size).
        value: (rows, groups, keys, size).
        attention_mask: (rows, 1, queries, keys), true where a query reads a key; None for causal.
        options: See `sdpa_attention_forward`.
    """
    rows, heads, queries, size = query.shape
    if queries != 1 or attention_mask is None:
        plain = {**options, "dropout": 0.0}  # the reference has none either
        result: tuple[Any, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, **plain
        )
        return result
    groups = key.shape[1]
    mixed = torch.nn.functional.scaled_dot_product_attention(
        query.reshape(rows, groups, heads // groups, size),
        key,
        value,
        attn_mask=attention_mask,
        scale=options.get("scaling"),
    )
    return mixed.reshape(rows, 1, heads, value.shape[-1]), None


def register() -> None:
    """Make the attention known to transformers."""
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
