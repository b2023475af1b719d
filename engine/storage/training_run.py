"""Id of the training run to which the weights in a folder belong.

Within a training run every global step stands for one state of the weights. So the file is replaced
before the weights are reset or restored, and removed when an update cannot be saved: the next
opening then counts again from an earlier step.
"""

import contextlib
import json
import secrets
from pathlib import Path

from core.whole_file import replace_file
from engine.interface import TrainingRun

NAME = "training-run.json"


def new_run(start: str = "") -> TrainingRun:
    """Return a training run with a new id that begins at the checkpoint `start`."""
    return TrainingRun(secrets.token_hex(4), start)


class TrainingRunFile:
    """The file with the training run of one folder; a failed write leaves no file.

    Args:
        directory: The folder of the weights.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME

    def read(self) -> TrainingRun | None:
        """Return the stored training run; None without a readable one."""
        try:
            stored = json.loads(self._path.read_bytes())
            name, start = stored["run"], stored["start"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        valid = isinstance(name, str) and name.isalnum() and isinstance(start, str)
        return TrainingRun(name, start) if valid else None

    def begin(self, start: str = "") -> TrainingRun:
        """Replace the training run by a new one that begins at the checkpoint `start`."""
        self.drop()
        run = new_run(start)
        self.keep(run)
        return run

    def keep(self, run: TrainingRun) -> None:
        """Store the training run if none is stored."""
        if self._path.exists():
            return
        with contextlib.suppress(OSError):
            content = json.dumps({"run": run.id, "start": run.start})
            replace_file(self._path, content.encode())

    def drop(self) -> None:
        """Remove the stored training run.

        Raises:
            OSError: it cannot be removed, so it would be taken for that of other weights.
        """
        self._path.unlink(missing_ok=True)
