"""Checkpoint files: format, names, listing; without numpy.

A checkpoint is one file: magic, SHA-256 of everything after it, length of a JSON header, the
header, then weights and Adam state as little-endian float32.
"""

import contextlib
import hashlib
import json
import os
import re
import struct
import time
from collections.abc import Mapping, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any

from engine.interface import LATEST, Checkpoint, CheckpointError, NoCheckpointError, WeightsError

BASE_NAME = "base"
"""Name under which the base weights can be restored."""
PREVIOUS, DAMAGED = "previous", "damaged"
BEFORE_RESET, BEFORE_RESTORE = "before-reset", "before-restore"
_ENGINE_NAMES = (LATEST, PREVIOUS, DAMAGED, BEFORE_RESET, BEFORE_RESTORE)
_MAGIC = b"AJETPOL1"
_BODY = len(_MAGIC) + 32
_MAX_HEADER = 1 << 16
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ARRAYS = 3
"""Weights and Adam's two means."""
_PIECE = 1 << 24
"""Bytes that are read and hashed at a time."""


class OtherBaseError(WeightsError):
    """A checkpoint was trained from other base weights."""


def check_name(name: str) -> str:
    """Return the name if a checkpoint can be saved under it.

    Raises:
        CheckpointError: it cannot.
    """
    if (
        not _NAME.fullmatch(name)
        or name in _ENGINE_NAMES
        or name == BASE_NAME
        or name.endswith(".tmp")
    ):
        raise CheckpointError(
            "This is not a valid checkpoint name",
            f"name {name!r:.100}",
            "Use up to 64 letters, digits, '.', '_' and '-', starting with a letter or digit, "
            f"and none of {', '.join((*_ENGINE_NAMES, BASE_NAME))}.",
        )
    return name


def file_parts(header: Mapping[str, Any], arrays: Sequence[memoryview]) -> list[bytes | memoryview]:
    """Return the parts of a checkpoint file in order, without copying the arrays."""
    text = json.dumps({**header, "at": time.time()}).encode()
    body: list[bytes | memoryview] = [struct.pack("<I", len(text)), text, *arrays]
    digest = hashlib.sha256()
    for part in body:
        digest.update(part)
    return [_MAGIC, digest.digest(), *body]


def read(path: Path, base: str, arrays: int = _ARRAYS) -> tuple[dict[str, Any], memoryview]:
    """Return header and arrays of a checkpoint after verification of the whole file.

    Args:
        path: The file.
        base: Expected digest of the base weights.
        arrays: How many of the three arrays to return, weights first; the others are read in
            pieces, as a file may be larger than the memory.

    Raises:
        WeightsError: it is missing, unreadable, damaged, or of another base.
    """
    try:
        with path.open("rb") as file:
            header, body = _verified(file, path, arrays)
    except OSError as error:
        raise WeightsError(
            f"The checkpoint cannot be read ({error.strerror})", str(path)
        ) from error
    if header["base"] != base:
        raise OtherBaseError(
            "The checkpoint was trained from other base weights",
            str(path),
            "Start with --reset to train from the present ones, or move the file away.",
        )
    return header, body


def _verified(file: BufferedReader, path: Path, arrays: int) -> tuple[dict[str, Any], memoryview]:
    total = os.fstat(file.fileno()).st_size
    start = file.read(_BODY + 4)
    if len(start) < _BODY + 4 or start[: len(_MAGIC)] != _MAGIC:
        raise WeightsError("The checkpoint is damaged: it does not begin as one", str(path))
    digest = hashlib.sha256(start[_BODY:])
    (length,) = struct.unpack_from("<I", start, _BODY)
    text = file.read(min(length, _MAX_HEADER))
    digest.update(text)
    try:
        header: dict[str, Any] = json.loads(text)
        size = int(header["size"])
        if size < 0 or total != _BODY + 4 + length + _ARRAYS * 4 * size:
            raise ValueError(f"{total} bytes")
        str(header["base"]), int(header["step"]), int(header["t"])
    except (ValueError, KeyError, TypeError) as error:
        raise WeightsError(f"The checkpoint is damaged: {error!r}", str(path)) from error
    body = memoryview(bytearray(arrays * 4 * size))
    for at in range(0, len(body), _PIECE):
        piece = body[at : at + _PIECE]
        digest.update(piece[: file.readinto(piece)])
    while rest := file.read(_PIECE):
        digest.update(rest)
    if digest.digest() != start[len(_MAGIC) : _BODY]:
        raise WeightsError("The checkpoint is damaged: its checksum differs", str(path))
    return header, body


