"""Saved states of a torch policy: trained parameters and Adam's means, in files of one format with
those of the tiny policy.
"""

import contextlib
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.interface import LATEST, SaveError, WeightsError
from engine.storage import checkpoint_files, safetensors
from engine.storage.checkpoint_files import OtherBaseError
from engine.storage.checkpoint_store import CheckpointStore
from engine.storage.safetensors import Tensor
from engine.storage.weight_tensors import fill, fill_from, to_tensors
from engine.torch import description as descriptions
from engine.torch.adapters import AdapterFolders
from engine.torch.description import ModelDescription

__all__ = ["ModelDescription", "TorchState", "TorchStore", "export", "views"]

log = logging.getLogger(__name__)

Array = NDArray[np.float32]


@dataclass(slots=True)
class TorchState:
    """State from which training continues; the arrays are flat, float32 and of one length."""

    flat: Array
    """Trained parameters in the order of the layout."""
    m: Array
    v: Array
    t: int
    """Number of optimizer steps."""
    step: int


class TorchStore(CheckpointStore):
    """Saved states of one torch policy in one directory; see `CheckpointStore`."""

    def load(self, description: ModelDescription) -> TorchState | None:
        """Return the latest intact state; None when nothing is saved.

        A damaged latest checkpoint is renamed, with a warning. The description is stored in the
        directory.

        Raises:
            OtherBaseError: the saved state is of another model, or of another form of training.
            WeightsError: neither of the last two states can be used; names the newest intact
                checkpoint if there is one.
        """
        try:
            state = self.load_saved(lambda path: _unpack(path, description), description.base)
        except OtherBaseError as error:
            raise self._other_base(error, description) from error
        with contextlib.suppress(OSError):  # a save writes it again, and reports
            descriptions.write(self.directory, description)
        return state

    def save(self, state: TorchState, description: ModelDescription, name: str = LATEST) -> None:
        """Replace the latest checkpoint, or save the state under its own name.

        Raises:
            SaveError: nothing was replaced; everything saved before is intact.
            CheckpointError: the name is invalid.
        """
        if name != LATEST:
            checkpoint_files.check_name(name)
        try:
            descriptions.write(self.directory, description)
        except OSError as error:
            path = self.directory / descriptions.NAME
            raise SaveError(
                f"{path}: global step {state.step} could not be saved "
                f"({error.strerror or error}). "
                "Free space or correct the permissions: the next update saves again."
            ) from error
        content = _file_parts(state, description, self.run.id)
        self.write(name, content, f"global step {state.step}")
        if name == LATEST and description.kind == "lora":
            self._write_adapter(state, description)

    def import_weights(self, name: str, data: bytes, description: ModelDescription) -> int:
        """Save exported weights under a name, with a fresh optimizer; return their global step.

        Raises:
            SafetensorsError: names the invalid field; nothing is saved.
            SaveError: they could not be written.
        """
        checkpoint_files.check_name(name)
        flat = np.zeros(description.size, np.float32)
        step, metadata = fill_from(data, views(flat, description), description.base)
        zeros = np.zeros_like(flat)
        state = TorchState(flat, zeros, zeros, 0, step)
        content = _file_parts(state, description, metadata.get("run", ""))
        self.write(name, content, "the imported weights")
        return step

    def reset(self) -> None:
        """Set the saved states and their adapters aside; the next load returns the base.

        Raises:
            WeightsError: the states could not be moved.
        """
        super().reset()
        named = checkpoint_files.named_steps(self.directory)
        AdapterFolders(self.directory).set_aside(0, named, checkpoint_files.BEFORE_RESET)

    def _write_adapter(self, state: TorchState, description: ModelDescription) -> None:
        """Write the adapter; the checkpoint is saved already, so a failure is a warning."""
        adapters, run = AdapterFolders(self.directory), self.run.id
        tensors = to_tensors(views(state.flat, description))
        weights = safetensors.pack(tensors, metadata_of(description, state.step, run))
        try:
            adapters.write(weights, description, state.step, run)
        except OSError as error:
            path = adapters.path(state.step)
            log.warning("%s: the adapter was not written (%s)", path, error.strerror or error)
        adapters.rotate(checkpoint_files.named_steps(self.directory))

    def _other_base(self, error: OtherBaseError, description: ModelDescription) -> OtherBaseError:
        """Return the error with the model that the saved state belongs to."""
        todo = "Give the job another ajet.experiment_name, or start with --reset"
        with contextlib.suppress(WeightsError):
            saved = descriptions.read(self.directory)
            todo = (
                f"It belongs to {saved.base_model} ({saved.form}), this engine trains "
                f"{description.base_model} ({description.form}). {todo}"
            )
        return OtherBaseError(
            "The checkpoint was trained from another model, or in another form",
            error.where,
            f"{todo}, which keeps the saved state as before-reset.",
        )


def export(path: Path, description: ModelDescription, half: bool = False) -> bytes:
    """Return the weights of a checkpoint as safetensors, with base, step and training run.

    Args:
        path: The checkpoint.
        description: The model it belongs to.
        half: float16 instead of float32.

    Raises:
        WeightsError: it is damaged or of another base.
    """
    header, flat = _read(path, description, 1)
    metadata = metadata_of(description, header["step"], str(header.get("run", "")))
    return safetensors.pack(to_tensors(views(flat[0], description), half), metadata)


def as_half(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, str], description: ModelDescription
) -> bytes:
    """Return exported weights in float16."""
    flat = np.zeros(description.size, np.float32)
    fill(views(flat, description), tensors)
    return safetensors.pack(to_tensors(views(flat, description), half=True), metadata)


def metadata_of(description: ModelDescription, step: int, run: str) -> dict[str, str]:
    """Return the metadata of exported weights; transformers requires the format `pt`."""
    return {"format": "pt", "base": description.base, "step": str(step), "run": run}


def views(flat: Array, description: ModelDescription) -> dict[str, Array]:
    """Return the trained tensors by name, as views of the flat vector."""
    tensors = {}
    start = 0
    for name, shape in description.layout:
        end = start + math.prod(shape)
        tensors[name] = flat[start:end].reshape(shape)
        start = end
    return tensors


def _unpack(path: Path, description: ModelDescription) -> TorchState:
    header, (flat, m, v) = _read(path, description, 3)
    return TorchState(flat, m, v, int(header["t"]), int(header["step"]))


def _read(
    path: Path, description: ModelDescription, arrays: int
) -> tuple[Mapping[str, Any], Array]:
    header, body = checkpoint_files.read(path, description.base, arrays)
    if header["size"] != description.size:
        raise WeightsError("The checkpoint is of a model of another size", str(path))
    return header, np.frombuffer(body, "<f4").reshape(arrays, -1)


def _file_parts(
    state: TorchState, description: ModelDescription, run: str
) -> list[bytes | memoryview]:
    header = {
        "base": description.base,
        "step": state.step,
        "t": state.t,
        "size": int(state.flat.size),
        "run": run,
    }
    arrays = [np.ascontiguousarray(array, "<f4") for array in (state.flat, state.m, state.v)]
    if {array.shape for array in arrays} != {(description.size,)}:
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise ValueError(f"the arrays have {shapes}, the layout has {description.size}")
    return checkpoint_files.file_parts(header, [array.view(np.uint8).data for array in arrays])
