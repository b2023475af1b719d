"""Folders as those of Hugging Face, without real weights."""

import json
from pathlib import Path
from typing import Any


def make_folder(folder: Path, **config: Any) -> Path:
    """Write a folder that the checks take for a whole model of text; return it."""
    folder.mkdir(parents=True, exist_ok=True)
    fields = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], **config}
    (folder / "config.json").write_text(json.dumps(fields))
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    return folder
