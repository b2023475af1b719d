"""Small files that are written whole or not at all."""

import contextlib
import os
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Write a file that survives a kill and a loss of power; blocks until it is on the disk.

    Raises:
        OSError: it cannot be written; an earlier file is as before.
    """
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
