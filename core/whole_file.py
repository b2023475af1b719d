"""Small files that are written whole or not at all: a reader finds the old content or the new one.

They are read only if they are what they should be: no pipe or device, and not larger than expected.
They survive a kill and a loss of power. Writing blocks until the content is on the disk, so an
event loop needs a thread for it.
"""

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path

LONGEST_SECRET = 64 << 10
"""Maximum size in bytes of a file with a key or a token."""
SHORTEST_TOKEN = 16
"""Minimum number of characters of a control token; ours have 43."""
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


def read_small(path: Path, limit: int = LONGEST_SECRET) -> bytes:
    """Return the content of a file without waiting for a writer.

    Args:
        path: The file; a link is followed.
        limit: Maximum size in bytes.

    Raises:
        OSError: It cannot be read, is a pipe, a device or a folder, or is too large.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        content = file.read(limit + 1)
    if len(content) > limit:
        size = f"{limit >> 20} MB" if limit >= 1 << 20 else f"{limit >> 10} KiB"
        raise OSError(errno.EFBIG, f"it is larger than {size}")
    return content


def make_private(path: Path, mode: int) -> None:
    """Set the permissions of a file or folder; a link is not followed.

    Raises:
        OSError: It is a link, or belongs to another user.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


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
