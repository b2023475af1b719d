"""What is saved of a policy, for those who list it, go back to it, or take it elsewhere.

Nothing here imports numpy before a method needs it, so that the server stays light until then.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from engine.interface import LATEST, Checkpoint
from engine.storage import checkpoints

if TYPE_CHECKING:
    from engine.policy.weights import WeightStore
    from engine.training.state import Base


class SavedCheckpoints:
    """A `CheckpointKeeper` of a policy of this machine.

    Args:
        directory: Where it is kept.
        base: Reads the weights it was trained from; may take a second the first time.
    """

    def __init__(self, directory: Path, base: Callable[[], "Base"]) -> None:
        self._directory = directory
        self._base = base

    def check_name(self, name: str) -> None:
        """Raise CheckpointError unless a checkpoint can be saved under this name."""
        checkpoints.check_name(name)

    def list_all(self) -> list[Checkpoint]:
        """All checkpoints, newest first."""
        return checkpoints.list_checkpoints(self._directory)

    def prune(self, keep: int) -> list[str]:
        """Delete all but the newest `keep` named ones; returns their names."""
        return checkpoints.prune(self._directory, keep)

    def step(self) -> int:
        """Global step of the saved policy; 0 when nothing is saved."""
        return next((facts.step for facts in self.list_all() if facts.name == LATEST), 0)

    def save(self, name: str) -> None:
        """Keep the saved policy under a name too."""
        with self._held() as (store, base):
            store.copy_latest(name, base.digest)

    def restore(self, name: str) -> None:
        """Make a checkpoint the one to go on from."""
        with self._held() as (store, base):
            store.restore(name, base.digest)

    def export(self, name: str, half: bool = False) -> bytes:
        """Weights as safetensors; of a policy that is trained in part, that part."""
        base = self._base()
        from engine.policy import weights

        return weights.export(self._directory, name, base, half)

    def import_weights(self, name: str, data: bytes) -> None:
        """Keep weights in the safetensors form under a name."""
        with self._held() as (store, base):
            store.import_weights(name, data, base)

    @contextmanager
    def _held(self) -> Iterator[tuple["WeightStore", "Base"]]:
        base = self._base()
        from engine.policy.weights import WeightStore

        store = WeightStore(self._directory)
        try:
            yield store, base
        finally:
            store.close()


class TinyCheckpoints(SavedCheckpoints):
    """That of the shipped policy."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, _shipped)


def _shipped() -> "Base":
    from engine.training import threads

    threads.prepare()  # before the next line brings numpy in: it fixes the threads of BLAS
    from engine.policy import weights

    return weights.shipped()
