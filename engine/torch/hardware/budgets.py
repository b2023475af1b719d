"""Sizes of micro-batches that were found to fit, stored beside the checkpoints of a run.

Without the file, each start of the engine would run out of memory again to find them.
"""

import json
import logging
from pathlib import Path

from core.whole_file import replace_file

NAME = "micro-batches.json"
"""File in the folder of an experiment: key -> padded ids."""

log = logging.getLogger(__name__)


def read(directory: Path, key: str) -> int | None:
    """Return the size that was found; None when none is known.

    Args:
        directory: Folder of the experiment.
        key: What the size depends on: device, type, window, form of training.
    """
    size = _all(directory).get(key)
    return size if isinstance(size, int) and size > 0 else None


def write(directory: Path, key: str, size: int) -> None:
    """Store a size; a failure is a warning, as the next start finds the size again."""
    path = directory / NAME
    content = json.dumps({**_all(directory), key: size}, indent=1, sort_keys=True)
    try:
        replace_file(path, f"{content}\n".encode())
    except OSError as error:
        log.warning("%s: it cannot be written (%s)", path, error.strerror or error)


def _all(directory: Path) -> dict[str, object]:
    try:
        sizes = json.loads((directory / NAME).read_bytes())
    except (OSError, ValueError):
        return {}
    return sizes if isinstance(sizes, dict) else {}
