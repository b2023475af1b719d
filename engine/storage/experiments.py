"""Storage of each experiment's state: weights, optimizer, step, checkpoints.

The default experiment is stored at the root, every other one in its own folder below it.
"""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

from engine.interface import CheckpointManager

DEFAULT_NAMES = ("", "ajet-console")
"""Names of the default experiment: none, and the name in the console's default job."""
FOLDER = "experiments"
_PLAIN = re.compile(r"[a-z0-9][a-z0-9_.-]{0,47}")
_OTHER = re.compile(r"[^a-z0-9_.-]+")


class Experiments:
    """Folders of all experiments, and the selected experiment.

    Args:
        root: Folder of the default experiment.
        open_checkpoints: Returns the checkpoint manager of a folder; None saves nothing.
    """

    def __init__(
        self, root: Path, open_checkpoints: Callable[[Path], CheckpointManager] | None = None
    ) -> None:
        self._root = root
        self._open_checkpoints = open_checkpoints
        self.folder = root
        """Folder of the selected experiment."""

    def choose(self, name: str) -> bool:
        """Select the experiment to train; return False when it was selected already."""
        folder = experiment_folder(self._root, name)
        changed = folder != self.folder
        self.folder = folder
        return changed

    def saved_step(self, name: str) -> int:
        """Return the saved global step of an experiment, 0 when nothing is saved. Reads files."""
        if self._open_checkpoints is None:
            return 0
        return self._open_checkpoints(experiment_folder(self._root, name)).step()

    def checkpoints(self) -> CheckpointManager | None:
        """Return the checkpoints of the selected experiment."""
        return self._open_checkpoints(self.folder) if self._open_checkpoints is not None else None


def experiment_folder(root: Path, name: str) -> Path:
    """Return the folder of an experiment; different names never share one, on any file system."""
    if name in DEFAULT_NAMES:
        return root
    if _PLAIN.fullmatch(name) and not name.endswith("."):
        return root / FOLDER / name
    digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:12]
    plain = _OTHER.sub("-", name.lower()).strip("-.")[:35]
    return root / FOLDER / f"{plain or 'experiment'}+{digest}"
