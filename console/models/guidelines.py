"""The guidelines of a run: a Markdown file about how to rate, and its version."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import plain

CAP = 200_000


@dataclass(frozen=True, slots=True)
class Guidelines:
    """The content of the file."""

    text: str
    version: str
    """First digits of the SHA-256 of the file; recorded with every vote."""


def read_guidelines(path: str) -> Guidelines | None:
    """Return the guidelines; None when the settings name no file.

    Raises:
        AjetError: the file cannot be read.
    """
    if not path:
        return None
    try:
        data = Path(path).expanduser().read_bytes()
    except OSError as error:
        raise AjetError(
            f"the guidelines cannot be read: {error.strerror or error}",
            path,
            "Set rating.guidelines to a Markdown file",
        ) from error
    text = plain(data[: 4 * CAP].decode("utf-8", "replace")[:CAP].replace("\r\n", "\n"))
    return Guidelines(text, hashlib.sha256(data).hexdigest()[:8])
