"""Names of models: a folder, a GGUF file, or a name on Hugging Face; names of devices."""

import hashlib
import re
from pathlib import Path

from ajet_swarm.common.errors import UsageError

GGUF = ".gguf"
"""Suffix of a GGUF file."""
_DEVICE = re.compile(r"(cpu|mps|cuda(:\d{1,3})?)?")
_OTHER = re.compile(r"[^a-z0-9_.-]+")
_LONGEST = 40


def absolute_model(model: str) -> str:
    """Return the absolute path of a model on this disk; a name of anything else is unchanged."""
    if not model:
        return ""
    path = Path(model).expanduser()
    return str(path.absolute()) if path.exists() else model


def is_gguf(model: str) -> bool:
    """Return whether a model is a GGUF file, by its name."""
    return model.lower().endswith(GGUF)


def check_device(name: str) -> None:
    """Check the form of a device's name; empty stands for the fastest one.

    Raises:
        UsageError: torch has no such device.
    """
    if not _DEVICE.fullmatch(name):
        raise UsageError(
            "there is no such device", f"--device {name}", "Use cuda, cuda:1, mps or cpu"
        )


def slug(model: str) -> str:
    """Return a safe folder name; different models never share one, on any file system.

    Args:
        model: Absolute path or name of a model; empty stands for the model of the job.
    """
    digest = hashlib.sha256(model.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    name = Path(model).name if Path(model).is_absolute() else model.replace("/", "--")
    if is_gguf(name):
        name = name[: -len(GGUF)]
    plain = _OTHER.sub("-", name.lower()).strip("-.")[:_LONGEST].rstrip("-.")
    return f"{plain or 'model'}-{digest}" if model else f"job-{digest}"
