"""Checkpoints as files: their form, their names, the list of them. Nothing here needs numpy.

A checkpoint is one file: magic, SHA-256 of all that follows, the length of a JSON header, the
header, then weights and Adam state as little-endian float32.
"""

import contextlib
import hashlib
import json
import re
import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.interface import LATEST, Checkpoint, CheckpointError, NoCheckpointError, WeightsError

BASE_NAME = "base"
"""The shipped weights, as a name to go back to."""
PREVIOUS, DAMAGED = "previous", "damaged"
BEFORE_RESET, BEFORE_RESTORE = "before-reset", "before-restore"
_ENGINE_NAMES = (LATEST, PREVIOUS, DAMAGED, BEFORE_RESET, BEFORE_RESTORE)
_MAGIC = b"AJETPOL1"
_BODY = len(_MAGIC) + 32
_MAX_HEADER = 1 << 16
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ARRAYS = 3
"""Weights and the two means of Adam."""


class OtherBaseError(WeightsError):
    """A checkpoint of another release's weights."""


def check_name(name: str) -> str:
    """A name that a checkpoint may be saved under.

    Raises:
        CheckpointError: it is not one.
    """
    if (
        not _NAME.fullmatch(name)
        or name in _ENGINE_NAMES
        or name == BASE_NAME
        or name.endswith(".tmp")
    ):
        raise CheckpointError(
            "This is no name for a checkpoint",
            f"name {name!r:.100}",
            "Use up to 64 letters, digits, '.', '_' and '-', beginning with a letter or digit, "
            f"and none of {', '.join((*_ENGINE_NAMES, BASE_NAME))}.",
        )
    return name


def file_parts(header: Mapping[str, Any], arrays: Sequence[memoryview]) -> list[bytes | memoryview]:
    """A checkpoint in the order of the file, without a copy of the arrays."""
    text = json.dumps({**header, "at": time.time()}).encode()
    body: list[bytes | memoryview] = [struct.pack("<I", len(text)), text, *arrays]
    digest = hashlib.sha256()
    for part in body:
        digest.update(part)
    return [_MAGIC, digest.digest(), *body]


def read(path: Path, base: str) -> tuple[dict[str, Any], memoryview]:
    """Header and arrays of a checkpoint, verified.

    Raises:
        WeightsError: it is missing, can not be read, is damaged, or is of another base.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise WeightsError(
            f"The checkpoint can not be read ({error.strerror})", str(path)
        ) from error
    body = memoryview(data)[_BODY:]
    if data[:8] != _MAGIC or data[8:_BODY] != hashlib.sha256(body).digest():
        raise WeightsError("The checkpoint is damaged: its checksum differs", str(path))
    try:
        (length,) = struct.unpack_from("<I", body)
        header = json.loads(bytes(body[4 : 4 + length]))
        named, size = header["base"], int(header["size"])
        arrays = body[4 + length :]
        if len(arrays) != _ARRAYS * 4 * size:
            raise ValueError(f"{len(arrays)} bytes of arrays")
        int(header["step"]), int(header["t"])
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise WeightsError(f"The checkpoint is damaged: {error!r}", str(path)) from error
    if named != base:
        raise OtherBaseError(
            "The checkpoint was trained from other base weights",
            str(path),
            "Start with --reset to train from the shipped ones, or move the file away.",
        )
    return header, arrays


def list_checkpoints(directory: Path) -> list[Checkpoint]:
    """All checkpoints of a directory, newest first; needs no lock."""
    found = [_describe(path) for path in directory.glob("*.ckpt")]
    return sorted(
        (facts for facts in found if facts is not None),
        key=lambda facts: (facts.at, facts.step),
        reverse=True,
    )


def _describe(path: Path) -> Checkpoint | None:
    """None when it went away meanwhile."""
    try:
        stat = path.stat()
        with path.open("rb") as file:
            start = file.read(_BODY + 4 + _MAX_HEADER)
    except OSError:
        return None
    kept = path.stem in _ENGINE_NAMES
    try:
        (length,) = struct.unpack_from("<I", start, _BODY)
        header = json.loads(start[_BODY + 4 : _BODY + 4 + length])
        whole = _BODY + 4 + length + _ARRAYS * 4 * header["size"]
        if start[: len(_MAGIC)] != _MAGIC or whole != stat.st_size or path.stem == DAMAGED:
            raise ValueError(path.stem)
        at = float(header.get("at", stat.st_mtime))
        return Checkpoint(path.stem, int(header["step"]), whole, at, str(header["base"]), kept)
    except (ValueError, KeyError, TypeError, AttributeError, struct.error):
        return Checkpoint(path.stem, -1, stat.st_size, stat.st_mtime, "", kept, damaged=True)


def prune(directory: Path, keep: int) -> list[str]:
    """Delete all but the newest `keep` named checkpoints; names of the deleted ones.

    What the engine keeps for itself (latest, previous, before-reset, ...) is never deleted.

    Raises:
        CheckpointError: `keep` is negative, or a file can not be deleted.
    """
    if keep < 0:
        raise CheckpointError("A negative number can not be kept", f"keep {keep}", "Give 0 or more")
    named = [facts.name for facts in list_checkpoints(directory) if not facts.kept]
    try:
        for name in named[keep:]:
            (directory / f"{name}.ckpt").unlink(missing_ok=True)
    except OSError as error:
        raise CheckpointError(
            f"A checkpoint can not be deleted ({error.strerror})", str(directory / f"{name}.ckpt")
        ) from error
    return named[keep:]


def newest_usable(directory: Path, base: str) -> Checkpoint | None:
    """The newest named checkpoint that is whole and of this base."""
    for facts in list_checkpoints(directory):
        if facts.damaged or facts.name in (LATEST, PREVIOUS, DAMAGED):
            continue
        with contextlib.suppress(WeightsError):
            read(directory / f"{facts.name}.ckpt", base)
            return facts
    return None


def find(directory: Path, name: str) -> Path:
    """The file of a checkpoint.

    Raises:
        NoCheckpointError: there is none of this name.
    """
    path = directory / f"{name}.ckpt"
    if not (_NAME.fullmatch(name) and path.exists()):
        known = ", ".join(facts.name for facts in list_checkpoints(directory)) or "none"
        raise NoCheckpointError(
            "There is no checkpoint of this name", f"name {name!r:.100}", f"There are: {known}."
        )
    return path
