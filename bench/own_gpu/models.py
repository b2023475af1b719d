"""Models of the bench: random weights of two sizes."""

import json
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch
import transformers

from engine.torch.loading import Loaded, TrainingForm, load
from engine.torch.options import TorchOptions
from tests.torch.models import make_model

SIZES: dict[str, dict[str, int]] = {
    "0.5B": {
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
    },
    "1.5B": {
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
    },
    "tiny": {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    },
}
"""The sizes of Qwen2.5, and one to try the bench."""
VOCAB = 151_936


def make(size: str, context: int, dtype: str = "") -> Loaded:
    """Return a random model with LoRA of rank 16; its answers never end by themselves."""
    folder = make_model(Path(mkdtemp(prefix="own-gpu-")))
    config = json.loads((folder / "config.json").read_text())
    vocab = 1_000 if size == "tiny" else VOCAB
    fields = {**config, **SIZES[size], "vocab_size": vocab, "max_position_embeddings": 32_768}
    fields.pop("layer_types", None)
    kind: Any = transformers.Qwen2ForCausalLM
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    with torch.device(device):
        model = kind(transformers.Qwen2Config(**fields)).to(torch.bfloat16)
    model.save_pretrained(folder)
    del model
    options = TorchOptions(model=str(folder), context=context, dtype=dtype)
    return replace(load(options, TrainingForm(), None), ends=frozenset())
