"""Checkpoint manager of a local policy: list, save, restore, prune, export and import.

Methods import numpy only when they need it, so that the server starts without it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from engine.interface import LATEST, Checkpoint
from engine.storage import checkpoint_files

if TYPE_CHECKING:
    from engine.policy.weights import WeightStore
    from engine.training.state import Base


class LocalCheckpoints:
    """`CheckpointManager` of a policy that this process trains.

    Args:
        directory: Folder of the checkpoints.
        base: Loads the base weights; may take a second the first time.
    """

    def __init__(self, directory: Path, base: Callable[[], "Base"]) -> None:
        self._directory = directory
        self._base = base

    def check_name(self, name: str) -> None:
        """Raise CheckpointError unless a checkpoint can be saved under this name."""
        checkpoint_files.check_name(name)

    def list_all(self) -> list[Checkpoint]:
        """Return all checkpoints, newest first."""
        return checkpoint_files.list_checkpoints(self._directory)

    def prune(self, keep: int) -> list[str]:
        """Delete all but the newest `keep` named ones; return the deleted names."""
        return checkpoint_files.prune(self._directory, keep)

    def step(self) -> int:
        """Return the global step of the saved policy; 0 when nothing is saved."""
        return next((entry.step for entry in self.list_all() if entry.name == LATEST), 0)

    def save(self, name: str) -> None:
        """Copy the saved policy to a name."""
        with self._locked_store() as (store, base):
            store.copy_latest(name, base.digest)

    def restore(self, name: str) -> None:
        """Make a checkpoint the state to continue from."""
        with self._locked_store() as (store, base):
            store.restore(name, base.digest)

    def export(self, name: str, half: bool = False) -> bytes:
        """Return the trained weights as safetensors."""
        base = self._base()
        from engine.policy import weights

        return weights.export(self._directory, name, base, half)

    def import_weights(self, name: str, data: bytes) -> None:
        """Save safetensors weights under a name."""
        with self._locked_store() as (store, base):
            store.import_weights(name, data, base)

    @contextmanager
    def _locked_store(self) -> Iterator[tuple["WeightStore", "Base"]]:
        base = self._base()
        from engine.policy.weights import WeightStore

        store = WeightStore(self._directory)
        try:
            yield store, base
        finally:
            store.close()


class TinyCheckpoints(LocalCheckpoints):
    """Checkpoint manager of the tiny policy."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, _shipped)


def _shipped() -> "Base":
    from engine.training import threads

    threads.prepare()  # before numpy is imported, which fixes the threads of BLAS
    from engine.policy import weights

    return weights.shipped()
