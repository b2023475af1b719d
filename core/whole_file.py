"""Small files that are written whole or not at all: a reader finds the old content or the new one.

They survive a kill and a loss of power. Writing blocks until the content is on the disk, so an
event loop needs a thread for it.
"""

import contextlib
import errno
import os
import secrets
from pathlib import Path

_NO_SYNC = (errno.EINVAL, errno.ENOTSUP)
"""Errors of file systems that cannot sync a folder."""


def replace_file(path: Path, content: bytes, mode: int | None = None) -> None:
    """Create a file or replace it atomically.

    Args:
        path: The file; a link is replaced, not followed.
        content: All of it.
        mode: Permissions, which the temporary file has from the beginning; None for those that the
            process gives a new file.

    Raises:
        OSError: It cannot be written; an earlier file is as before. If only the folder cannot be
            synced, the file is replaced but may not survive a loss of power.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    descriptor = os.open(temporary, flags, 0o666 if mode is None else mode)
    try:
        with open(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(descriptor, mode)  # the process may take permissions of a new file away
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:  # an interruption must not leave it either
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a loss of power, where folders can be synced.

    Raises:
        OSError: The disk refuses it.
    """
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(descriptor)
