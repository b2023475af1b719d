"""Where the state of each experiment is kept: weights, optimizer, step, checkpoints.

The default experiment is kept at the root, every other one in a folder of its own below it.
"""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

from engine.interface import CheckpointManager

DEFAULT_NAMES = ("", "ajet-console")
"""Names of the default experiment: none, and that of the console's default job."""
FOLDER = "experiments"
_PLAIN = re.compile(r"[a-z0-9][a-z0-9_.-]{0,47}")
_OTHER = re.compile(r"[^a-z0-9_.-]+")


class Experiments:
    """The folders of all experiments, and which experiment is trained.

    Args:
        root: Folder of the default experiment.
        keepers: Makes what lists and restores the checkpoints of a folder; None where nothing is
            saved.
    """

    def __init__(
        self, root: Path, keepers: Callable[[Path], CheckpointManager] | None = None
    ) -> None:
        self._root = root
        self._keepers = keepers
        self.folder = root
        """Of the experiment that is trained."""

    def choose(self, name: str) -> bool:
        """Train the experiment `name`; False when it is the one that is trained already."""
        folder = experiment_folder(self._root, name)
        changed = folder != self.folder
        self.folder = folder
        return changed

    def saved_step(self, name: str) -> int:
        """Global step that is saved of the experiment `name`; 0 when nothing is. Reads files."""
        if self._keepers is None:
            return 0
        return self._keepers(experiment_folder(self._root, name)).step()

    def keeper(self) -> CheckpointManager | None:
        """What lists and restores the checkpoints of the experiment that is trained."""
        return self._keepers(self.folder) if self._keepers is not None else None


def experiment_folder(root: Path, name: str) -> Path:
    """Folder of an experiment; two names never share one, whatever their letters and case."""
    if name in DEFAULT_NAMES:
        return root
    if _PLAIN.fullmatch(name) and not name.endswith("."):
        return root / FOLDER / name
    digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:12]
    plain = _OTHER.sub("-", name.lower()).strip("-.")[:35]
    return root / FOLDER / f"{plain or 'experiment'}+{digest}"
