"""Checkpoint manager of the tiny policy: list, save, restore, prune, export and import.

Methods import numpy only when they need it, so that the server starts without it.
"""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from engine.storage.checkpoint_folder import CheckpointFolder

if TYPE_CHECKING:
    from engine.training.state import Base


class TinyCheckpoints(CheckpointFolder):
    """`CheckpointManager` of the tiny policy.

    Args:
        directory: Folder of the checkpoints.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, lambda: _shipped().digest)

    def export(self, name: str, half: bool = False) -> bytes:
        """Return the trained weights as safetensors."""
        base = _shipped()
        from engine.policy import weights

        return weights.export(self.directory, name, base, half)

    def import_weights(self, name: str, data: bytes) -> None:
        """Save safetensors weights under a name."""
        base = _shipped()
        from engine.policy.weights import WeightStore

        with closing(WeightStore(self.directory)) as store:
            store.import_weights(name, data, base)


def _shipped() -> "Base":
    from engine.training import threads

    threads.prepare()  # before numpy is imported, which fixes the threads of BLAS
    from engine.policy import weights

    return weights.shipped()
