"""Checks of a model's files before anything is loaded; without torch and transformers."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ajet_swarm.common.errors import UsageError

WEIGHTS = re.compile(r"model(-\d+-of-\d+)?\.safetensors")
"""Names of the files with weights that transformers loads."""
INDEX = "model.safetensors.index.json"
"""File with the names of the files that hold the weights."""
_PART = re.compile(r"(.+)-(\d+)-of-(\d+)\.(safetensors|bin)")
_POINTER = b"version https://git-lfs"
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "*.tiktoken")
_TEXT_MODEL = ("ForCausalLM", "LMHeadModel")
_LOGITS: Mapping[str, tuple[float | None, ...]] = {
    "final_logit_softcapping": (None, 0),
    "logits_soft_cap": (None, 0),
    "output_logit_soft_cap": (None, 0),
    "logits_scaling": (None, 1),
    "logit_scale": (None, 1),
    "lm_head_multiplier": (None, 1),
}
"""Fields of a configuration that change the logits after the last layer -> values that do not."""


class ModelLoadError(UsageError):
    """The model that was named cannot be loaded."""


def check_folder(folder: Path) -> None:
    """Check that a folder has a model of text that can be trained.

    Raises:
        ModelLoadError: a file is missing or broken, or the model is of another kind.
    """
    config = read_config(folder)
    check_config(config, str(folder))
    if lacking := missing_file(folder):
        raise ModelLoadError(f"The folder has no {lacking}", str(folder), _todo(folder, lacking))
    _check_content(folder)
    if not _has_template(folder):
        raise ModelLoadError("The model has no chat template", str(folder), "Use an instruct model")


def check_gguf(path: Path) -> None:
    """Check that a file begins as a GGUF file.

    Raises:
        ModelLoadError: it does not, or cannot be read.
    """
    if not _start(path).startswith(b"GGUF"):
        raise ModelLoadError("This is no GGUF file", str(path), "Download it again")


def check_config(config: Mapping[str, Any], where: str) -> None:
    """Check that a configuration is that of a model of text that can be trained as it is.

    Args:
        config: Content of `config.json`, or the configuration that transformers read.
        where: The model, for the messages.

    Raises:
        ModelLoadError: it is not.
    """
    kinds = [str(name) for name in config.get("architectures") or ()]
    if config.get("is_encoder_decoder") or (
        kinds and not any(kind.endswith(_TEXT_MODEL) for kind in kinds)
    ):
        raise ModelLoadError(
            f"{kinds[0] if kinds else 'An encoder with a decoder'} is no causal language model",
            where,
            "Models that read images, encoders and sequence-to-sequence models are not trained "
            "here: use a model of text, an architecture ...ForCausalLM",
        )
    if quantized := config.get("quantization_config"):
        method = quantized.get("quant_method", "") if isinstance(quantized, Mapping) else ""
        raise ModelLoadError(
            f"The weights are quantized{f' ({method:.20})' if method else ''}",
            f"{where}: quantization_config",
            "Use the unquantized weights of this model",
        )
    inner = config.get("text_config")
    for part in (config, inner if isinstance(inner, Mapping) else {}):
        for name, plain in _LOGITS.items():
            if part.get(name) not in plain:
                raise ModelLoadError(
                    f"The model changes its logits after the last layer ({part[name]}), which an "
                    "update would not reproduce",
                    f"{where}: {name}",
                    "Use another model",
                )


def read_config(folder: Path) -> Mapping[str, Any]:
    """Return the content of a folder's `config.json`.

    Raises:
        ModelLoadError: it is missing or broken.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_bytes())
    except FileNotFoundError:
        text, todo = "The folder has no config.json", "Give the folder of a Hugging Face model"
        if (folder / "adapter_config.json").is_file():
            text = "This is an adapter, not a model"
            todo = "Give the model it was trained on, or export it with `--merge`"
        elif files := sorted(folder.glob("*.gguf")):
            todo = f"Give the file, for example {files[0]}"
        raise ModelLoadError(text, str(folder), todo) from None
    except (OSError, ValueError) as error:
        raise ModelLoadError(
            f"config.json cannot be read: {error}", str(path), "Download the model again"
        ) from error
    if not isinstance(config, dict):
        raise ModelLoadError("config.json is no object", str(path), "Download the model again")
    return config


def missing_file(folder: Path) -> str:
    """Return what a folder lacks to be a whole model; empty when nothing is missing."""
    if not (folder / "config.json").is_file():
        return "config.json"
    weights = next(_missing_weights(folder), "")
    if weights:
        return weights
    if not any(path.is_file() for name in _TOKENIZERS for path in folder.glob(name)):
        return "tokenizer"
    return ""


def _missing_weights(folder: Path) -> Iterator[str]:
    names = {path.name for path in folder.iterdir() if path.suffix in (".safetensors", ".bin")}
    for index, suffix in ((INDEX, ".safetensors"), ("pytorch_model.bin.index.json", ".bin")):
        if (folder / index).is_file() and any(name.endswith(suffix) for name in names):
            yield from sorted(_named_files(folder / index) - names)
            return
    if "model.safetensors" in names:
        return
    for part in filter(None, map(_PART.fullmatch, sorted(names))):
        first, _, count, suffix = part.groups()
        expected = {
            f"{first}-{i:0{len(count)}}-of-{count}.{suffix}" for i in range(1, int(count) + 1)
        }
        yield from sorted(expected - names)
        yield f"{first}.{suffix}.index.json"
    if not names:
        yield "weights (*.safetensors)"


def _named_files(index: Path) -> set[str]:
    """Return the names of the files with weights that an index names."""
    try:
        named = json.loads(index.read_bytes())["weight_map"]
        return {str(file) for file in named.values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelLoadError(
            f"The index of the weights cannot be read ({error!r:.80})",
            str(index),
            "Download the model again",
        ) from error


def _check_content(folder: Path) -> None:
    """Refuse pointers of Git LFS, which stand where the weights belong."""
    for path in (*folder.glob("*.safetensors"), *folder.glob("*.bin"), *folder.glob("tokenizer*")):
        _start(path)


def _start(path: Path) -> bytes:
    """Return the first bytes of a file that is no pointer of Git LFS."""
    try:
        with path.open("rb") as file:
            start = file.read(len(_POINTER))
    except OSError as error:
        raise ModelLoadError(
            f"The file cannot be read: {error.strerror or error}", str(path), "Check its owner"
        ) from error
    if start == _POINTER:
        raise _pointer(path)
    return start


def _pointer(path: Path) -> ModelLoadError:
    return ModelLoadError(
        "This is a pointer of Git LFS, not the file", str(path), "Run `git lfs pull` in its folder"
    )


def _has_template(folder: Path) -> bool:
    if any(folder.glob("chat_template.*")):
        return True
    try:
        return bool(json.loads((folder / "tokenizer_config.json").read_bytes())["chat_template"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _todo(folder: Path, lacking: str) -> str:
    files = sorted(folder.glob("*.gguf"))
    if files and lacking.startswith("weights"):
        return f"Give the file, for example {files[0]}"
    return "Give the folder of a whole Hugging Face model, or download it again"
