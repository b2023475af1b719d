"""The job that is saved for each server: one file in the home, read at every start."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import quote

from core.errors import AjetError


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
                f"the saved job cannot be read: {error}", str(file), "Mend it or delete it"
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
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(file)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise JobFileError(
                f"the job cannot be saved: {error.strerror or error}", str(file)
            ) from error
        return file
