"""The saved job of each server: one file in the home, read at every start."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

from ajet_swarm.common.errors import AjetError
from ajet_swarm.protocol import job_secrets
from core.whole_file import replace_file

_KEY_BYTES: Final = 32


class JobFileError(AjetError):
    """The file of a saved job cannot be read or written."""


@dataclass(frozen=True, slots=True)
class JobStore:
    """Files in `folder`, named after the servers. It blocks: call it in a thread."""

    folder: Path

    @classmethod
    def beside(cls, journal: Path) -> Self:
        """Return the store in the home that `journal` belongs to."""
        return cls(journal.parent / "jobs")

    def path(self, server: str) -> Path:
        """Return the file of one server; any server name gives a valid file name."""
        return self.folder / f"{quote(server, safe=' ')[:120]}.yaml"

    def load(self, server: str) -> tuple[str, float] | None:
        """Return the saved text and when it was saved; None when no job is saved.

        Raises:
            JobFileError: the file exists and cannot be read.
        """
        file = self.path(server)
        try:
            return file.read_text(encoding="utf-8"), file.stat().st_mtime
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise JobFileError(
                f"the saved job cannot be read: {error}", str(file), "Correct it or delete it"
            ) from error

    def save(self, server: str, text: str) -> Path:
        """Save a job atomically; return its file.

        Raises:
            JobFileError: the file cannot be written.
        """
        file = self.path(server)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            replace_file(file, text.encode("utf-8"), 0o600)
        except OSError as error:
            raise JobFileError(
                f"the job cannot be saved: {error.strerror or error}", str(file)
            ) from error
        return file

    # --- secrets --------------------------------------------------------------------------------

    def masked(self, text: str) -> str:
        """Return a job with its secrets masked; equal secrets have equal masks within one home.

        Raises:
            JobFileError: the masks' key cannot be read or created.
        """
        shown = job_secrets.masked(text)
        return text if shown == text else job_secrets.masked(text, self._key())

    def restored(self, server: str, text: str) -> str:
        """Return a job for `server` with the saved secrets in place of their masks.

        Raises:
            JobFileError: the masks' key cannot be read or created.
            UsageError: no saved job has the value of a mask; names its path.
        """
        if job_secrets.MASK not in text:
            return text
        return job_secrets.restored(text, self._texts(server), self._key())

    def _texts(self, first: str) -> Iterator[str]:
        """Yield the saved jobs, the server's own first; an empty text for an unreadable one."""
        file = self.path(first)
        others = [path for path in sorted(self.folder.glob("*.yaml")) if path != file]
        for other in (file, *others):
            try:
                yield other.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                yield ""

    def _key(self) -> bytes:
        """Return the key that mask digests are made with; it is stored beside the jobs."""
        file = self.folder / "mask.key"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                _write_new(file, secrets.token_bytes(_KEY_BYTES))
            return file.read_bytes()
        except OSError as error:
            raise JobFileError(f"the masks' key cannot be read: {error}", str(file)) from error


def _write_new(file: Path, data: bytes) -> None:
    """Create a file that does not exist yet, readable by its owner alone."""
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.write(data)
