"""Files with all samples of the looks: one gzipped JSON file for each look."""

import contextlib
import gzip
import logging
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from core.whole_file import replace_file
from proxy.evaluation.scoring import ScoredSample

log = logging.getLogger(__name__)

FOLDER = "looks"
"""Folder of the files in the home."""
MOST = 1_000
"""Number of files that are kept, the newest ones."""
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
        most: Maximum number of files.
    """

    def __init__(self, home: Path, most: int = MOST) -> None:
        self._home = home
        self._most = most

    def write(self, look: StoredLook, baseline: str = "") -> str:
        """Write a look, atomically, and delete the oldest files beyond the limit.

        Args:
            look: The look.
            baseline: File of the baseline in use, which is never deleted.

        Returns:
            Its path relative to the home, empty if it cannot be written.
        """
        relative = Path(FOLDER) / f"{look.look_id}.json.gz"
        path = self._home / relative
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            replace_file(path, gzip.compress(msgspec.json.encode(look), mtime=0), 0o600)
        except OSError as error:
            log.warning("the samples of look %s are not stored: %s", look.look_id, error)
            return ""
        self._delete_oldest({str(relative), baseline})
        return str(relative)

    def _delete_oldest(self, needed: Collection[str]) -> None:
        files = sorted((self._home / FOLDER).glob("*.json.gz"), key=_modified)
        for file in files[: -self._most]:
            if str(file.relative_to(self._home)) not in needed:
                with contextlib.suppress(OSError):
                    file.unlink()

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


def _modified(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:  # deleted meanwhile
        return 0.0
