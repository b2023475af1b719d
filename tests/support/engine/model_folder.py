"""Checkpoint folders as VERL writes them, in miniature."""

import json
from pathlib import Path


def write_safetensors(file: Path) -> None:
    """Write one tensor."""
    head = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    data = len(head).to_bytes(8, "little") + head + bytes(8)
    file.write_bytes(data)


def write_model(folder: Path, files: int = 1) -> Path:
    """Write a complete model: configuration, tokenizer, weights in one file or in several."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text('{"model_type": "qwen2"}')
    (folder / "tokenizer_config.json").write_text("{}")
    if files == 1:
        write_safetensors(folder / "model.safetensors")
        return folder
    names = [f"model-{n:05}-of-{files:05}.safetensors" for n in range(1, files + 1)]
    for name in names:
        write_safetensors(folder / name)
    index = {"weight_map": {f"w{n}": name for n, name in enumerate(names)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def write_shards(checkpoint: Path, world_size: int = 2) -> Path:
    """Write the shards of FSDP, with configuration and tokenizer beside them; return `actor`."""
    actor = checkpoint / "actor"
    (actor / "huggingface").mkdir(parents=True, exist_ok=True)
    (actor / "huggingface" / "config.json").write_text('{"model_type": "qwen2"}')
    for rank in range(world_size):
        for kind in ("model", "optim", "extra_state"):
            (actor / f"{kind}_world_size_{world_size}_rank_{rank}.pt").write_bytes(b"PK")
    return actor
