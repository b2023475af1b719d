"""Description of the model that a torch policy trains, stored beside its checkpoints.

Needs neither torch nor numpy, so that the command line can read it.
"""

import contextlib
import json
import math
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import msgspec

from core.whole_file import replace_file
from engine.interface import NoCheckpointError, WeightsError
from engine.torch.names import is_gguf

NAME = "model.json"
"""File with the description in the folder of an experiment."""
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """The base model and the form of the trained parameters."""

    base: str
    """Digest of the base weights and of the form of training."""
    base_model: str
    """Name or path of the base model, as the user gave it."""
    base_files: str
    """Absolute path of the folder or GGUF file that was loaded."""
    kind: Literal["lora", "full"]
    rank: int
    """Rank of LoRA; 0 when all weights are trained."""
    alpha: int
    """LoRA adds `alpha / rank` times the product of its matrices."""
    targets: tuple[str, ...]
    """Names of the modules with LoRA; empty for all linear ones."""
    dtype: str
    """Of the base weights in the policy's memory, for example `bfloat16`."""
    layout: tuple[tuple[str, tuple[int, ...]], ...]
    """Name and shape of each trained tensor, in the order of the flat vector."""

    @property
    def size(self) -> int:
        """Number of trained parameters."""
        return sum(math.prod(shape) for _, shape in self.layout)

    @property
    def form(self) -> str:
        """The form of training in words, for example `LoRA of rank 16`."""
        return f"LoRA of rank {self.rank}" if self.kind == "lora" else "all weights"

    @property
    def gguf(self) -> bool:
        """Whether the base model is a GGUF file."""
        return is_gguf(self.base_files)

    @property
    def hub_name(self) -> str:
        """The base model's name on Hugging Face; empty for files on the disk."""
        name = self.base_model
        parts = tuple(part for part in name.split("/") if part)
        is_path = self.gguf or Path(self.base_files).parts[-len(parts) :] == parts
        return "" if is_path or not _HUB_NAME.fullmatch(name) or name.startswith(".") else name

    @property
    def base_name(self) -> str:
        """The base model's name on Hugging Face, else the absolute path of its files."""
        return self.hub_name or self.base_files

    @property
    def modules(self) -> tuple[str, ...]:
        """Names of the modules with LoRA, sorted; those of the layout when `targets` names none."""
        if self.targets and self.targets != ("all-linear",):
            return tuple(sorted(self.targets))
        names = (name.partition(".lora_")[0].rpartition(".")[2] for name, _ in self.layout)
        return tuple(sorted(set(names)))


def read(directory: Path) -> ModelDescription:
    """Return the description of the model whose checkpoints a folder holds.

    Raises:
        NoCheckpointError: no policy was opened there yet, so nothing is saved.
        WeightsError: the file cannot be read.
    """
    path = directory / NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=ModelDescription)
    except FileNotFoundError:
        raise NoCheckpointError(
            "No policy of the torch backend is saved here",
            str(directory),
            "Start the engine: the first policy update saves it.",
        ) from None
    except (OSError, msgspec.MsgspecError) as error:
        raise WeightsError(
            f"The description of the model cannot be read ({error!r})",
            str(path),
            "Start the engine with its model: that writes the file again.",
        ) from error


def write(directory: Path, description: ModelDescription) -> None:
    """Store a description, unless the folder holds this one.

    Raises:
        OSError: it cannot be written; the file is as before.
    """
    path = directory / NAME
    content = json.dumps(asdict(description), indent=1).encode()
    with contextlib.suppress(OSError):
        if path.read_bytes() == content:
            return
    replace_file(path, content)
