"""Checkpoint manager of a torch policy; loads no torch, and numpy only when it is needed."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine.interface import NoCheckpointError, WeightsError
from engine.storage import checkpoint_files, safetensors
from engine.storage.checkpoint_files import BASE_NAME, BEFORE_RESET, BEFORE_RESTORE
from engine.storage.checkpoint_folder import CheckpointFolder
from engine.torch import description
from engine.torch.adapters import AdapterFolders


class TorchCheckpoints(CheckpointFolder):
    """`CheckpointManager` of a policy that the torch backend trains.

    Args:
        directory: Folder of the checkpoints.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, lambda: description.read(directory).base)
        self._adapters = AdapterFolders(directory)

    def prune(self, keep: int) -> list[str]:
        """Delete all but the newest `keep` named ones, and the adapters of the deleted ones; return
        the deleted names."""
        before = {entry.name: entry.step for entry in self.list_all()}
        deleted = super().prune(keep)
        present = {entry.step for entry in self.list_all()}
        self._adapters.remove({before[name] for name in deleted if name in before} - present)
        self._adapters.rotate(checkpoint_files.named_steps(self.directory))
        return deleted

    def restore(self, name: str) -> None:
        """Make a checkpoint the state to continue from; set the adapters of later steps aside, as
        the state that was the latest."""
        super().restore(name)
        aside = BEFORE_RESET if name == BASE_NAME else BEFORE_RESTORE
        named = checkpoint_files.named_steps(self.directory)
        self._adapters.set_aside(self.step(), named, aside)

    def export(self, name: str, half: bool = False) -> bytes:
        """Return the trained tensors as safetensors, with the names of PEFT or transformers.

        Args:
            name: A checkpoint, or the adapter `step-000012`.
            half: float16 instead of float32.

        Raises:
            NoCheckpointError: nothing has this name, or it is `base`.
            WeightsError: it is damaged or of another base.
        """
        model = description.read(self.directory)
        if name == BASE_NAME:
            raise NoCheckpointError(
                "The base weights are not saved: they are the files of the model", model.base_files
            )
        from engine.torch import store

        adapter = self._adapters.find(name)
        path = self.directory / f"{name}.ckpt"
        if adapter is None and not path.exists():
            names = ", ".join(entry.name for entry in self.list_all()) or "no checkpoints"
            steps = ", ".join(str(step) for step in self._adapters.steps()) or "none"
            raise NoCheckpointError(
                "There is neither a checkpoint nor an adapter of this name",
                f"name {name!r:.100}",
                f"There are: {names}; adapters after the updates {steps}. The console shows "
                "the step that follows: one more.",
            )
        if adapter is None or path.exists():
            return store.export(checkpoint_files.find(self.directory, name), model, half)
        try:
            data = adapter.read_bytes()
        except OSError as error:
            raise WeightsError(
                f"The adapter cannot be read ({error.strerror})", str(adapter)
            ) from error
        tensors, metadata = safetensors.unpack(data)
        if metadata.get("base") != model.base:
            raise WeightsError("The adapter was trained from another model", str(adapter))
        return store.as_half(tensors, metadata, model) if half else data

    def import_weights(self, name: str, data: bytes) -> None:
        """Save weights that `export` returned under a name, with a fresh optimizer."""
        model = description.read(self.directory)
        from engine.torch.store import TorchStore

        store = TorchStore(self.directory)
        try:
            store.import_weights(name, data, model)
        finally:
            store.close()

    def model(self) -> Mapping[str, Any]:
        return asdict(description.read(self.directory))
