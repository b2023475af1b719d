"""Checkpoints of one folder: list, save, restore and prune; independent of what they contain."""

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from engine.interface import LATEST, Checkpoint
from engine.storage import checkpoint_files
from engine.storage.checkpoint_files import BASE_NAME
from engine.storage.checkpoint_store import CheckpointStore


class CheckpointFolder:
    """Part of `CheckpointManager` that is the same for every kind of policy.

    Args:
        directory: Folder of the checkpoints.
        digest: Returns the digest of the base weights; may take a second the first time.
    """

    def __init__(self, directory: Path, digest: Callable[[], str]) -> None:
        self.directory = directory
        self._digest = digest

    def check_name(self, name: str) -> None:
        """Raise CheckpointError unless a checkpoint can be saved under this name."""
        checkpoint_files.check_name(name)

    def list_all(self) -> list[Checkpoint]:
        """Return all checkpoints, newest first."""
        return checkpoint_files.list_checkpoints(self.directory)

    def prune(self, keep: int) -> list[str]:
        """Delete all but the newest `keep` named ones; return the deleted names."""
        return checkpoint_files.prune(self.directory, keep)

    def step(self) -> int:
        """Return the global step of the saved policy; 0 when nothing is saved."""
        return next((entry.step for entry in self.list_all() if entry.name == LATEST), 0)

    def save(self, name: str) -> None:
        """Copy the saved policy to a name."""
        digest = self._digest()
        with closing(CheckpointStore(self.directory)) as store:
            store.copy_latest(name, digest)

    def restore(self, name: str) -> None:
        """Make a checkpoint the state to continue from."""
        digest = "" if name == BASE_NAME else self._digest()
        with closing(CheckpointStore(self.directory)) as store:
            store.restore(name, digest)

    def model(self) -> Mapping[str, Any] | None:
        """Return None: the program contains the base model."""
        return None
