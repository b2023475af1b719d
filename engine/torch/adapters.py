"""LoRA adapters as folders that PEFT and vLLM load, one for each of the last policy updates."""

import contextlib
import json
import logging
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from engine.storage.new_folder import new_folder, remove_folder, remove_incomplete
from engine.torch.description import ModelDescription
from engine.torch.model_card import adapter_card

log = logging.getLogger(__name__)

KEPT = 10
"""Number of the newest adapters that are kept besides those of named checkpoints."""
WEIGHTS, CONFIG, CARD = "adapter_model.safetensors", "adapter_config.json", "README.md"
_STEP = re.compile(r"step-(\d{6,})")


def step_name(step: int) -> str:
    """Return the name of a step's adapter, which is that of its checkpoint by `save_freq`."""
    return f"step-{step:06d}"


def write_adapter(
    folder: Path, weights: bytes, description: ModelDescription, step: int, run: str
) -> None:
    """Write the files of an adapter into a folder.

    Args:
        folder: Must exist.
        weights: The tensors, as a safetensors file with the names of PEFT.
        description: The base model and the form of LoRA.
        step: Global step of the weights.
        run: Id of the training run; may be empty.

    Raises:
        OSError: a file cannot be written.
    """
    (folder / WEIGHTS).write_bytes(weights)
    (folder / CONFIG).write_text(json.dumps(peft_config(description), indent=2) + "\n", "utf-8")
    (folder / CARD).write_text(adapter_card(description, step, run), "utf-8")


def peft_config(description: ModelDescription) -> dict[str, Any]:
    """Return the configuration of the adapter; PEFT has defaults for what it does not name."""
    return {
        "alpha_pattern": {},
        "auto_mapping": None,
        "base_model_name_or_path": description.base_name,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "layers_pattern": None,
        "layers_to_transform": None,
        "lora_alpha": description.alpha,
        "lora_dropout": 0.0,
        "modules_to_save": None,
        "peft_type": "LORA",
        "r": description.rank,
        "rank_pattern": {},
        "revision": None,
        "target_modules": list(description.modules),
        "task_type": "CAUSAL_LM",
        "use_dora": False,
        "use_rslora": False,
    }


class AdapterFolders:
    """The adapters of one experiment, `step-000012` and so on.

    Args:
        directory: Folder of the experiment; the adapters are in `adapters` below it.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "adapters"

    def path(self, step: int) -> Path:
        """Return the folder of a step's adapter."""
        return self.directory / step_name(step)

    def find(self, name: str) -> Path | None:
        """Return the weights of the adapter `name`; None when there is none."""
        path = self.directory / name / WEIGHTS
        return path if _STEP.fullmatch(name) and path.is_file() else None

    def steps(self) -> list[int]:
        """Return the steps that have an adapter, in order."""
        return sorted(step for step, _ in self._newest_first())

    def write(self, weights: bytes, description: ModelDescription, step: int, run: str) -> None:
        """Write the adapter of a step, which replaces an older one of that step.

        Raises:
            OSError: it cannot be written; the others are as before.
        """
        remove_incomplete(self.directory)
        with new_folder(self.path(step)) as folder:
            write_adapter(folder, weights, description, step, run)

    def rotate(self, named: Collection[int]) -> None:
        """Delete all but the newest `KEPT` adapters and those of the steps `named`.

        The newest are those written last: a restored checkpoint counts again from its step.
        """
        for step, path in self._newest_first()[KEPT:]:
            if step not in named:
                self._remove(path)

    def remove(self, steps: Iterable[int]) -> None:
        """Delete the adapters of these steps."""
        for step in steps:
            self._remove(self.path(step))

    def set_aside(self, after: int, named: Collection[int], name: str) -> None:
        """Move the adapters of abandoned steps into a folder beside the others, which replaces an
        older one of that name.

        Args:
            after: The step that training continues from; later ones are abandoned.
            named: Steps of named checkpoints, whose adapters stay.
            name: Of the folder.
        """
        abandoned = [
            path for step, path in self._newest_first() if step > after and step not in named
        ]
        if not abandoned:
            return
        target = self.directory / name
        try:
            if target.exists():
                remove_folder(target)
            target.mkdir()
            for path in abandoned:
                path.rename(target / path.name)
        except OSError as error:
            log.warning("%s: adapters stay in place (%s)", target, error.strerror or error)

    def _newest_first(self) -> list[tuple[int, Path]]:
        entries = []
        for path in self.directory.glob("step-*"):
            match = _STEP.fullmatch(path.name)
            with contextlib.suppress(OSError):
                if match is not None and path.is_dir():
                    step = int(match[1])
                    entries.append((path.stat().st_mtime_ns, step, path))
        return [(step, path) for _, step, path in sorted(entries, reverse=True)]

    def _remove(self, path: Path) -> None:
        if not path.exists():
            return
        try:
            remove_folder(path)
        except OSError as error:
            log.warning("%s: the adapter cannot be deleted (%s)", path, error.strerror or error)
