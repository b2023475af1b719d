"""Model cards: the README.md of an exported adapter or model."""

import json
from collections.abc import Sequence
from pathlib import PurePath

from engine.torch.description import ModelDescription

_VLLM_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Values that vLLM accepts as the highest rank."""

_TRAINING = """\
The embedded engine of ajet-console trained it with GRPO: an update compares the rewards of several
answers to one task, and raises the probability of the better ones. A KL penalty keeps the policy
near the base model."""

_LICENSE = """\
The license of the base model applies to this derived work; the model card of the base model names
it."""


def adapter_card(description: ModelDescription, step: int, run: str) -> str:
    """Return the model card of a LoRA adapter.

    Args:
        description: The base model and the form of training.
        step: Global step of the weights.
        run: Id of the training run; may be empty.
    """
    load = f'AutoModelForCausalLM.from_pretrained({_arguments(description)}, dtype="auto")'
    lines = [
        *_head(description, "peft", ("lora",)),
        f"# LoRA adapter, global step {step}",
        "",
        *_facts(description, step, run),
        f"| LoRA | rank {description.rank}, alpha {description.alpha}, "
        f"modules {', '.join(description.modules)} |",
        "",
        _TRAINING,
        "",
        "## Load it with transformers",
        "",
        "```python",
        "from peft import PeftModel",
        "from transformers import AutoModelForCausalLM",
        "",
        f"base = {load}",
        'model = PeftModel.from_pretrained(base, "FOLDER")',
        "```",
        "",
        "## Load it with vLLM",
        "",
        *_vllm(description),
        "",
        *_license(),
    ]
    return "\n".join(lines)


def _vllm(description: ModelDescription) -> list[str]:
    """Return how to load the adapter with vLLM."""
    if description.gguf:
        return [
            "The base model is a GGUF file, with which vLLM was not tried. Export the whole model",
            "instead: `ajet-console checkpoints export NAME FOLDER --merge`.",
        ]
    base = json.dumps(description.base_name)
    ranks = [rank for rank in _VLLM_RANKS if rank >= description.rank]
    rank = ranks[0] if ranks else description.rank
    return [
        "```",
        f"vllm serve {base} --enable-lora --max-lora-rank {rank} --lora-modules policy=FOLDER",
        "```",
    ]


def model_card(description: ModelDescription, step: int, run: str) -> str:
    """Return the model card of a whole model, trained in full or merged with its adapter.

    Args:
        description: The base model and the form of training.
        step: Global step of the weights.
        run: Id of the training run; may be empty.
    """
    form = description.form
    if description.kind == "lora":
        form += ", merged into the base model"
    lines = [
        *_head(description, "transformers", ()),
        f"# Trained model, global step {step}",
        "",
        *_facts(description, step, run),
        f"| Trained | {form} |",
        "",
        _TRAINING,
        "",
        "## Load it with transformers",
        "",
        "```python",
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "",
        'model = AutoModelForCausalLM.from_pretrained("FOLDER", dtype="auto")',
        'tokenizer = AutoTokenizer.from_pretrained("FOLDER")',
        "```",
        "",
        "## Load it with vLLM",
        "",
        "```",
        "vllm serve FOLDER",
        "```",
        "",
        *_license(),
    ]
    return "\n".join(lines)


def _arguments(description: ModelDescription) -> str:
    """Return the arguments of `from_pretrained` that name the base model."""
    if not description.gguf:
        return json.dumps(description.base_name)
    path = PurePath(description.base_files)
    return f"{json.dumps(str(path.parent))}, gguf_file={json.dumps(path.name)}"


def _head(description: ModelDescription, library: str, tags: Sequence[str]) -> list[str]:
    """Return the metadata that Hugging Face reads."""
    name = description.hub_name
    return [
        "---",
        *([f"base_model: {json.dumps(name)}"] if name else []),
        f"library_name: {library}",
        "pipeline_tag: text-generation",
        "tags:",
        *(f"- {tag}" for tag in ("ajet-console", "grpo", *tags)),
        "---",
        "",
    ]


def _facts(description: ModelDescription, step: int, run: str) -> list[str]:
    return [
        "| | |",
        "|---|---|",
        f"| Base model | `{description.base_name}` |",
        f"| Global step | {step} policy updates |",
        f"| Training run | {run or 'unknown'} |",
    ]


def _license() -> list[str]:
    return ["## License", "", _LICENSE, ""]
