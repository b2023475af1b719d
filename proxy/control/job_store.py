"""The job that is saved for each server: one file in the home, read at every start."""

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

_KEY_BYTES: Final = 32


class JobFileError(AjetError):
    """The file of a saved job cannot be read or written."""


@dataclass(frozen=True, slots=True)
class JobStore:
    """Files in `folder`, named after the servers. Blocking: call it in a thread."""

    folder: Path

    @classmethod
    def beside(cls, journal: Path) -> Self:
        """The jobs of the home that `journal` is in."""
        return cls(journal.parent / "jobs")

    def path(self, server: str) -> Path:
        """The file of one server; any name makes a file name."""
        return self.folder / f"{quote(server, safe=' ')[:120]}.yaml"

    def load(self, server: str) -> tuple[str, float] | None:
        """The saved text and when it was saved; None when nothing is.

        Raises:
            JobFileError: there is a file and it cannot be read.
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
        """Write it whole or not at all; returns the file.

        Raises:
            JobFileError: it cannot be written.
        """
        file = self.path(server)
        temporary = file.with_suffix(f".{os.getpid()}.tmp")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            temporary.unlink(missing_ok=True)
            _write_new(temporary, text.encode("utf-8"))
            temporary.replace(file)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise JobFileError(
                f"the job cannot be saved: {error.strerror or error}", str(file)
            ) from error
        return file

    # --- secrets --------------------------------------------------------------------------------

    def masked(self, text: str) -> str:
        """A job without its secrets; equal ones have equal masks, as long as the home lives.

        Raises:
            JobFileError: the key of the masks cannot be read or made.
        """
        shown = job_secrets.masked(text)
        return text if shown == text else job_secrets.masked(text, self._key())

    def restored(self, server: str, text: str) -> str:
        """A job for `server` with the saved values in place of the masks it came back with.

        Raises:
            JobFileError: the key of the masks cannot be read or made.
            UsageError: nothing saved has the value of a mask; names its path.
        """
        if job_secrets.MASK not in text:
            return text
        return job_secrets.restored(text, self._texts(server), self._key())

    def _texts(self, first: str) -> Iterator[str]:
        """The saved jobs, that of one server first; none in place of one that cannot be read."""
        file = self.path(first)
        others = [one for one in sorted(self.folder.glob("*.yaml")) if one != file]
        for one in (file, *others):
            try:
                yield one.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                yield ""

    def _key(self) -> bytes:
        """What the digests of masks are made with; lies beside the jobs."""
        file = self.folder / "mask.key"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                _write_new(file, secrets.token_bytes(_KEY_BYTES))
            return file.read_bytes()
        except OSError as error:
            raise JobFileError(f"the masks' key cannot be read: {error}", str(file)) from error


def _write_new(file: Path, data: bytes) -> None:
    """Write a file that is not there yet, for the owner alone."""
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.write(data)
