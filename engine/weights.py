"""The shipped base weights, and the saved state of a policy in training.

A checkpoint is one file: magic, SHA-256 of all that follows, a JSON header, then weights and Adam
state as little-endian float32. It is replaced atomically and the one before it is kept.
"""

import contextlib
import errno
import hashlib
import io
import json
import logging
import os
import shutil
import struct
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from core.errors import AjetError
from engine import tokenizer as bpe
from engine.model import Config, Params
from engine.optimizer import Adam
from engine.policy import SaveError

if sys.platform != "win32":
    import fcntl

log = logging.getLogger(__name__)

DATA = Path(__file__).parent / "data"
BASE, MERGES, SUMS = "base.npz", "merges.txt", "SHA256SUMS"
CONFIG = Config(blocked=bpe.TEMPLATE_ONLY)
_MAGIC = b"AJETPOL1"


class WeightsError(AjetError):
    """Weights on disk can not be used."""


@dataclass(frozen=True, slots=True)
class Base:
    """The shipped weights."""

    params: Params
    digest: str
    """SHA-256 of their file: a checkpoint names the base it was trained from."""


def save_base(directory: Path, params: Params, merges: list[tuple[int, int]]) -> None:
    """Write weights in float16, merges and their checksums."""
    directory.mkdir(parents=True, exist_ok=True)
    arrays = {name: params[name].astype(np.float16) for name in params.names()}
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    (directory / BASE).write_bytes(buffer.getvalue())
    bpe.save_merges(directory / MERGES, merges)
    sums = (f"{_digest(directory / name)}  {name}\n" for name in (BASE, MERGES))
    (directory / SUMS).write_text("".join(sums), encoding="ascii")


def load_base(directory: Path = DATA) -> Base:
    """Read and verify the shipped weights.

    Raises:
        WeightsError: a file is missing, changed, or of other sizes.
    """
    try:
        lines = (directory / SUMS).read_text(encoding="ascii").splitlines()
        wanted = {name: digest for digest, name in (line.split() for line in lines)}
        for name in (BASE, MERGES):
            if _digest(directory / name) != wanted.get(name):
                raise WeightsError(
                    "The shipped weights differ from their checksum",
                    str(directory / name),
                    "Install ajet-console again.",
                )
        params = Params(CONFIG)
        with np.load(directory / BASE, allow_pickle=False) as arrays:
            for name in params.names():
                params[name][...] = arrays[name]
    except (OSError, ValueError, KeyError) as error:
        raise WeightsError(
            f"The shipped weights can not be read ({error})",
            str(directory),
            "Install ajet-console again.",
        ) from error
    return Base(params, wanted[BASE])


@cache
def _shipped() -> Base:
    return load_base()


def shipped() -> Base:
    """The shipped weights, read once; do not change their parameters."""
    return _shipped()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(slots=True)
class State:
    """What training goes on from."""

    params: Params
    adam: Adam
    step: int = 0

    @classmethod
    def fresh(cls, base: Base) -> "State":
        """The base weights with a new optimizer."""
        return cls(base.params.copy(), Adam(base.params.flat.size))


def _parts(state: State, base: str) -> list[bytes | memoryview]:
    """A checkpoint in the order of the file, without a copy of the arrays."""
    header = json.dumps(
        {"base": base, "step": state.step, "t": state.adam.t, "size": state.params.flat.size}
    ).encode()
    arrays = (state.params.flat, state.adam.m, state.adam.v)
    body: list[bytes | memoryview] = [struct.pack("<I", len(header)), header]
    body += [array.astype("<f4", copy=False).data.cast("B") for array in arrays]
    digest = hashlib.sha256()
    for part in body:
        digest.update(part)
    return [_MAGIC, digest.digest(), *body]


def _unpack(path: Path, base: str) -> State:
    data = path.read_bytes()
    body = memoryview(data)[40:]
    if data[:8] != _MAGIC or data[8:40] != hashlib.sha256(body).digest():
        raise WeightsError("The checkpoint is damaged: its checksum differs", str(path))
    (length,) = struct.unpack_from("<I", body)
    header = json.loads(bytes(body[4 : 4 + length]))
    if header["base"] != base:
        raise OtherBaseError(
            "The checkpoint was trained from other base weights",
            str(path),
            "Start with --reset to train from the shipped ones, or move the file away.",
        )
    arrays = np.frombuffer(body, "<f4", offset=4 + length).reshape(3, header["size"])
    adam = Adam(header["size"])
    adam.m[...], adam.v[...], adam.t = arrays[1], arrays[2], header["t"]
    return State(Params(CONFIG, arrays[0].astype(np.float32)), adam, header["step"])


