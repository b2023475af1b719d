"""Files of a base model on this machine, and their digest; without torch."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.torch.files import hub
from engine.torch.files.check import ModelLoadError, check_folder, check_gguf
from engine.torch.names import is_gguf

__all__ = ["BaseFiles", "ModelLoadError", "form_text", "locate"]

_SAMPLE = 1 << 20
"""Bytes of a file's start and end that its digest covers: files have gigabytes."""


@dataclass(frozen=True, slots=True)
class BaseFiles:
    """A folder with a model, or a GGUF file."""

    path: Path
    """Absolute."""
    weights: Sequence[Path]
    """Files whose content is part of the digest."""

    @property
    def place(self) -> str:
        """Folder to give to `from_pretrained`."""
        return str(self.path.parent if is_gguf(self.path.name) else self.path)

    def tokenizer_arguments(self) -> dict[str, Any]:
        """Return the further arguments that load the tokenizer."""
        return {"gguf_file": self.path.name} if is_gguf(self.path.name) else {}

    def model_arguments(self) -> dict[str, Any]:
        """Return the further arguments that load the model; a GGUF file's weights become plain
        ones, which can be trained and saved."""
        arguments = self.tokenizer_arguments()
        if arguments:
            import transformers

            config = getattr(transformers, "GgufConfig", None)
            if config is not None:
                arguments["quantization_config"] = config(dequantize=True)
        return arguments

    def digest(self, form: str) -> str:
        """Return a digest of the files' names, sizes, starts and ends, and of the form of training.

        Raises:
            OSError: a file cannot be read.
        """
        total = hashlib.sha256(form.encode())
        for path in self.weights:
            size = path.stat().st_size
            total.update(f"{path.name}:{size}".encode())
            with path.open("rb") as file:
                total.update(file.read(_SAMPLE))
                file.seek(max(0, size - _SAMPLE), os.SEEK_SET)
                total.update(file.read(_SAMPLE))
        return total.hexdigest()


def locate(model: str) -> BaseFiles:
    """Return the files of a model on this machine, checked; nothing is downloaded.

    Args:
        model: A folder, a GGUF file, or a name in the cache of Hugging Face.

    Raises:
        ModelLoadError: it is none of them, a file is missing or broken, or the model is of a kind
            that cannot be trained.
    """
    path = Path(model).expanduser()
    if is_gguf(model):
        if not path.is_file():
            raise ModelLoadError("The GGUF file does not exist", model, "Give its path")
        check_gguf(path)
        return BaseFiles(path.absolute(), (path,))
    if not path.is_dir():
        path = _cached(model)
    check_folder(path)
    weights = sorted(path.glob("*.safetensors")) or sorted(path.glob("*.bin"))
    return BaseFiles(path.absolute(), (*weights, *path.glob("config.json")))


def _cached(model: str) -> Path:
    """Return the folder of a model in the cache of Hugging Face."""
    is_name = hub.is_hub_name(model)
    folder = hub.cached_folder(model) if is_name else None
    if folder is not None:
        return folder
    todo = "Give a folder or a GGUF file"
    if is_name:
        command = f"ajet-console run engine --backend torch --model {model}"
        todo = f"Download it with `{command}`, or give a folder or a GGUF file"
    raise ModelLoadError(
        "The model is neither a folder nor in the cache of Hugging Face", model, todo
    )


def form_text(rank: int, alpha: int, targets: Sequence[str]) -> str:
    """Return the form of training as it is part of a digest.

    Args:
        rank: Rank of LoRA; 0 when all weights are trained.
        alpha: Scale of LoRA.
        targets: Modules with LoRA; empty for all linear ones.
    """
    return f"rank {rank} alpha {alpha} {','.join(targets) or 'all-linear'}" if rank else "full"
