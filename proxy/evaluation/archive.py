"""Files with all samples of the looks: one gzipped JSON file for each look."""

import contextlib
import gzip
import logging
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from proxy.evaluation.scoring import ScoredSample

log = logging.getLogger(__name__)

FOLDER = "looks"
"""Folder of the files in the home."""
LARGEST = 256 << 20
"""Maximum size in bytes of a file after decompression."""


class StoredPrompt(msgspec.Struct, kw_only=True):
    """The samples of one prompt."""

    id: str
    prompt: str
    reference: str = ""
    greedy: str | None = None
    """Answer of greatest probability; None if the server cannot sample it."""
    samples: tuple[ScoredSample, ...] = ()


class StoredLook(msgspec.Struct, kw_only=True):
    """All samples of a look."""

    look_id: str
    server: str
    step: int | None
    at: float
    """Unix seconds when it ended."""
    reward: str
    """Version of the reward that scored it."""
    probe_set: str
    """Version of the probe set."""
    prompts: tuple[StoredPrompt, ...]

    def texts(self) -> Mapping[str, list[str]]:
        """Return the texts of the samples by prompt id."""
        return {one.id: [sample.text for sample in one.samples] for one in self.prompts}


class LookArchive:
    """The files of the looks below a home.

    Args:
        home: The home folder.
    """

    def __init__(self, home: Path) -> None:
        self._home = home

    def write(self, look: StoredLook) -> str:
        """Write a look, atomically; return its path relative to the home, empty if that fails."""
        relative = Path(FOLDER) / f"{look.look_id}.json.gz"
        path = self._home / relative
        partial = path.with_suffix(".part")
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            with partial.open("wb") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(gzip.compress(msgspec.json.encode(look), mtime=0))
            partial.replace(path)
        except OSError as error:
            log.warning("the samples of look %s are not stored: %s", look.look_id, error)
            with contextlib.suppress(OSError):
                partial.unlink()
            return ""
        return str(relative)

    def read(self, file: str) -> StoredLook | None:
        """Return the look in a file that `write` returned; None if it cannot be read."""
        if not file:
            return None
        try:
            with gzip.open(self._home / file) as stream:
                data = stream.read(LARGEST + 1)
            if len(data) > LARGEST:
                raise ValueError(f"over {LARGEST >> 20} MiB")
            return msgspec.json.decode(data, type=StoredLook)
        except (OSError, EOFError, ValueError, msgspec.MsgspecError) as error:
            log.warning("the samples in %s cannot be read: %s", file, error)
            return None