class OtherBaseError(WeightsError):
    """A checkpoint of another release's weights."""


class WeightStore:
    """The checkpoints of one policy in one directory, held by one process at a time.

    Args:
        directory: Made when it does not exist.

    Raises:
        WeightsError: another engine holds the directory, or it can not be written.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.latest = directory / "latest.ckpt"
        self.previous = directory / "previous.ckpt"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise WeightsError(
                f"The directory of the policy can not be used ({error.strerror})",
                str(directory),
                "Choose another home or free it.",
            ) from error
        self._hold()
        for stale in directory.glob("*.tmp"):
            with contextlib.suppress(OSError):
                stale.unlink()

    def _hold(self) -> None:
        if sys.platform == "win32":  # nothing there stops two engines on one directory
            return
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise WeightsError(
                "Another engine already trains the policy kept here",
                str(self.directory),
                "Stop that engine, or give this one another home.",
            ) from error

    def load(self, base: Base) -> State:
        """The latest good state; the base when nothing is saved.

        A damaged latest checkpoint is set aside under another name with a warning.

        Raises:
            WeightsError: nothing that is saved can be used.
        """
        if self.latest.exists():
            try:
                return _unpack(self.latest, base.digest)
            except OtherBaseError:
                raise
            except (WeightsError, OSError, ValueError, KeyError, struct.error) as error:
                aside = self.directory / "damaged.ckpt"
                log.warning("%s is damaged (%s): set aside as %s", self.latest, error, aside.name)
                with contextlib.suppress(OSError):
                    os.replace(self.latest, aside)
                if not self.previous.exists():
                    raise WeightsError(
                        "The only checkpoint is damaged",
                        str(aside),
                        "Start again to train from the shipped weights.",
                    ) from error
        if self.previous.exists():
            try:
                state = _unpack(self.previous, base.digest)
            except OtherBaseError:
                raise
            except (WeightsError, OSError, ValueError, KeyError, struct.error) as error:
                raise WeightsError(
                    f"The previous checkpoint is damaged too ({error})",
                    str(self.previous),
                    "Start with --reset to train from the shipped weights.",
                ) from error
            log.warning("going on from %s, global step %d", self.previous, state.step)
            return state
        return State.fresh(base)

    def save(self, state: State, base: Base) -> None:
        """Replace the latest checkpoint; what it was becomes the previous one.

        Raises:
            SaveError: nothing was replaced; what was saved before is still there.
        """
        temporary = self.directory / f"latest.{os.getpid()}.tmp"
        try:
            with temporary.open("wb") as file:
                file.writelines(_parts(state, base.digest))
                file.flush()
                os.fsync(file.fileno())
            self._keep_latest()
            os.replace(temporary, self.latest)
            self._sync()
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise SaveError(
                f"{self.latest}: global step {state.step} could not be saved "
                f"({error.strerror or error}). Free space or mend the permissions: "
                "the next update saves again."
            ) from error

    def reset(self) -> None:
        """Set the saved states aside as `before-reset.ckpt`; the next load is the base.

        Raises:
            WeightsError: they could not be moved.
        """
        try:
            self.previous.unlink(missing_ok=True)
            if self.latest.exists():
                os.replace(self.latest, self.directory / "before-reset.ckpt")
            self._sync()
        except OSError as error:
            raise WeightsError(
                f"The saved policy could not be set aside ({error.strerror or error})",
                str(self.directory),
                "Mend the permissions of the directory.",
            ) from error

    def close(self) -> None:
        """Let another engine have the directory."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _keep_latest(self) -> None:
        """Make the latest the previous one, without a moment in which there is no latest."""
        if not self.latest.exists():
            return
        link = self.directory / f"previous.{os.getpid()}.tmp"
        link.unlink(missing_ok=True)
        try:
            os.link(self.latest, link)
        except OSError:
            shutil.copyfile(self.latest, link)
        os.replace(link, self.previous)

    def _sync(self) -> None:
        """Make the renames durable, where directories can be synced."""
        if os.name != "posix":
            return
        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
