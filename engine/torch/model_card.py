"""Model cards: the README.md of an exported adapter or model."""

import json
from pathlib import PurePath

from engine.torch.description import ModelDescription

_VLLM_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Values that vLLM accepts as the highest rank."""


def adapter_card(description: ModelDescription, step: int, run: str) -> str:
    """Return the model card of a LoRA adapter.

    Args:
        description: The base model and the form of training.
        step: Global step of the weights.
        run: Id of the training run; may be empty.
    """
    base = json.dumps(description.base_name)
    arguments = base
    rank = next((rank for rank in _VLLM_RANKS if rank >= description.rank), description.rank)
    vllm = f"vllm serve {base} --enable-lora --max-lora-rank {rank} --lora-modules policy=FOLDER"
    if description.gguf:
        path = PurePath(description.base_files)
        arguments = f"{json.dumps(str(path.parent))}, gguf_file={json.dumps(path.name)}"
        vllm = "ajet-console checkpoints export NAME FOLDER --merge  # vLLM: without the GGUF file"
    modules = ", ".join(description.modules)
    form = f"{description.form}, alpha {description.alpha}, modules {modules}"
    load = f'AutoModelForCausalLM.from_pretrained({arguments}, dtype="auto")'
    return _card(
        description,
        "peft",
        f"# LoRA adapter, global step {step}",
        f"{form}; training run {run or 'unknown'}.",
        f'    model = peft.PeftModel.from_pretrained({load}, "FOLDER")',
        f"    {vllm}",
    )


def model_card(description: ModelDescription, step: int, run: str) -> str:
    """Return the model card of a whole model, trained in full or merged with its adapter.

    Args:
        description: The base model and the form of training.
        step: Global step of the weights.
        run: Id of the training run; may be empty.
    """
    merged = ", merged into the base model" if description.kind == "lora" else ""
    return _card(
        description,
        "transformers",
        f"# Trained model, global step {step}",
        f"{description.form}{merged}; training run {run or 'unknown'}.",
        '    model = AutoModelForCausalLM.from_pretrained("FOLDER", dtype="auto")',
        "    vllm serve FOLDER",
    )


def _card(description: ModelDescription, library: str, title: str, form: str, *load: str) -> str:
    """Return the text; Hugging Face reads the lines at its head."""
    hub_name = description.hub_name
    lines = [
        "---",
        *([f"base_model: {json.dumps(hub_name)}"] if hub_name else []),
        f"library_name: {library}",
        "pipeline_tag: text-generation",
        "tags: [ajet-console, grpo]",
        "---",
        title,
        "",
        f"Trained by ajet-console with GRPO from `{description.base_name}`: {form}",
        "The license of the base model applies.",
        "",
        *load,
    ]
    return "\n".join(lines) + "\n"