def list_checkpoints(directory: Path) -> list[Checkpoint]:
    """Return all checkpoints of a directory, newest first; needs no lock.

    Of two of the same moment, as of one that was restored, the named one is first.
    """
    entries = [_describe(path) for path in directory.glob("*.ckpt")]
    return sorted(
        (entry for entry in entries if entry is not None),
        key=lambda entry: (entry.at, entry.step, not entry.internal, entry.name),
        reverse=True,
    )


def named_steps(directory: Path) -> set[int]:
    """Return the global steps of the named checkpoints of a directory."""
    return {entry.step for entry in list_checkpoints(directory) if not entry.internal}


def _describe(path: Path) -> Checkpoint | None:
    """Return a checkpoint's description, None when it was deleted meanwhile."""
    try:
        stat = path.stat()
        with path.open("rb") as file:
            start = file.read(_BODY + 4 + _MAX_HEADER)
    except OSError:
        return None
    internal = path.stem in _ENGINE_NAMES
    try:
        (length,) = struct.unpack_from("<I", start, _BODY)
        header = json.loads(start[_BODY + 4 : _BODY + 4 + length])
        whole = _BODY + 4 + length + _ARRAYS * 4 * header["size"]
        if start[: len(_MAGIC)] != _MAGIC or whole != stat.st_size or path.stem == DAMAGED:
            raise ValueError(path.stem)
        at = float(header["at"])
        return Checkpoint(path.stem, int(header["step"]), whole, at, str(header["base"]), internal)
    except (ValueError, KeyError, TypeError, AttributeError, struct.error):
        return Checkpoint(path.stem, -1, stat.st_size, stat.st_mtime, "", internal, damaged=True)


def prune(directory: Path, keep: int) -> list[str]:
    """Delete all but the newest `keep` named checkpoints; return the deleted names.

    The engine's own checkpoints (latest, previous, before-reset, ...) are never deleted.

    Raises:
        CheckpointError: `keep` is negative, or a file cannot be deleted.
    """
    if keep < 0:
        raise CheckpointError(
            "The number of checkpoints to keep is negative", f"keep {keep}", "Give 0 or more"
        )
    named = [entry.name for entry in list_checkpoints(directory) if not entry.internal]
    try:
        for name in named[keep:]:
            (directory / f"{name}.ckpt").unlink(missing_ok=True)
    except OSError as error:
        raise CheckpointError(
            f"A checkpoint cannot be deleted ({error.strerror})", str(directory / f"{name}.ckpt")
        ) from error
    return named[keep:]


def newest_usable(directory: Path, base: str) -> Checkpoint | None:
    """Return the newest named checkpoint that is intact and of this base, or None."""
    for entry in list_checkpoints(directory):
        if entry.damaged or entry.name in (LATEST, PREVIOUS, DAMAGED):
            continue
        with contextlib.suppress(WeightsError):
            read(directory / f"{entry.name}.ckpt", base, 0)
            return entry
    return None


def find(directory: Path, name: str) -> Path:
    """Return the file of a checkpoint.

    Raises:
        NoCheckpointError: no checkpoint has this name.
    """
    path = directory / f"{name}.ckpt"
    if not (_NAME.fullmatch(name) and path.exists()):
        known = ", ".join(entry.name for entry in list_checkpoints(directory)) or "none"
        raise NoCheckpointError(
            "There is no checkpoint of this name", f"name {name!r:.100}", f"There are: {known}."
        )
    return path
