"""A disk without space."""

import contextlib
import errno
import os
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def full_disk(*calls: str) -> Iterator[None]:
    """Let these functions of `os` fail."""

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        for call in calls:
            patch.setattr(os, call, fail)
        yield
